"""gRPC's framing inside HTTP/2's DATA: `u8 compressed | be32 length`, then that many bytes; and its special headers.

Exists because the relay looks into calls without speaking gRPC. Promises: any chunking of the same bytes gives the same
messages; of a message that is longer than allowed its head is kept and no more; nothing is decompressed beyond a
limit. Must not know what a message says.
"""

import re
import zlib
from collections.abc import Callable
from typing import Final

from nodeward.core.errors import WireError

PREFIX_BYTES: Final = 5
MAX_TEXT_BYTES: Final = 64 * 1024
"""What a header block may have at most; of a longer text so much is shown."""
PIECE_BYTES: Final = 16 * 1024
"""So much of a compressed message is read, and so much is made of it, at a time."""
STATUSES: Final = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
"""gRPC's statuses by their numbers."""
_FORMAT: Final = "grpc"
_UNITS_NS: Final = {b"H": 3_600 * 10**9, b"M": 60 * 10**9, b"S": 10**9, b"m": 10**6, b"u": 10**3, b"n": 1}
_ENCODED: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_PLAIN: Final = frozenset(range(0x20, 0x7F)) - {0x25}

MESSAGE_BYTES: Final = 16 << 20
"""The longest message that is copied, and the longest that is held."""
VIEWED_BYTES: Final = 4096
"""A shorter piece of a message is copied."""
Piece = bytes | memoryview
Pieces = tuple[bool, tuple[Piece, ...], int]
Take = Callable[[int], int]
"""Asks for so many bytes of memory; says how many there are. Asked with a negative count, it takes them back."""


class MessageReader:
    """The DATA of one direction of a call to messages: (compressed, payload or its head in pieces, whole size).

    Of what it is fed a long piece is kept as a view, and all that was fed with it: that counts as the memory taken."""

    __slots__ = (
        "_compressed",
        "_have",
        "_head",
        "_keep",
        "_left",
        "_limit_bytes",
        "_parts",
        "_seen",
        "_size",
        "_take",
        "_taken",
        "_view",
    )

    def __init__(self, limit_bytes: int, take: Take) -> None:
        self._limit_bytes = limit_bytes
        self._take = take
        self._head = b""
        self._left = -1
        self._size = 0
        self._keep = 0
        self._have = self._taken = 0
        self._compressed = False
        self._parts: list[Piece] = []
        self._seen: bytes | None = None
        self._view = memoryview(b"")

    @property
    def unfinished(self) -> bool:
        """Whether a message has begun and not ended."""
        return self._left >= 0 or bool(self._head)

    def goes_on(self, data: bytes, at: int, end: int) -> bool:
        """Takes what lies there if it is what most of a long message is: neither its beginning nor its end, and of
        bytes that are kept anyway. Whether it is; `feed` takes all else."""
        size = end - at
        if data is not self._seen or not VIEWED_BYTES <= size < self._left or self._have + size > self._keep:
            return False
        self._parts.append(self._view[at:end])
        self._have += size
        self._left -= size
        return True

    def feed(self, data: bytes, at: int = 0, end: int | None = None) -> list[Pieces]:
        """The messages that end in `data`, or in what lies from `at` to `end` in it."""
        end = len(data) if end is None else end
        done: list[Pieces] = []
        while at < end:
            if self._left < 0:
                at = self._begin(data, at, end)
                if self._left < 0:
                    break
            at = self._more(data, at, end)
            if self._left == 0:
                done.append((self._compressed, tuple(self._parts), self._size))
                self.drop()
        return done

    def drop(self) -> None:
        """Forgets the message that has begun, and gives back its memory."""
        if self._taken:
            self._take(-self._taken)
        self._left, self._have, self._taken, self._parts, self._seen = -1, 0, 0, [], None
        self._view = memoryview(b"")

    def _begin(self, data: bytes, at: int, end: int) -> int:
        """Reads the prefix, or as much of it as there is."""
        missing = PREFIX_BYTES - len(self._head)
        head = self._head + data[at : min(at + missing, end)]
        if len(head) < PREFIX_BYTES:
            self._head = head
            return end
        self._head = b""
        self._compressed = head[0] != 0
        self._left = self._size = int.from_bytes(head[1:], "big")
        self._keep = min(self._size, self._limit_bytes)
        return at + missing

    def _more(self, data: bytes, at: int, end: int) -> int:
        """Takes what belongs to the message, and keeps what fits."""
        taken = min(self._left, end - at)
        kept = min(taken, self._keep - self._have)
        if kept > 0:
            if kept < VIEWED_BYTES or not self._sees(data):
                granted = self._take(kept)
                self._taken += granted
                if granted < kept:
                    self._keep = self._have + granted  # the rest of this message is cut
                    kept = granted
                piece: Piece = data[at : at + kept]
            else:
                piece = self._view[at : at + kept]
            if kept:
                self._parts.append(piece)
                self._have += kept
        self._left -= taken
        return at + taken

    def _sees(self, data: bytes) -> bool:
        """Whether there is memory for all of it, so that it may be kept."""
        if data is not self._seen:
            granted = self._take(len(data))
            if granted < len(data):
                self._take(-granted)
                return False
            self._seen, self._view = data, memoryview(data)
            self._taken += granted
        return True


def encode_message(payload: bytes, compressed: bool = False) -> bytes:
    """A message with its prefix."""
    return bytes((compressed,)) + len(payload).to_bytes(4, "big") + payload


def timeout_ns(value: bytes) -> int | None:
    """What a grpc-timeout header says, None where it says nothing that can be read."""
    digits, unit = value[:-1], _UNITS_NS.get(value[-1:])
    if unit is None or not digits.isdigit() or len(digits) > 8:
        return None
    return int(digits) * unit


def encode_text(text: str) -> bytes:
    """A grpc-message header: UTF-8, percent-encoded outside printable ASCII."""
    return b"".join(bytes((one,)) if one in _PLAIN else b"%%%02X" % one for one in text.encode("utf-8", "replace"))


def decode_text(value: bytes) -> str:
    """What a grpc-message header says; what is encoded wrongly is shown as it is."""
    value = value[:MAX_TEXT_BYTES]
    if b"%" in value:
        value = _ENCODED.sub(lambda found: bytes((int(found[1], 16),)), value)
    return value.decode("utf-8", "replace")


def gunzip(data: bytes | memoryview, limit_bytes: int) -> bytes:
    """The decompressed message; WireError where it is no gzip, not whole, or longer than the limit.

    It is made in pieces, so that there is at most twice what comes out, however zlib grows its buffers.
    """
    reader, given, at = zlib.decompressobj(wbits=31), memoryview(data), 0
    parts, left = list[bytes](), limit_bytes + 1
    try:
        while left and at < len(given) and not reader.eof:
            piece: bytes | memoryview = given[at : at + PIECE_BYTES]
            at, more = at + PIECE_BYTES, True
            while more:
                most = min(left, PIECE_BYTES)
                parts.append(reader.decompress(piece, most))
                left -= len(parts[-1])
                piece = reader.unconsumed_tail
                more = left > 0 and not reader.eof and (len(piece) > 0 or len(parts[-1]) == most)
    except zlib.error as error:
        raise WireError(_FORMAT, f"a message that is said to be gzip and is not: {error}") from error
    if not left:
        raise WireError(_FORMAT, f"a message of more than {limit_bytes} bytes when decompressed")
    if not reader.eof:
        raise WireError(_FORMAT, "a gzip message that is cut off")
    return b"".join(parts)
