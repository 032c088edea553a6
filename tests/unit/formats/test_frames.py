"""Frames of HTTP/2, gRPC, NRI and ttrpc: any pieces give the same, bounds hold, and what is wrong is a WireError."""

import gzip
import itertools
import struct
import tracemalloc
from collections.abc import Callable
from unittest import mock

import pytest
from hpack import Decoder, Encoder, HPACKError, NeverIndexedHeaderTuple
from hpack.hpack import encode_integer
from hypothesis import given
from hypothesis import strategies as st

from nodeward.core.errors import WireError
from nodeward.neighbours.formats import grpc_messages, header_blocks
from nodeward.neighbours.formats import http2_frames as h2
from nodeward.neighbours.formats.grpc_messages import MessageReader
from nodeward.neighbours.formats.header_blocks import ShadowDecoder, encode_literals
from nodeward.neighbours.nri import mux, ttrpc
from nodeward.neighbours.nri.mux import MuxDecoder, MuxFrame
from nodeward.neighbours.nri.ttrpc import Message, MessageDecoder, MessageType

FRAMES = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 255), st.integers(0, h2.MAX_STREAM), st.binary(max_size=60)),
    max_size=8,
)
HEADERS = st.lists(st.tuples(st.binary(min_size=1, max_size=20), st.binary(max_size=200)), max_size=6)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


@given(FRAMES, st.lists(st.integers(0, 10_000), max_size=6), st.booleans())
def test_any_pieces_give_the_same_frames_and_every_byte_once(
    sent: list[tuple[int, int, int, bytes]], cuts: list[int], preface: bool
) -> None:
    data = (h2.PREFACE if preface else b"") + b"".join(itertools.starmap(h2.encode, sent))
    reader, seen, passed = h2.FrameReader(preface), [], b""
    for piece in pieces(data, cuts):
        whole, end, frames = reader.feed(piece)
        passed += whole[:end]
        seen += [(kind, flags, stream, whole[at + 9 : stop]) for at, stop, kind, flags, stream in frames]
    assert seen == sent
    assert passed + reader.unread == data
    assert reader.unread == b"" or data == h2.PREFACE[: len(data)]


def test_a_frame_is_as_long_as_its_receiver_has_ever_allowed() -> None:
    reader = h2.FrameReader(preface=False)
    long = h2.encode(h2.DATA, 0, 1, bytes(20_000))
    reader.allow(20_000)
    reader.allow(16_384)
    assert len(reader.feed(long)[2]) == 1
    with pytest.raises(WireError, match="20001 bytes, where its receiver allows 20000"):
        reader.feed(h2.encode(h2.DATA, 0, 1, bytes(20_001)))


def test_the_reserved_bit_before_a_stream_and_a_window_says_nothing() -> None:
    reserved = 1 << 31
    data = h2.encode_window_update(reserved | 3, reserved | 5)
    [frame] = h2.FrameReader(preface=False).feed(data)[2]
    goaway = h2.encode_goaway(reserved | 7, h2.NO_ERROR)
    assert (frame[4], h2.increment(data, frame)) == (3, 5)
    assert h2.last_stream(goaway, (0, len(goaway), h2.GOAWAY, 0, 0)) == 7


@pytest.mark.parametrize(
    ("kind", "flags", "payload", "content"),
    [
        pytest.param(h2.DATA, 0, b"abc", b"abc", id="data"),
        pytest.param(h2.DATA, h2.PADDED, b"\2abc\0\0", b"abc", id="padded"),
        pytest.param(h2.DATA, h2.PADDED, b"\0", b"", id="padded with nothing"),
        pytest.param(h2.HEADERS, h2.WITH_PRIORITY, b"12345abc", b"abc", id="priority"),
        pytest.param(h2.HEADERS, h2.WITH_PRIORITY | h2.PADDED, b"\x0112345abc\0", b"abc", id="both"),
        pytest.param(h2.DATA, h2.WITH_PRIORITY, b"12345abc", b"12345abc", id="data has no priority"),
        pytest.param(h2.DATA, h2.PADDED, b"", None, id="no length of padding"),
        pytest.param(h2.DATA, h2.PADDED, b"\4abc", None, id="padding longer than the frame"),
        pytest.param(h2.HEADERS, h2.WITH_PRIORITY, b"1234", None, id="half a priority"),
    ],
)
def test_content_is_without_padding_and_priority(kind: int, flags: int, payload: bytes, content: bytes | None) -> None:
    data = h2.encode(kind, flags, 1, payload)
    frame = (0, len(data), kind, flags, 1)
    if content is None:
        with pytest.raises(WireError):
            h2.content(data, frame)
    else:
        begin, end = h2.content(data, frame)
        assert data[begin:end] == content


