"""The frames by which a relay passes raw messages to the writer of its dump.

A frame is `be32 length | kind | be64 number | be64 time | flags | be32 size | be32 status | be16 length, path`, and the
payload. The stream lives between two processes of one version, so it carries no version of its own.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from nodeward.core.errors import WireError

MAX_PAYLOAD = 64 * 1024 * 1024
MAX_PATH = 4096
_HEAD = struct.Struct(">IBQqBIIH")
HEAD_BYTES = _HEAD.size
_AFTER_LENGTH = _HEAD.size - 4


class FrameKind(IntEnum):
    """The kind of a frame."""

    REQUEST = 1
    RESPONSE = 2
    ENDED = 3
    """The payload is the status's text."""
    LOST = 4
    """`size` messages had no room; the number of a call and the path are empty."""
    UNSEEN = 5
    """The connection of this number cannot be followed any more; the payload says why, and the path is empty."""


HELD, COMPRESSED, FULL, ANSWERED, NO_STATUS = 1, 2, 4, 8, 16
"""Flags. FULL: the messages of this call are shown, too. ANSWERED: at least one response was told. NO_STATUS: the call
ended without gRPC's."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. `time_ns` is the latency since the call began; of a request, a loss or a connection it is wall time.
    `size` is the whole message's, where the payload was cut; `status` is gRPC's."""

    kind: FrameKind
    number: int
    time_ns: int
    flags: int
    path: str
    payload: bytes
    size: int = 0
    status: int = 0


Told = tuple[int, int, int, int, bytes, tuple[bytes | memoryview, ...], int, int]
"""A frame as the relay keeps it until it has time: Frame's fields in their order, path encoded, payload in pieces and
size given."""


def encode(frame: Frame) -> tuple[bytes, bytes]:
    """Head and payload: the payload is not copied."""
    path = frame.path.encode("utf-8", "replace")[:MAX_PATH]
    size = frame.size or len(frame.payload)
    told = (frame.kind, frame.number, frame.time_ns, frame.flags, path, (frame.payload,), size, frame.status)
    return b"".join(head(told)), frame.payload


def head(told: Told) -> tuple[bytes, bytes]:
    """What goes before the payload, in two pieces."""
    kind, number, time_ns, flags, path, pieces, size, status = told
    length = _AFTER_LENGTH + len(path) + sum(map(len, pieces))
    return _HEAD.pack(length, kind, number, time_ns, flags, size, status, len(path)), path


class FrameReader:
    """Frames out of a stream, whatever its chunks."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are whole by now. Raises WireError where the stream is none of ours."""
        self._bytes += data
        at = 0
        while len(self._bytes) - at >= _HEAD.size:
            length, kind, number, time_ns, flags, size, status, path_bytes = _HEAD.unpack_from(self._bytes, at)
            if not _AFTER_LENGTH + path_bytes <= length <= MAX_PAYLOAD + MAX_PATH + _AFTER_LENGTH:
                raise WireError("dump feed", f"a frame of {length} bytes with a path of {path_bytes}")
            if len(self._bytes) - at < 4 + length:
                break
            begin, end = at + _HEAD.size, at + 4 + length
            path = self._bytes[begin : begin + path_bytes].decode("utf-8", "replace")
            payload = bytes(self._bytes[begin + path_bytes : end])
            at = end
            yield Frame(_kind(kind), number, time_ns, flags, path, payload, size, status)
        del self._bytes[:at]


def _kind(number: int) -> FrameKind:
    try:
        return FrameKind(number)
    except ValueError as error:
        raise WireError("dump feed", f"a frame of kind {number}") from error
