"""Header blocks of HTTP/2 (HPACK, RFC 7541): decodes those of others, and encodes ours without state.

Exists because HPACK has state for each direction of a connection: who wants to know one header must decode every block
since the connection began, by the table size that the *receiver* of that direction allows. Promises: a block that is
the same as an earlier one costs a look-up while the table stands; memory is bounded; what is no block is a WireError,
after which the decoder must not be used. Must not know what a header means.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from hpack import Decoder, HPACKError, NeverIndexedHeaderTuple
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from nodeward.core.errors import WireError

MAX_BLOCK_BYTES: Final = 64 * 1024
"""A header block as sent, and as decoded (with HPACK's 32 bytes for each header)."""
MAX_TABLE_BYTES: Final = 64 * 1024
"""The largest table that is followed. Every known runtime and client says 4096; more is somebody's game with memory."""
DEFAULT_TABLE_BYTES: Final = 4096
MAX_REMEMBERED, MAX_REMEMBERED_BYTES = 64, 1024
"""So many blocks are remembered, and none that is longer: each of two directions of each connection has its own."""
MOST_FIELDS: Final = 14
"""So many fields of a table of DEFAULT_TABLE_BYTES, or short literals, are never more than MAX_BLOCK_BYTES."""
MAX_SETTINGS_UNDER_WAY: Final = 64
SHRINK_TO_NOTHING: Final = b"\x20"
"""Tells the decoder that the table is empty from now on: after it, a block of literals fits any connection."""

Headers = tuple[tuple[bytes, bytes], ...]
_STATIC: Final = HeaderTable.STATIC_TABLE
_FIRST_ADDED: Final = 0x81 + len(_STATIC)
"""The byte that names the latest entry that was added."""

_FORMAT: Final = "hpack"


class ShadowDecoder:
    """Decodes the header blocks of one direction of a connection that another process receives."""

    __slots__ = ("_decoder", "_first", "_known", "_least", "_sizes", "_state")

    def __init__(self) -> None:
        self._decoder = Decoder(MAX_BLOCK_BYTES)
        self._known: dict[bytes, Headers] = {}
        self._state = self._fingerprint()
        self._sizes: deque[int | None] = deque()
        self._least = MAX_TABLE_BYTES
        """The smallest table that the sender has acknowledged since its last block. It owes the news of that even
        where a larger one came after it."""

    def allowed(self, table_bytes: int | None) -> None:
        """The receiver sent SETTINGS, with this HEADER_TABLE_SIZE if any. A larger table may be used as soon as the
        sender hears of it; a smaller one holds once the sender has acknowledged."""
        if len(self._sizes) >= MAX_SETTINGS_UNDER_WAY:
            raise WireError(_FORMAT, f"{MAX_SETTINGS_UNDER_WAY} SETTINGS that nobody acknowledges")
        self._sizes.append(table_bytes)
        if table_bytes is not None:
            self._allow(max(self._decoder.max_allowed_table_size, table_bytes))

    def acknowledged(self) -> None:
        """The sender acknowledged the oldest SETTINGS."""
        size = self._sizes.popleft() if self._sizes else None
        if size is not None:
            later = [one for one in self._sizes if one is not None]
            self._allow(max(size, *later) if later else size)
            self._least = min(self._least, size)

    def _allow(self, table_bytes: int) -> None:
        self._decoder.max_allowed_table_size = min(table_bytes, MAX_TABLE_BYTES)

    def shrink(self) -> bytes:
        """What a block has to begin with that somebody else puts between the sender's, where the sender still owes its
        receiver the news of a smaller table (RFC 7541, 4.2). It says the same again then, and nothing is lost."""
        allowed = min(self._decoder.max_allowed_table_size, self._least)
        if self._decoder.header_table_size <= allowed:
            return b""
        self._decoder.header_table_size = allowed
        self._known.clear()
        self._state = self._fingerprint()
        return _integer(allowed, 31, 0x20)

    def decode(self, block: bytes) -> Headers:
        """The headers of the next block, in order."""
        self._least = MAX_TABLE_BYTES
        known = self._known.get(block)
        if known is not None:
            return known
        if len(block) > MAX_BLOCK_BYTES:
            raise WireError(_FORMAT, f"a header block of {len(block)} bytes, more than {MAX_BLOCK_BYTES}")
        try:
            headers = self._short(block) or tuple(self._decoder.decode(block, raw=True))
        except (HPACKError, IndexError, ValueError) as error:
            raise WireError(_FORMAT, f"a header block that cannot be read: {error}") from error
        state = self._fingerprint()
        if state != self._state:
            self._state = state
            self._known.clear()
        elif len(self._known) < MAX_REMEMBERED and len(block) <= MAX_REMEMBERED_BYTES:
            self._known[block] = headers
        return headers

    def _short(self, block: bytes) -> Headers:
        """The headers of a block of few fields that the tables name, or that are short and added to them: gRPC's
        requests with a deadline, which is another one in each call. By the library's own tables, in a quarter of the
        time that it takes. Nothing, and nothing done, where the block is any other."""
        table = self._decoder.header_table
        if table.maxsize > DEFAULT_TABLE_BYTES or table.maxsize > self._decoder.max_allowed_table_size:
            return ()
        entries = table.dynamic_entries
        headers: list[tuple[bytes, bytes]] = []
        for at, byte in enumerate(block[: MOST_FIELDS + 1]):
            if _FIRST_ADDED <= byte < 0xFF:
                headers.append(entries[byte - _FIRST_ADDED])
            elif 0x80 < byte < _FIRST_ADDED:
                headers.append(_STATIC[byte - 0x81])
            elif _is_short(block, at):
                self._rest(block, at, headers)
                return tuple(headers)
            else:
                return ()
        return tuple(headers) if len(headers) <= MOST_FIELDS else ()

    def _rest(self, block: bytes, at: int, headers: list[tuple[bytes, bytes]]) -> None:
        """The headers from there on."""
        table = self._decoder.header_table
        while at < len(block):
            first = block[at]
            most = 0x7F if first > 0x7F else 0x3F
            index = first & most
            at += 1
            if index == most:
                index += block[at]
                at += 1
            if first > 0x7F:
                headers.append(table.get_by_index(index))
                continue
            name, at = (table.get_by_index(index)[0], at) if index else _string(block, at)
            value, at = _string(block, at)
            table.add(name, value)
            headers.append((name, value))

    def _fingerprint(self) -> tuple[int, int, int, int]:
        """Differs wherever a block has changed the table: an entry is added at the front as a new object, and a table
        that is emptied by an entry too large for it was not empty before."""
        table = self._decoder.header_table
        entries = table.dynamic_entries
        self._first = entries[0] if entries else None  # kept alive, so that no later one comes to lie where it is
        return id(self._first), len(entries), table.maxsize, self._decoder.max_allowed_table_size


def _is_short(block: bytes, at: int) -> bool:
    """Whether all that follows are few fields: indexes of one byte or two, and literals that are added, whose texts are
    shorter than 127 bytes."""
    fields, size = at, len(block)
    try:
        while at < size and fields < MOST_FIELDS:
            first = block[at]
            at += 1
            if first in (0x7F, 0xFF):
                if block[at] > 0x7F:
                    return False
                at += 1
            elif first < 0x40 or first == 0x80:
                return False
            for _ in range(0 if first > 0x7F else 2 if first == 0x40 else 1):
                length = block[at] & 0x7F
                if length == 0x7F:
                    return False
                at += 1 + length
            fields += 1
    except IndexError:
        return False
    return at == size


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    """A text of less than 127 bytes, and where it ends."""
    coded, at = block[at], at + 1
    end = at + (coded & 0x7F)
    return decode_huffman(block[at:end]) if coded > 0x7F else block[at:end], end


def encode_literals(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A block of literals without indexing: it says the same whatever the decoder's table holds, and leaves it alone.
    What was marked never to be indexed stays so marked."""
    parts = []
    for header in headers:
        parts.append(b"\x10" if isinstance(header, NeverIndexedHeaderTuple) else b"\x00")
        for text in header:
            parts += (_integer(len(text), 127, 0), text)
    return b"".join(parts)


def _integer(value: int, prefix: int, flags: int) -> bytes:
    """An integer whose first byte has these flags, and room for `prefix` at most (RFC 7541, 5.1)."""
    if value < prefix:
        return bytes((flags | value,))
    out = bytearray((flags | prefix,))
    value -= prefix
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
