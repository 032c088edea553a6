"""The small gRPC server behind `v1.Config` and `v1.Agent` with clients that are not ours, and our clients, and our own
unary call, at sockets whose servers are not what they should be."""

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from operator import methodcaller
from pathlib import Path

import grpc
import pytest

from nodeward.core.errors import WireError
from nodeward.neighbours.formats import grpc_messages
from nodeward.neighbours.formats import http2_frames as h2
from nodeward.neighbours.formats.grpc_messages import MESSAGE_BYTES
from nodeward.neighbours.formats.header_blocks import encode_literals
from nodeward.neighbours.resmgr import agent, config
from nodeward.neighbours.resmgr.agent import UnhealthyError
from nodeward.neighbours.resmgr.config import NotPushedError
from nodeward.neighbours.sockets import unary_server
from nodeward.neighbours.sockets.unary_client import UNIMPLEMENTED, CallFailedError, Exchange
from nodeward.neighbours.sockets.unary_client import call as asks
from nodeward.neighbours.sockets.unary_server import RESOURCE_EXHAUSTED, Answer, AnswerError, UnaryServer
from tests.component.relay.rig import (
    SERVICE,
    WAIT_S,
    client_of,
    in_its_place,
    in_thread,
    runtime_at,
    socket_to,
    wait_for,
)

cancelled = threading.Event()


async def echo(message: bytes) -> bytes:
    """Larger than what came, so that it waits for the client's windows."""
    return message * 4


async def refuse(_: bytes) -> bytes:
    raise AnswerError(RESOURCE_EXHAUSTED, "no more für dich")


async def unread(_: bytes) -> bytes:
    raise WireError("x", "is no message")


async def fail(_: bytes) -> bytes:
    raise KeyError("secret")


async def sleep(_: bytes) -> bytes:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        cancelled.set()
        raise
    return b""


METHODS: Mapping[str, Answer] = {f"/t.T/{one.__name__}": one for one in (echo, refuse, unread, fail, sleep)}


@contextmanager
def serving(path: Path, server: UnaryServer) -> Iterator[None]:
    with in_thread(lambda: server.run(str(path))):
        wait_for(path.is_socket, "socket")
        yield


def call(channel: grpc.Channel, name: str, message: bytes = b"", timeout_s: float = WAIT_S) -> bytes:
    answer: bytes = channel.unary_unary(f"/t.T/{name}")(message, timeout=timeout_s)
    return answer


def test_messages_of_every_size_go_both_ways_for_many_calls_of_one_client(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    sizes = [0, 1, 16_379, 16_384, 70_000, 256 * 1024 - 5]
    with serving(path, UnaryServer(METHODS)), client_of(path) as channel, ThreadPoolExecutor(12) as threads:
        messages = [bytes([number]) * size for number, size in enumerate(sizes * 4)]
        assert list(threads.map(lambda one: call(channel, "echo", one), messages)) == [one * 4 for one in messages]
    assert not path.exists()


FAILS = {
    "refuse": (grpc.StatusCode.RESOURCE_EXHAUSTED, "no more für dich"),
    "unread": (grpc.StatusCode.INVALID_ARGUMENT, "x: is no message"),
    "fail": (grpc.StatusCode.INTERNAL, "KeyError: a fault of nodeward's, see its log"),
    "nothing": (grpc.StatusCode.UNIMPLEMENTED, "no such method; there are "),
}


def test_a_call_that_fails_says_why_and_who_gives_up_has_its_handler_cancelled(tmp_path: Path) -> None:
    """And no more of a fault than its kind. Who is not trusted gets nothing."""
    path = tmp_path / "s.sock"
    with serving(path, UnaryServer(METHODS)), client_of(path) as channel:
        for name, (status, text) in FAILS.items():
            with pytest.raises(grpc.RpcError) as told:
                call(channel, name)
            assert (told.value.code(), told.value.details()[: len(text)]) == (status, text)
            assert call(channel, "echo", b"a") == b"aaaa"
        cancelled.clear()
        with pytest.raises(grpc.RpcError):
            call(channel, "sleep", timeout_s=0.2)
        assert cancelled.wait(WAIT_S)
    with serving(path, UnaryServer(METHODS, trusts=lambda _: False)), socket_to(path) as client:
        assert client.recv(1) == b""


def read_to_end(client: socket.socket, sends: bytes = b"") -> bytes:
    """What the server sends until it closes; after each read the client sends this."""
    found, end = b"", time.monotonic() + WAIT_S
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while (data := client.recv(4096)) and time.monotonic() < end:
            found += data
            client.sendall(sends)
    return found


def test_a_client_that_takes_no_answer_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unary_server, "REQUEST_S", 0.3)
    path, headers = tmp_path / "s.sock", encode_literals([(b":path", b"/t.T/echo")])
    request = grpc_messages.encode_message(b"x" * 16_000)
    with serving(path, UnaryServer(METHODS)), socket_to(path) as client:
        calls = [
            h2.encode_headers(stream, headers, 0) + h2.encode(h2.DATA, h2.END_STREAM, stream, request)
            for stream in (1, 3)
        ]
        client.sendall(h2.PREFACE + h2.encode_settings({}) + b"".join(calls))
        assert b"x" * 16_000 in read_to_end(client), "the first window of answers, and then the end"