@given(HEADERS, st.integers(1, 50))
def test_a_block_in_pieces_is_the_block_and_literals_leave_a_decoder_as_it_was(
    headers: list[tuple[bytes, bytes]], most: int
) -> None:
    block = encode_literals(headers)
    data = h2.encode_headers(5, block, h2.END_STREAM, most)
    blocks, out = h2.BlockReader(1 << 20), None
    whole, _, frames = h2.FrameReader(preface=False).feed(data)
    for frame in frames:
        assert out is None
        out = blocks.take(whole, frame)
    assert out == (h2.END_STREAM | h2.END_HEADERS, block, data)
    decoder = Decoder()
    decoder.decode(Encoder().encode([(b"x", b"y")]))
    before = list(decoder.header_table.dynamic_entries)
    assert [tuple(header) for header in decoder.decode(block, raw=True)] == headers
    assert list(decoder.header_table.dynamic_entries) == before
    decoder.decode(header_blocks.SHRINK_TO_NOTHING + block, raw=True)
    assert not decoder.header_table.dynamic_entries


def test_what_must_never_be_indexed_stays_so() -> None:
    [header] = Decoder().decode(encode_literals([NeverIndexedHeaderTuple(b"authorization", b"s" * 300)]), raw=True)
    assert isinstance(header, NeverIndexedHeaderTuple)


@given(st.lists(st.tuples(HEADERS, st.sampled_from([None, 0, 50, 4096, 10_000])), max_size=8))
def test_a_shadow_decoder_decodes_as_its_receiver(blocks: list[tuple[list[tuple[bytes, bytes]], int | None]]) -> None:
    encoder, shadow = Encoder(), ShadowDecoder()
    for headers, size in blocks:
        if size is not None:
            shadow.allowed(size)
            shadow.acknowledged()
            if size != encoder.header_table_size:
                encoder.header_table_size = size
        for _ in range(3):  # the third block of the same headers is the second's: it is remembered
            assert [tuple(one) for one in shadow.decode(bytes(encoder.encode(headers)))] == headers


FIELDS = st.one_of(st.integers(0x80, 0xFF).map(lambda byte: bytes((byte,))), st.just(b"\x82"))
LITERALS = st.builds(
    lambda name, coded, value: bytes((0x40 | name, coded << 7 | len(value))) + value,
    *(
        st.integers(0, 0x3F),
        st.integers(0, 1),
        st.one_of(st.binary(max_size=4), st.sampled_from([b"\x08\x3f", bytes(126)])),
    ),
)
TEXT = st.builds(lambda coded, text: bytes((coded << 7 | len(text),)) + text, st.integers(0, 1), st.binary(max_size=3))
NEW_NAMES = st.builds(lambda name, value: b"\x40" + name + value, TEXT, TEXT)
FAR = st.builds(lambda first, rest: bytes((first, rest)), st.sampled_from([0x7F, 0xFF]), st.integers(0, 0xFF))
ENDS = st.one_of(st.lists(LITERALS, max_size=2), st.lists(st.one_of(FIELDS, LITERALS, NEW_NAMES, FAR), max_size=18))


