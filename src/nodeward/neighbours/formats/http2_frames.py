"""HTTP/2 frames (RFC 9113, section 4 and 6), as far as a relay has to understand those that it passes on.

Exists because a library that speaks HTTP/2 owns the connection, and the relay owns none: it forwards the bytes of
others and looks at some. Promises: any chunking of the same bytes gives the same frames; a reader keeps no more than
one frame that is not complete, and none longer than its receiver has allowed; what is no frame is a WireError. Must
not know what a stream is for. Whether a frame is right at its time is for the two ends to judge.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from nodeward.core.errors import WireError

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_BYTES: Final = 9
MAX_STREAM: Final = 2**31 - 1
MAX_WINDOW: Final = 2**31 - 1
DEFAULT_WINDOW: Final = 65_535
DEFAULT_FRAME_BYTES: Final = 16_384
LARGEST_FRAME_BYTES: Final = 2**24 - 1

# Plain integers: asking an enum costs as much as all the rest of a frame's header.
DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
WITH_PRIORITY: Final = 0x20

SETTING_HEADER_TABLE_SIZE: Final = 1
SETTING_INITIAL_WINDOW_SIZE: Final = 4
SETTING_MAX_FRAME_SIZE: Final = 5

NO_ERROR: Final = 0x0
PROTOCOL_ERROR: Final = 0x1
FLOW_CONTROL_ERROR: Final = 0x3
FRAME_SIZE_ERROR: Final = 0x6
CANCEL: Final = 0x8
COMPRESSION_ERROR: Final = 0x9
ENHANCE_YOUR_CALM: Final = 0xB

_FORMAT: Final = "http2"
_HEAD: Final = Struct(">HBBBI")
_SETTING: Final = Struct(">HI")
_PAIR: Final = Struct(">II")

Frame = tuple[int, int, int, int, int]
"""Where a frame begins and ends in the bytes that it came in, its type, flags and stream. A tuple, since a relay makes
six of them for each call."""


class FrameReader:
    """Bytes of one direction to frames, incrementally.

    `feed` gives the bytes that hold whole frames, and the frames in them; what is left waits for the next bytes."""

    __slots__ = ("_kept", "_longest", "_preface", "_want")

    def __init__(self, preface: bool) -> None:
        self._longest = DEFAULT_FRAME_BYTES
        self._kept = bytearray()
        self._want = 0
        self._preface = preface

    def allow(self, frame_bytes: int) -> None:
        """The receiver takes frames as long as this. A shorter limit changes nothing: long ones may be on their way."""
        self._longest = max(self._longest, min(frame_bytes, LARGEST_FRAME_BYTES))

    def feed(self, data: bytes) -> tuple[bytes, int, list[Frame]]:
        """Bytes, where the frames in them end, and the frames. A client's preface stands before the first one."""
        if self._kept:
            if len(self._kept) + len(data) < self._want:
                self._kept += data
                return b"", 0, []
            data = b"".join((self._kept, data))
            self._kept.clear()
        return self._read(data)

    @property
    def unread(self) -> bytes:
        """The beginning of a frame that is not whole yet."""
        return bytes(self._kept)

    def _read(self, data: bytes) -> tuple[bytes, int, list[Frame]]:
        at = 0
        if self._preface:
            if len(data) < len(PREFACE):
                if not PREFACE.startswith(data):
                    raise WireError(_FORMAT, "the client does not begin with HTTP/2's preface")
                return self._keep(data, 0, len(PREFACE), [])
            if not data.startswith(PREFACE):
                raise WireError(_FORMAT, "the client does not begin with HTTP/2's preface")
            self._preface = False
            at = len(PREFACE)
        return self._frames(data, at)

    def _frames(self, data: bytes, at: int) -> tuple[bytes, int, list[Frame]]:
        frames: list[Frame] = []
        size, longest, unpack = len(data), self._longest, _HEAD.unpack_from
        while size - at >= HEADER_BYTES:
            high, low, kind, flags, stream = unpack(data, at)
            length = high << 8 | low
            if length > longest:
                raise WireError(_FORMAT, f"a frame of {length} bytes, where its receiver allows {longest}")
            end = at + HEADER_BYTES + length
            if end > size:
                return self._keep(data, at, end - at, frames)
            frames.append((at, end, kind, flags, stream & MAX_STREAM))
            at = end
        return self._keep(data, at, HEADER_BYTES, frames)

    def _keep(self, data: bytes, at: int, want: int, frames: list[Frame]) -> tuple[bytes, int, list[Frame]]:
        if at < len(data):
            self._kept += data[at:]
            self._want = want
        return data, at, frames


