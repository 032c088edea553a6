"""Parses bytes into generated protobuf messages, with a bound on the memory that they take.

Protobuf's memory is not bounded by the length of its input: a repeated message of no fields is two bytes on the wire
and up to 225 in memory, so that 4 MiB became 450. Promises: whatever the bytes are, what is made of them takes some
64 MiB at most beside their own size; a message that would take more is a WireError before anything is made of it. What
is ordinary costs next to nothing: up to half a megabyte is not looked at, and a larger message is walked through only
where it may have so many elements.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from nodeward.core.errors import WireError

MOST_BYTES = 64 << 20
"""Of memory for the elements of one message: its sub-messages, entries of maps and repeated values. A thousand pods
with their containers take a third of it."""
_UNSEEN_BYTES = 512 << 10
"""A message that is no longer has too few elements, however short they are."""
_UNSEEN_ELEMENTS = 250_000
APART = 16
"""Bytes. Each shorter element has a length before it that is a control character, and text seldom has one. Of packed
numbers, which have none, as many as are in 4 MiB come to no more than is allowed."""
_CONTROLS = bytes(range(0x20))
_MESSAGE, _EACH_FIELD, _TEXT, _NUMBER, _PLAIN = 32, 16, 32, 64, 64
"""Bytes that a message takes, and for each field that it may have; a repeated text, and a number, with what a reader
makes of one. A plain field takes none, and is counted since a walk must end as well."""
_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
_VARINT, _FIXED64, _DELIMITED, _BEGIN, _END, _FIXED32 = range(6)

if TYPE_CHECKING:
    from google._upb import _message

    Described = Descriptor | _message.Descriptor

_M = TypeVar("_M", bound=Message)


def read(format_name: str, kind: type[_M], payload: bytes) -> _M:
    """The message. WireError where the bytes are none: text that is no UTF-8 too, which Go lets pass. `format_name` is
    the protocol whose message it is."""
    if is_too_much(kind, payload):
        what = f"{len(payload)} bytes of {kind.DESCRIPTOR.name}"
        raise WireError(format_name, f"{what} would take over {MOST_BYTES >> 20} MiB, so they are not read")
    try:
        return kind.FromString(payload)
    except DecodeError as error:
        raise WireError(format_name, f"{len(payload)} bytes are no {kind.DESCRIPTOR.name}") from error


def is_too_much(kind: type[Message], payload: bytes, apart: int = APART) -> bool:
    """Whether the elements of a message of this kind would take more than MOST_BYTES. Who makes more of a number than
    protobuf does looks at shorter messages: `apart` says how short."""
    size = len(payload)
    if size <= _UNSEEN_BYTES:
        return False
    short = size - len(payload.translate(None, _CONTROLS))
    return short + size // apart > _UNSEEN_ELEMENTS and _bytes_taken(_shape(kind.DESCRIPTOR), payload) > MOST_BYTES


class _Shape:
    """Of a message its own bytes, and which of its fields come to elements, by number: what is in one, or the bytes of
    a plain value."""

    __slots__ = ("inner", "taken")

    def __init__(self, taken: int) -> None:
        self.taken = taken
        self.inner: Mapping[int, _Shape | int] = {}


_SHAPES: dict[str, _Shape] = {}
"""By the message's full name. A kind may be in itself, so each is there before its fields are."""


def _shape(kind: "Described") -> _Shape:
    if kind.full_name not in _SHAPES:
        _SHAPES[kind.full_name] = made = _Shape(_MESSAGE + _EACH_FIELD * len(kind.fields))
        inner: dict[int, _Shape | int] = {}
        for field in kind.fields:
            if field.message_type is not None:
                inner[field.number] = _shape(field.message_type)
            elif field.is_repeated:
                inner[field.number] = _TEXT if field.type in _TEXTS else _NUMBER
        made.inner = inner
    return _SHAPES[kind.full_name]


def _bytes_taken(of: _Shape, data: bytes) -> int:
    """What the elements in `data` take, up to where it is no protobuf; not much further than to MOST_BYTES."""
    taken, at, end, outer = 0, 0, len(data), list[tuple[int, _Shape]]()
    try:
        while taken <= MOST_BYTES:
            if at >= end:
                if not outer:
                    break
                end, of = outer.pop()
                continue
            tag = data[at]
            tag, at = (tag, at + 1) if tag < 0x80 else _varint(data, at)
            taken += _PLAIN
            element = of.inner.get(tag >> 3)
            if tag & 7 != _DELIMITED:
                taken += _NUMBER if element is not None else 0
                at = _behind(tag & 7, data, at)
                continue
            length = data[at]
            length, at = (length, at + 1) if length < 0x80 else _varint(data, at)
            if isinstance(element, _Shape):
                taken += element.taken
                outer.append((end, of))
                end, of = min(end, at + length), element
                continue
            if element is not None:  # packed numbers are one byte each at least
                taken += element if element == _TEXT else element * length
            at += length
    except IndexError:
        pass
    return taken


def _behind(wire: int, data: bytes, at: int) -> int:
    """Where the value that begins at `at` has ended. A group's fields are taken for its message's own."""
    if wire == _VARINT:
        return _varint(data, at)[1]
    if wire in (_BEGIN, _END):
        return at
    if wire in (_FIXED64, _FIXED32):
        return at + (8 if wire == _FIXED64 else 4)
    raise IndexError


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number, and where it has ended. IndexError for what is cut off or too long."""
    number = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise IndexError