@given(st.lists(st.tuples(st.lists(FIELDS, max_size=18), ENDS), max_size=12))
def test_blocks_of_indexes_and_short_literals_do_to_the_table_what_they_do_at_the_receiver(
    blocks: list[tuple[list[bytes], list[bytes]]],
) -> None:
    """As requests do that carry a deadline, which is a new entry of the table each time."""
    receiver, shadow = Decoder(header_blocks.MAX_BLOCK_BYTES), ShadowDecoder()
    for fields, ends in blocks:
        block = b"".join((*fields, *ends))
        try:
            said = [tuple(one) for one in receiver.decode(block, raw=True)]
        except (HPACKError, IndexError):
            with pytest.raises(WireError):
                shadow.decode(block)
            return
        assert [tuple(one) for one in shadow.decode(block)] == said
        assert shadow._decoder.header_table.dynamic_entries == receiver.header_table.dynamic_entries


def test_a_table_that_is_all_new_after_a_block_is_not_taken_for_the_one_before() -> None:
    """A table of one entry; the last one of each block may come to lie where that of the block before was."""
    encoder, shadow = Encoder(), ShadowDecoder()
    encoder.header_table_size = 50
    for number in range(8):
        shadow.decode(bytes(encoder.encode([(b"a", b"%d" % number), (b"b", b"%d" % number)])))
        assert [tuple(one) for one in shadow.decode(b"\xbe")] == [(b"b", b"%d" % number)]


def test_a_larger_table_may_be_used_at_once_and_a_smaller_one_once_it_is_acknowledged() -> None:
    shadow = ShadowDecoder()
    shadow.allowed(8192)
    shadow.decode(b"\x3f\xe1\x3f")  # the table is 8192 bytes from now on
    shadow.allowed(100)
    shadow.allowed(None)
    shadow.acknowledged()
    shadow.decode(b"\x3f\xe1\x3f")
    shadow.acknowledged()
    assert shadow.shrink() == b"\x3f\x45", "100, said between the sender's blocks"
    assert shadow.shrink() == b""
    with pytest.raises(WireError):
        shadow.decode(b"\x3f\xe1\x3f")


def test_a_sender_may_use_a_larger_table_just_before_it_acknowledges() -> None:
    shadow = ShadowDecoder()
    shadow.allowed(100)
    shadow.allowed(8192)
    shadow.acknowledged()
    shadow.decode(b"\x3f\x45\x3f\xe1\x3f")


def test_tables_and_settings_under_way_are_bounded() -> None:
    shadow = ShadowDecoder()
    shadow.allowed(2**32 - 1)
    with pytest.raises(WireError, match="max allowable table size"):
        shadow.decode(b"\x3f" + encode_integer(header_blocks.MAX_TABLE_BYTES + 1, 5)[1:])
    for _ in range(header_blocks.MAX_SETTINGS_UNDER_WAY - 1):
        shadow.allowed(None)
    with pytest.raises(WireError, match="nobody acknowledges"):
        shadow.allowed(None)


@given(
    st.lists(st.integers(0, 60), max_size=6).map(lambda sizes: [bytes(range(size)) for size in sizes]),
    st.lists(st.integers(0, 500), max_size=3),
    st.lists(st.integers(0, 500), min_size=2, max_size=20),
    st.integers(0, 70),
    st.sampled_from([3, grpc_messages.VIEWED_BYTES]),
)
def test_any_pieces_give_the_same_messages_cut_at_the_limit_though_the_middle_of_a_long_one_is_not_looked_at(
    payloads: list[bytes], reads: list[int], frames: list[int], limit: int, viewed: int
) -> None:
    """As the relay does with frames of DATA that came in one read."""
    budget = 0

    def take(count: int) -> int:
        nonlocal budget
        budget += count
        return count

    with mock.patch.object(grpc_messages, "VIEWED_BYTES", viewed):
        reader, seen = MessageReader(limit, take), []
        for read in pieces(b"".join(map(grpc_messages.encode_message, payloads)), reads):
            at = 0
            for frame in pieces(read, frames):
                if not reader.goes_on(read, at, at + len(frame)):
                    messages = reader.feed(read, at, at + len(frame))
                    seen += [(compressed, b"".join(came), size) for compressed, came, size in messages]
                at += len(frame)
    assert seen == [(False, payload[:limit], len(payload)) for payload in payloads]
    assert budget == 0


