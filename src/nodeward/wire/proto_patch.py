"""Changes to a protobuf message that leave every byte of it as it came: what is changed is appended.

Protobuf's own rule makes this a change and not an addition: of a message field that comes twice a reader merges both,
field by field, and of a map's key that comes twice the last one counts. So unknown fields, the order of repeated ones
and duplicates survive, and nothing is decoded and encoded again. Must not know what a field means.

Source: protobuf's encoding guide, "Last One Wins" and "Maps"; Go's generated code (gogo and google.golang.org/protobuf,
what CRI's runtimes use) merges so.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

LENGTH_DELIMITED = 2


def with_map_entries(message: bytes, path: Sequence[int], entries: Mapping[str, str]) -> bytes:
    """The message with these entries in the map of texts at `path`, the numbers of the fields from the outermost in.

    Entries of other keys stay; an entry of the same key is overruled. The message must be whole."""
    return message + _nested(tuple(path), tuple(entries.items())) if entries else message


@lru_cache(256)  # many containers of a node are promised the same
def _nested(path: tuple[int, ...], entries: tuple[tuple[str, str], ...]) -> bytes:
    *outer, number = path
    made = b"".join(_field(number, _field(1, key.encode()) + _field(2, text.encode())) for key, text in entries)
    for above in reversed(outer):
        made = _field(above, made)
    return made


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | LENGTH_DELIMITED) + _varint(len(content)) + content


def _varint(amount: int) -> bytes:
    made = bytearray()
    while amount > 0x7F:
        made.append(amount & 0x7F | 0x80)
        amount >>= 7
    made.append(amount)
    return bytes(made)