class BlockReader:
    """HEADERS and their CONTINUATIONs of one direction to whole header blocks, since nothing may come between them."""

    __slots__ = ("_flags", "_fragments", "_most", "_raw", "_size", "_stream", "open")

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._stream = 0
        self._flags = 0
        self._size = 0
        self._raw: list[bytes] = []
        self._fragments: list[bytes] = []
        self.open = False
        """Whether a block has begun that goes on in another frame."""

    def take(self, data: bytes, frame: Frame) -> tuple[int, bytes, bytes] | None:
        """The flags, the fragment and the frames of the block that ends with this frame; None where it goes on."""
        begin, end, kind, flags, stream = frame
        if kind == HEADERS:
            if self.open:
                raise WireError(_FORMAT, f"HEADERS inside the header block of stream {self._stream}")
            first, last = content(data, frame)
            if flags & END_HEADERS:
                return flags, data[first:last], data[begin:end]
            self._stream, self._flags, self._size = stream, flags, 0
        elif not self.open or stream != self._stream:
            raise WireError(_FORMAT, f"CONTINUATION of stream {stream}, whose header block is not open")
        else:
            first, last = begin + HEADER_BYTES, end
        self._size += end - begin
        if self._size > self._most:
            raise WireError(_FORMAT, f"a header block of more than {self._most} bytes")
        self._raw.append(data[begin:end])
        self._fragments.append(data[first:last])
        self.open = not flags & END_HEADERS
        if self.open:
            return None
        (raw, self._raw), (fragments, self._fragments) = (self._raw, []), (self._fragments, [])
        return self._flags | END_HEADERS, b"".join(fragments), b"".join(raw)

    def interrupted(self, frame: Frame) -> None:
        """Another frame came while the block is open."""
        raise WireError(_FORMAT, f"a frame of type {frame[2]} inside the header block of stream {self._stream}")


def content(data: bytes, frame: Frame) -> tuple[int, int]:
    """Begin and end of the data or the header fragment of a DATA or HEADERS frame: without padding and priority."""
    begin, end, kind, flags, _ = frame
    begin += HEADER_BYTES
    if flags & PADDED and kind in (DATA, HEADERS):
        if begin >= end:
            raise WireError(_FORMAT, "a padded frame without the length of its padding")
        end -= data[begin]
        begin += 1
    if flags & WITH_PRIORITY and kind == HEADERS:
        begin += 5
    if begin > end:
        raise WireError(_FORMAT, "a frame whose padding is longer than the frame")
    return begin, end


def settings(data: bytes, frame: Frame) -> Iterator[tuple[int, int]]:
    """The identifiers and values of a SETTINGS frame, in order: a later one of the same identifier holds."""
    begin, end, *_ = frame
    begin += HEADER_BYTES
    if (end - begin) % _SETTING.size:
        raise WireError(_FORMAT, f"SETTINGS of {end - begin} bytes")
    return (_SETTING.unpack_from(data, at) for at in range(begin, end, _SETTING.size))


def increment(data: bytes, frame: Frame) -> int:
    """How many bytes a WINDOW_UPDATE adds to its window."""
    begin, end, *_ = frame
    if end - begin != HEADER_BYTES + 4:
        raise WireError(_FORMAT, f"WINDOW_UPDATE of {end - begin - HEADER_BYTES} bytes")
    return int.from_bytes(data[begin + HEADER_BYTES : end], "big") & MAX_WINDOW


def reset_code(data: bytes, frame: Frame) -> int:
    """Why a RST_STREAM ends its stream."""
    begin, end, *_ = frame
    if end - begin != HEADER_BYTES + 4:
        raise WireError(_FORMAT, f"RST_STREAM of {end - begin - HEADER_BYTES} bytes")
    return int.from_bytes(data[begin + HEADER_BYTES : end], "big")


def last_stream(data: bytes, frame: Frame) -> int:
    """The last stream that the sender of a GOAWAY may still work on."""
    begin, end, *_ = frame
    if end - begin < HEADER_BYTES + 8:
        raise WireError(_FORMAT, f"GOAWAY of {end - begin - HEADER_BYTES} bytes")
    return int.from_bytes(data[begin + HEADER_BYTES : begin + HEADER_BYTES + 4], "big") & MAX_STREAM


def encode(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Any frame."""
    length = len(payload)
    return _HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream) + payload


def encode_window_update(stream: int, opened: int) -> bytes:
    """Opens a stream's window, or the connection's with stream 0."""
    return encode(WINDOW_UPDATE, 0, stream, opened.to_bytes(4, "big"))


def encode_reset(stream: int, code: int) -> bytes:
    """Ends a stream."""
    return encode(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def encode_goaway(last: int, code: int, text: bytes = b"") -> bytes:
    """Says that no stream after `last` was worked on."""
    return encode(GOAWAY, 0, 0, _PAIR.pack(last, code) + text)


def encode_settings(values: dict[int, int]) -> bytes:
    """SETTINGS of these values."""
    return encode(SETTINGS, 0, 0, b"".join(_SETTING.pack(key, value) for key, value in values.items()))


def encode_headers(stream: int, block: bytes, flags: int, most: int = DEFAULT_FRAME_BYTES) -> bytes:
    """A header block in one HEADERS frame and as many CONTINUATION frames as it needs."""
    pieces = [block[at : at + most] for at in range(0, len(block), most)] or [b""]
    frames = []
    for number, piece in enumerate(pieces):
        ends = END_HEADERS if number == len(pieces) - 1 else 0
        frames.append(encode(CONTINUATION if number else HEADERS, ends | (0 if number else flags), stream, piece))
    return b"".join(frames)
