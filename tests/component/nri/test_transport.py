"""Given the two ends of a ttrpc connection, when a peer is slow, absent, greedy or talks nonsense, then ...; and pods
that come and go by NRI, of which nothing stays behind."""

import asyncio
import socket

import pytest

from nodeward.core.errors import WireError
from nodeward.neighbours.nri import mux, ttrpc, ttrpc_unix
from nodeward.neighbours.nri.ttrpc import Code, Message, MessageType, Request, Status
from nodeward.neighbours.nri.ttrpc_unix import (
    MAX_ANSWERS,
    MAX_CALLS,
    READ_BYTES,
    Answer,
    CallFailedError,
    CallTimeoutError,
    ConnectionEndedError,
    Handler,
    TooManyCallsError,
    TtrpcPeer,
)
from tests.unit.simulated import told_by_nri
from tests.unit.simulated.lifetimes import Left
from tests.unit.simulated.told_by_nri import NriLifetimes

PING = Request("s", "Ping", b"x")


def echo(request: Request) -> Answer:
    return request.payload


class Slow(list[asyncio.Future[Answer]]):
    def __call__(self, request: Request) -> asyncio.Future[Answer]:
        self.append(asyncio.get_running_loop().create_future())
        return self[-1]


def deliver(peer: TtrpcPeer, data: bytes) -> None:
    for at in range(0, len(data), READ_BYTES):
        piece = data[at : at + READ_BYTES]
        peer.get_buffer(-1)[: len(piece)] = piece
        peer.buffer_updated(len(piece))


async def pair(plugin: Handler = echo, runtime: Handler = echo) -> tuple[TtrpcPeer, TtrpcPeer]:
    left, right = socket.socketpair()
    right.setblocking(False)
    there = TtrpcPeer(runtime, serves=mux.RUNTIME_SERVICE, calls=mux.PLUGIN_SERVICE)
    await asyncio.get_running_loop().create_unix_connection(lambda: there, sock=right)
    return await ttrpc_unix.adopt(left.detach(), plugin), there


def framed(stream: int, request: Request, connection: int = mux.PLUGIN_SERVICE) -> bytes:
    message = Message(stream, MessageType.REQUEST, 0, ttrpc.encode_request(request))
    return mux.encode_message(connection, ttrpc.encode(message))


@pytest.mark.parametrize("size", [0, 1, 4096, 5000, 3 << 20])
async def test_both_ends_call_each_other_whatever_the_size(size: int) -> None:
    ends = await pair()
    for peer in ends:
        assert await peer.call(Request("s", "Echo", bytes(size)), 10) == bytes(size)
    ends[0].close("done")


async def test_a_status_is_an_error_with_its_code_and_words() -> None:
    plugin, runtime = await pair(plugin=lambda request: Status(Code.UNIMPLEMENTED, "no such thing"))
    with pytest.raises(CallFailedError, match="no such thing") as caught:
        await runtime.call(PING, 10)
    assert caught.value.status.code == 12
    plugin.close("done")


async def test_a_call_without_an_answer_ends_and_its_late_answer_harms_nobody() -> None:
    plugin, runtime = await pair(plugin=(answers := Slow()))
    with pytest.raises(CallTimeoutError, match="Ping: no answer within"):
        await runtime.call(PING, 0.01)
    second = asyncio.create_task(runtime.call(PING, 10))
    while len(answers) < 2:
        await asyncio.sleep(0)
    answers[0].set_result(b"late")
    answers[1].set_result(b"in time")
    assert await second == b"in time"
    plugin.close("done")


async def test_what_waits_when_the_connection_ends_fails_and_unfinished_answers_are_cancelled() -> None:
    plugin, runtime = await pair(plugin=(answers := Slow()))
    call = asyncio.create_task(runtime.call(PING, 10))
    while not answers:
        await asyncio.sleep(0)
    runtime.close("the runtime stops")
    with pytest.raises(ConnectionEndedError, match="the runtime stops"):
        await call
    assert await plugin.wait_ended() == "closed by the peer"
    assert answers[0].cancelled()
    with pytest.raises(ConnectionEndedError):
        await plugin.call(PING, 1)