@pytest.mark.parametrize(
    ("value", "nanoseconds"),
    [(b"1H", 3600 * 10**9), (b"2M", 120 * 10**9), (b"3S", 3 * 10**9), (b"4m", 4 * 10**6), (b"5u", 5000), (b"6n", 6)]
    + [(value, None) for value in (b"", b"S", b"1", b"-1S", b"1.5S", b"123456789S", b"1s", b"\xb2S")],
)
def test_timeouts(value: bytes, nanoseconds: int | None) -> None:
    assert grpc_messages.timeout_ns(value) == nanoseconds


@given(st.text())
def test_texts_survive_and_are_printable(text: str) -> None:
    encoded = grpc_messages.encode_text(text)
    assert all(0x20 <= one <= 0x7E for one in encoded)
    assert grpc_messages.decode_text(encoded) == text


def test_a_text_that_is_encoded_wrongly_is_shown() -> None:
    assert grpc_messages.decode_text(b"100% of %zz %") == "100% of %zz %"


def test_gzip_is_bounded_and_whole() -> None:
    assert grpc_messages.gunzip(gzip.compress(b"a" * 1000), 1000) == b"a" * 1000
    for data, fault in (
        (gzip.compress(b"a" * 1001), "more than 1000"),
        (gzip.compress(b"a" * 10)[:-3], "cut off"),
        (b"plain", "is not"),
    ):
        with pytest.raises(WireError, match=fault):
            grpc_messages.gunzip(data, 1000)


def test_blocks_are_remembered_by_their_number_and_by_their_length() -> None:
    tracemalloc.start()
    try:
        decoder = ShadowDecoder()
        before, _ = tracemalloc.get_traced_memory()
        for number in range(64):
            decoder.decode(encode_literals(((b"x-long", b"%02d" % number + b"x" * 60_000),)))
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 100_000


U32 = st.integers(0, 2**32 - 1)
MESSAGES = st.builds(Message, U32, st.sampled_from(MessageType), st.integers(0, 255), st.binary(max_size=200))


@given(st.lists(st.builds(MuxFrame, U32, st.binary(max_size=100))), st.lists(st.integers(0)))
def test_any_chunking_gives_the_same_frames(frames: list[MuxFrame], places: list[int]) -> None:
    decoder = MuxDecoder()
    data = b"".join(struct.pack(">II", frame.connection, len(frame.payload)) + frame.payload for frame in frames)
    assert [frame for chunk in pieces(data, places) for frame in decoder.feed(chunk)] == frames
    assert decoder.buffered_bytes == 0


@given(st.lists(MESSAGES), st.lists(st.integers(0)))
def test_any_chunking_gives_the_same_messages(messages: list[Message], places: list[int]) -> None:
    decoder = MessageDecoder()
    data = b"".join(map(ttrpc.encode, messages))
    assert [message for chunk in pieces(data, places) for message in decoder.feed(chunk)] == messages
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
    decoded = MuxDecoder().feed(mux.encode_message(1, message))
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
        ttrpc.encode(Message(1, MessageType.REQUEST, 0, bytes(ttrpc.MAX_PAYLOAD_BYTES + 1)))


def test_a_smaller_table_is_told_between_the_senders_blocks_though_a_larger_one_follows() -> None:
    """The receiver holds to the smaller one until the larger one is acknowledged as well."""
    shadow = ShadowDecoder()
    shadow.decode(b"\x3f\x1d")  # the table is 60 bytes from now on
    shadow.allowed(0)
    shadow.allowed(60)
    shadow.acknowledged()
    assert shadow.shrink() == b"\x20"
    assert shadow.shrink() == b""
    shadow.decode(b"\x20\x3f\x1d")
    shadow.acknowledged()
    assert shadow.shrink() == b""
