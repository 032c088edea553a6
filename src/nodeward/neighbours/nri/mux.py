"""NRI's multiplexer: several connections in one socket, each frame `be32 connection | be32 length | payload`.

Exists because NRI lets runtime and plugin call one another over one socket. Promises: any chunking of the same bytes
gives the same frames; at most one frame is held back; a length above the bound is a WireError before its payload is
stored. After a WireError the decoder stays failed: there is no way to find the next frame. Must not look into payloads.
"""

from dataclasses import dataclass
from struct import Struct

from nodeward.core.errors import WireError

PLUGIN_SERVICE = 1
"""The runtime calls, the plugin serves."""
RUNTIME_SERVICE = 2
"""The plugin calls, the runtime serves."""

MAX_READ_BYTES = (16 << 20) + 10
"""The longest frame any NRI sends: before 0.7 a message was one frame of up to 16 MiB."""
MAX_WRITE_BYTES = (4 << 20) + 10
"""Where NRI since 0.7, and this writer, begin another frame."""
FIRST_FRAME_BYTES = 4096
"""The Go side reads the frame that begins a message into a buffer of this size; longer ones cost the connection."""

_HEADER = Struct(">II")


@dataclass(frozen=True, slots=True)
class MuxFrame:
    """Some bytes of one connection."""

    connection: int
    payload: bytes


class MuxDecoder:
    """Bytes to frames, incrementally."""

    __slots__ = ("_buffer", "_failed")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._failed: WireError | None = None

    @property
    def buffered_bytes(self) -> int:
        """What is held of an unfinished frame."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[MuxFrame]:
        """The frames that `data` completes."""
        if self._failed is not None:
            raise self._failed
        buffer = self._buffer
        if not buffer and len(data) >= _HEADER.size:  # most often one whole frame: no need to gather it
            connection, length = _HEADER.unpack_from(data)
            if length == len(data) - _HEADER.size and length <= MAX_READ_BYTES:
                return [MuxFrame(connection, data[_HEADER.size :])]
        buffer += data
        frames: list[MuxFrame] = []
        start = 0
        while len(buffer) - start >= _HEADER.size:
            connection, length = _HEADER.unpack_from(buffer, start)
            if length > MAX_READ_BYTES:
                buffer.clear()
                self._failed = WireError("nri_mux", f"frame of {length} bytes, at most {MAX_READ_BYTES} are read")
                raise self._failed
            end = start + _HEADER.size + length
            if end > len(buffer):
                break
            frames.append(MuxFrame(connection, bytes(buffer[start + _HEADER.size : end])))
            start = end
        del buffer[:start]
        return frames


def encode_message(connection: int, message: bytes) -> bytes:
    """One ttrpc message as frames that every NRI can read: at most 4096 bytes first, the rest as few as possible."""
    if len(message) <= FIRST_FRAME_BYTES:
        return _HEADER.pack(connection, len(message)) + message
    rest = [message[at : at + MAX_WRITE_BYTES] for at in range(FIRST_FRAME_BYTES, len(message), MAX_WRITE_BYTES)]
    parts: list[bytes] = []
    for payload in (message[:FIRST_FRAME_BYTES], *rest):
        parts += (_HEADER.pack(connection, len(payload)), payload)
    return b"".join(parts)
