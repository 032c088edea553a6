"""Given bytes of NRI's multiplexer and of ttrpc, in whatever pieces, the same frames and messages come out."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.wire import nri_mux, ttrpc
from nodeward.wire.errors import WireError
from nodeward.wire.nri_mux import MuxDecoder, MuxFrame
from nodeward.wire.ttrpc import Kind, Message, MessageDecoder
from tests.unit.wire import mutator

U32 = st.integers(0, 2**32 - 1)
MESSAGES = st.builds(Message, U32, st.sampled_from(Kind), st.integers(0, 255), st.binary(max_size=200))


def cut(data: bytes, places: list[int]) -> list[bytes]:
    return mutator.chunks(data, sorted(place % (len(data) + 1) for place in places))


def raw_frame(connection: int, payload: bytes) -> bytes:
    return connection.to_bytes(4, "big") + len(payload).to_bytes(4, "big") + payload


@given(st.lists(st.builds(MuxFrame, U32, st.binary(max_size=100))), st.lists(st.integers(0)))
def test_any_chunking_gives_the_same_frames(frames: list[MuxFrame], places: list[int]) -> None:
    decoder = MuxDecoder()
    data = b"".join(raw_frame(frame.connection, frame.payload) for frame in frames)
    assert [frame for chunk in cut(data, places) for frame in decoder.feed(chunk)] == frames
    assert decoder.buffered_bytes == 0


@given(st.lists(MESSAGES), st.lists(st.integers(0)))
def test_any_chunking_gives_the_same_messages(messages: list[Message], places: list[int]) -> None:
    decoder = MessageDecoder()
    data = b"".join(map(ttrpc.encode, messages))
    assert [message for chunk in cut(data, places) for message in decoder.feed(chunk)] == messages
    assert decoder.buffered_bytes == 0


@given(st.text(max_size=50), st.text(max_size=50), st.binary(max_size=100), st.integers(0, 2**63 - 1))
def test_a_request_survives_the_round_trip(service: str, method: str, payload: bytes, timeout_ns: int) -> None:
    request = ttrpc.Request(service, method, payload, timeout_ns)
    assert ttrpc.decode_request(ttrpc.encode_request(request)) == request


@given(st.binary(max_size=100) | st.builds(ttrpc.Status, st.integers(1, 16), st.text(max_size=50)))
def test_a_reply_survives_the_round_trip(reply: bytes | ttrpc.Status) -> None:
    assert ttrpc.decode_response(ttrpc.encode_response(reply)) == reply


def test_success_without_content_is_no_bytes() -> None:
    assert ttrpc.encode_response(b"") == b""


@pytest.mark.parametrize(
    ("length", "frames"),
    [
        pytest.param(0, [0], id="an empty message is one empty frame"),
        pytest.param(4096, [4096], id="what fits Go's buffer is one frame"),
        pytest.param(4097, [4096, 1], id="one byte more is a second frame"),
        pytest.param((4 << 20) + 10, [4096, (4 << 20) + 10 - 4096], id="the longest message is two frames"),
        pytest.param((4 << 20) + 4107, [4096, (4 << 20) + 10, 1], id="the writer splits at 4 MiB + 10"),
    ],
)
def test_the_first_frame_of_a_message_fits_the_buffer_of_the_go_side(length: int, frames: list[int]) -> None:
    message = bytes(length)
    decoded = MuxDecoder().feed(nri_mux.encode_message(1, message))
    assert [len(frame.payload) for frame in decoded] == frames
    assert b"".join(frame.payload for frame in decoded) == message


@pytest.mark.parametrize(
    ("feed", "data"),
    [
        pytest.param(MuxDecoder().feed, b"\0\0\0\1\xff\xff\xff\xff", id="mux frame of 4 GiB"),
        pytest.param(MessageDecoder().feed, b"\0\x40\0\1" + b"\0\0\0\1\1\0", id="message of 4 MiB and a byte"),
        pytest.param(MessageDecoder().feed, b"\0\0\0\0" + b"\0\0\0\1\4\0", id="kind 4"),
        pytest.param(MessageDecoder().feed, b"\0\0\0\0" + b"\0\0\0\1\0\0", id="kind 0"),
    ],
)
def test_a_bad_header_is_an_error_and_stays_one(feed: Callable[[bytes], object], data: bytes) -> None:
    for again in (data, b""):
        with pytest.raises(WireError):
            feed(again)


def test_a_message_nobody_would_read_is_not_sent() -> None:
    with pytest.raises(WireError):
        ttrpc.encode(Message(1, Kind.REQUEST, 0, bytes(ttrpc.MAX_PAYLOAD_BYTES + 1)))
