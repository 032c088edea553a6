"""Our own unary call: with grpcio's server, and with peers that answer nothing, garbage, or too much."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from nodeward.transport.relay_calls import MESSAGE_BYTES
from nodeward.transport.unary_client import UNIMPLEMENTED, CallFailedError, Exchange, call
from nodeward.wire import http2_frames as h2
from nodeward.wire.errors import WireError
from nodeward.wire.header_blocks import encode_literals
from tests.component.relay.rig import SERVICE, WAIT_S, runtime_at

PATH = f"{SERVICE}/ListContainers"
OK = ((b":status", b"200"), (b"content-type", b"application/grpc"))


def asked(folder: Path, behave: Callable[[str, bytes, grpc.ServicerContext], bytes], request: bytes = b"") -> bytes:
    with runtime_at(folder / "runtime.sock", behave):
        return asyncio.run(call(str(folder / "runtime.sock"), PATH, request, WAIT_S))


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
            await call(path, PATH, b"", 0.2)
        goes = 1
        with pytest.raises((CallFailedError, OSError)):
            await call(path, PATH, b"", WAIT_S)


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