async def test_own_calls_are_bounded() -> None:
    plugin, runtime = await pair(plugin=Slow())
    calls = [asyncio.create_task(runtime.call(PING, 10)) for _ in range(MAX_CALLS)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyCallsError):
        await runtime.call(PING, 10)
    plugin.close("done")
    assert {type(error) for error in await asyncio.gather(*calls, return_exceptions=True)} == {ConnectionEndedError}


class Recorder(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.reading = True
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


async def test_calls_that_come_together_are_answered_with_one_write() -> None:
    peer, transport = TtrpcPeer(echo), Recorder()
    peer.connection_made(transport)
    deliver(peer, b"".join(framed(stream, PING) for stream in (1, 3, 5)))
    assert len(transport.writes) == 1
    frames = mux.MuxDecoder().feed(transport.writes[0])
    replies = ttrpc.MessageDecoder().feed(b"".join(frame.payload for frame in frames))
    assert [reply.stream for reply in replies] == [1, 3, 5]


async def test_reading_pauses_while_the_peer_does_not_read_or_too_much_is_unanswered() -> None:
    peer, transport = TtrpcPeer(answers := Slow()), Recorder()
    peer.connection_made(transport)
    peer.pause_writing()
    assert not transport.reading
    peer.resume_writing()
    assert transport.reading
    for number in range(MAX_ANSWERS):
        deliver(peer, framed(2 * number + 1, PING))
    assert not transport.reading
    answers[0].set_result(b"")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert transport.reading
    peer.connection_lost(None)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\0\0\0\1\xff\xff\xff\xff", id="a frame of 4 GiB"),
        pytest.param(mux.encode_message(1, b"\xff\xff\xff\xff\0\0\0\1\1\0"), id="a message of 4 GiB"),
        pytest.param(mux.encode_message(1, b"\0\0\0\1\0\0\0\1\1\0\xff"), id="an envelope that is no protobuf"),
    ],
)
async def test_nonsense_ends_the_connection_with_the_reason(data: bytes) -> None:
    peer, transport = TtrpcPeer(echo), Recorder()
    peer.connection_made(transport)
    deliver(peer, data)
    assert transport.closed
    peer.connection_lost(None)
    assert (await peer.wait_ended()).partition(":")[0] in ("nri_mux", "ttrpc")


async def test_a_payload_the_handler_cannot_read_ends_the_connection() -> None:
    def unreadable(request: Request) -> Answer:
        raise WireError("nri", "no protobuf")

    _, runtime = await pair(plugin=unreadable)
    with pytest.raises(ConnectionEndedError):
        await runtime.call(PING, 10)


async def test_frames_of_unknown_connections_and_stray_messages_are_dropped() -> None:
    peer, transport = TtrpcPeer(echo), Recorder()
    peer.connection_made(transport)
    stray = ttrpc.encode(Message(99, MessageType.RESPONSE, 0, b""))
    deliver(peer, framed(1, PING, connection=7))
    deliver(peer, mux.encode_message(1, stray) + mux.encode_message(2, stray))
    assert (transport.writes, transport.closed) == ([], False)
    deliver(peer, framed(1, PING))
    assert len(transport.writes) == 1


AT_FIRST, PODS = 20, 100
CONTROLLERS = 2
"""The slots that outlive pods: misc switched on in the root and in the cgroup above the pods."""


def test_a_hundred_pods_and_a_restart_of_the_runtime_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told_by_nri, "RESTARTS_AFTER", 70)
    lifetimes = NriLifetimes()
    try:
        lifetimes.live(AT_FIRST)
        first = lifetimes.left()
        lifetimes.live(PODS)

        assert lifetimes.left() == first == Left(0, CONTROLLERS, 0, 0, 0)
        assert lifetimes.faults == {}
        assert lifetimes.restarts == 1
        assert lifetimes.created == 3 * (AT_FIRST + PODS)
        assert lifetimes.refused > PODS, "and each container was held to its limit"
    finally:
        lifetimes.close()