def test_clients_that_ask_nothing_leave_their_places_and_one_that_asks_later_connects_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unary_server, "IDLE_S", 0.3)
    path, ping = tmp_path / "s.sock", h2.encode(h2.PING, 0, 0, b"12345678")
    with serving(path, UnaryServer(METHODS)), contextlib.ExitStack() as held:
        clients = [held.enter_context(socket_to(path)) for _ in range(unary_server.MOST_CLIENTS)]
        for one in clients:
            one.sendall(h2.PREFACE + h2.encode_settings({}))
        assert h2.encode_goaway(0, h2.NO_ERROR) in read_to_end(clients[0], ping)
        for one in clients[1:]:
            assert read_to_end(one).endswith(h2.encode_goaway(0, h2.NO_ERROR))
        with client_of(path) as channel:
            assert call(channel, "echo", b"a") == b"aaaa"
            idle = threading.Event()
            channel.subscribe(lambda state: idle.set() if state is grpc.ChannelConnectivity.IDLE else None)
            assert idle.wait(WAIT_S)
            assert call(channel, "echo", b"b") == b"bbbb"


Ask = Callable[[str], Coroutine[None, None, object]]


async def probe(path: str) -> None:
    await agent.check_health(path, "")


async def push(path: str) -> str:
    return await config.push(path, "n", {})


@pytest.mark.parametrize("ask", [probe, push])
def test_a_socket_that_is_absent_or_hostile_or_not_roots_is_told_and_not_used(
    tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "SET_S", 0.5)
    path = tmp_path / "s.sock"

    def said() -> str:
        with pytest.raises((UnhealthyError, NotPushedError)) as told:
            asyncio.run(ask(str(path)))
        return str(told.value)

    assert "No such file" in said()
    path.write_bytes(b"")
    assert "is no socket" in said()
    path.unlink()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        assert "refused" in said()
        listening.listen()
        assert "no answer within" in said(), "one that takes connections and says nothing"
        listening.accept()[0].close()
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
        assert "belongs to user 65534 and not to root" in said()
    path.unlink()
    for words in (b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"x" * 9000, b"", b"\0\0\x04\x08\0\0\0\0\0\xff\xff\xff\xff"):
        with in_its_place(path, methodcaller("sendall", words)):
            assert str(path) in said()


PATH = f"{SERVICE}/ListContainers"
OK = ((b":status", b"200"), (b"content-type", b"application/grpc"))


def asked(folder: Path, behave: Callable[[str, bytes, grpc.ServicerContext], bytes], request: bytes = b"") -> bytes:
    with runtime_at(folder / "runtime.sock", behave):
        return asyncio.run(asks(str(folder / "runtime.sock"), PATH, request, WAIT_S))


def test_an_answer_comes_whole_up_to_what_is_read_and_a_longer_one_is_an_error_and_not_a_head(tmp_path: Path) -> None:
    seen: list[tuple[str, bytes, bool]] = []

    def behave(name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        seen.append((name, request, 0 < context.time_remaining() <= WAIT_S))
        if request == b"unknown":
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown service of CRI: ü")
        return os.urandom(1) * (MESSAGE_BYTES + (request == b"longer"))

    assert len(asked(tmp_path, behave, b"\x0a\x00")) == MESSAGE_BYTES
    assert seen == [("ListContainers", b"\x0a\x00", True)]
    with pytest.raises(WireError, match="longer than is read"):
        asked(tmp_path, behave, b"longer")
    with pytest.raises(CallFailedError, match="unknown service of CRI: ü") as caught:
        asked(tmp_path, behave, b"unknown")
    assert caught.value.status == UNIMPLEMENTED


async def test_a_peer_that_says_nothing_costs_the_time_and_one_that_goes_is_an_error(tmp_path: Path) -> None:
    goes = 0

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(goes or -1)
        writer.close()

    path = str(tmp_path / "peer.sock")
    async with await asyncio.start_unix_server(silent, path):
        with pytest.raises(TimeoutError):
            await asks(path, PATH, b"", 0.2)
        goes = 1
        with pytest.raises((CallFailedError, OSError)):
            await asks(path, PATH, b"", WAIT_S)


def fed(*frames: bytes) -> Exchange:
    made = Exchange(PATH, b"", 1.0)
    said = made.feed(h2.encode_settings({}) + h2.encode(h2.PING, 0, 0, b"12345678") + h2.encode(h2.PING, h2.ACK, 0))
    assert said == h2.encode(h2.SETTINGS, h2.ACK, 0) + h2.encode(h2.PING, h2.ACK, 0, b"12345678")
    for one in frames:
        made.feed(one)
    return made


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ((h2.encode_reset(1, h2.CANCEL),), "reset the call"),
        ((h2.encode_goaway(0, h2.NO_ERROR),), "takes no more calls"),
        ((h2.encode_headers(1, encode_literals([(b":status", b"404")]), h2.END_STREAM),), "HTTP status 404"),
        ((h2.encode_headers(1, encode_literals([*OK, (b"grpc-status", b"x")]), h2.END_STREAM),), "no gRPC status"),
        ((h2.encode_headers(1, encode_literals([*OK, (b"grpc-status", b"0")]), h2.END_STREAM),), "0 messages"),
    ],
)
def test_an_end_without_an_answer_says_why(frames: tuple[bytes, ...], why: str) -> None:
    made = fed(*frames)
    assert made.over
    with pytest.raises((CallFailedError, WireError), match=why):
        made.answer()


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        h2.encode(h2.DATA, 0, 1, bytes(10)),
        h2.encode(h2.HEADERS, 0, 1, b"") + h2.encode(h2.PING, 0, 0, bytes(8)),
        h2.encode(h2.HEADERS, h2.END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"),
    ],
    ids=["no-http2", "two-messages", "something-inside-a-header-block", "no-header-block"],
)
def test_garbage_is_an_error(data: bytes) -> None:
    with pytest.raises(WireError):
        fed(data)


def test_a_peer_that_pads_without_end_is_cut_off() -> None:
    """Data of nothing but padding is data too: more of it than was granted ends the call."""
    made = Exchange(PATH, b"", 1.0)
    frame = h2.encode(h2.DATA, h2.PADDED, 1, b"\xff" + bytes(255))
    for _ in range(2 * MESSAGE_BYTES // 256):
        made.feed(frame)
    with pytest.raises(WireError, match="were granted"):
        made.feed(frame)
