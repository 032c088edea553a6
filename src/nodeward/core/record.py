"""The record of events and decisions: JSON lines, each `[kind, body]`.

A segment starts with a line `segment` (format version, program version, state) and goes on with `event` and `decision`
lines, in the order of the core's sequence numbers. A `torn` line ends a segment. The encoding is deterministic: fields
in order of declaration, tables in order of insertion, so equal decisions are equal bytes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from itertools import islice
from typing import BinaryIO, TypeVar

import msgspec

from nodeward.core import events
from nodeward.core.decision import Decision
from nodeward.core.errors import NodewardError

FORMAT = 7
"""Raised whenever events, decisions or the state are written otherwise than by the releases before."""
MAX_LINE = 64 * 1024 * 1024
MOST_AT_ONCE = 128
"""So many entries of a table are encoded in one call where others wait."""

T = TypeVar("T")
_encoder = msgspec.json.Encoder()
Kinds = Mapping[str, type[events.Event]]
"""The events that a record can hold, by name."""


class RecordError(NodewardError):
    """A record that cannot be read; says which line and why."""


class FormatError(RecordError):
    """A record of another format, older or newer; says who wrote it and what to do."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The head of a segment: the raw JSON of the state it starts from."""

    version: str
    state: bytes


@dataclass(frozen=True, slots=True)
class Torn:
    """Something was lost here; what follows until the next segment proves nothing."""

    why: str


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision as it was recorded: its exact bytes."""

    encoded: bytes


Line = Segment | Torn | Decided | events.Event


def segment_pieces(version: str, state: object) -> Iterator[bytes]:
    """The head line of a segment, bit by bit; `state` is a frozen dataclass of plain values. A full node's is
    megabytes, and whoever encodes them in one call keeps every other thread waiting for as long."""
    yield _encoder.encode(["segment", FORMAT, version])[:-1] + b","
    yield from _pieces(state)
    yield b"]\n"


def _pieces(value: object) -> Iterator[bytes]:
    between = b"{"
    if isinstance(value, dict) and len(value) > MOST_AT_ONCE:
        left = iter(value.items())
        while part := dict(islice(left, MOST_AT_ONCE)):
            yield between + _encoder.encode(part)[1:-1]
            between = b","
    elif is_dataclass(value):
        for field in fields(value):
            yield between + _encoder.encode(field.name) + b":"
            yield from _pieces(getattr(value, field.name))
            between = b","
    else:
        yield _encoder.encode(value)
        return
    yield b"}" if between == b"," else b"{}"


def encode_torn(why: str) -> bytes:
    """The line that ends a segment early."""
    return _encoder.encode(["torn", why]) + b"\n"


def encode_event(event: events.Event) -> bytes:
    """One event line."""
    return _encoder.encode(["event", type(event).__name__, event]) + b"\n"


def encode_decision(decision: Decision) -> bytes:
    """One decision line."""
    return _encoder.encode(["decision", decision]) + b"\n"


def decode_state(raw: bytes, kind: type[T]) -> T:
    """The state a segment starts from."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, ValueError) as error:
        raise RecordError(f"the segment's state cannot be read: {error}") from error


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """The file's lines, as `read` wants them; of one that is too long so much that it shows."""
    while line := file.readline(MAX_LINE + 1):
        yield line


def read(lines: Iterator[bytes], kinds: Kinds) -> Iterator[Line]:
    """The lines of a record, decoded. Raises RecordError with the line's number; it says that this is no record, where
    no line before was one of a record."""
    began = False
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_LINE:
            raise _unread(number, f"more than {MAX_LINE} bytes", began)
        if not line.endswith(b"\n"):
            yield Torn(f"line {number} is cut off")
            return
        if line == b"\n":
            continue
        try:
            decoded = _decode(line, kinds)
        except FormatError as error:
            raise FormatError(f"line {number}: {error}") from None
        except msgspec.ValidationError as error:
            raise _unread(number, str(error), began) from error
        except msgspec.DecodeError as error:
            yield Torn(f"line {number} is damaged: {error}")
            continue
        except (msgspec.MsgspecError, ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
            raise _unread(number, f"{type(error).__name__}: {error}", began) from error
        began = True
        yield decoded


def _unread(number: int, why: str, began: bool) -> RecordError:
    if began:
        return RecordError(f"line {number}: {why}")
    return RecordError(f"is no record of nodeward (line {number}: {why}); name one that nodeward node --record wrote")


def _decode(line: bytes, kinds: Kinds) -> Line:
    parts: list[msgspec.Raw] = msgspec.json.decode(line, type=list[msgspec.Raw])
    kind = msgspec.json.decode(parts[0], type=str)
    match kind:
        case "segment":
            written, program = msgspec.json.decode(parts[1], type=int), msgspec.json.decode(parts[2], type=str)
            if written != FORMAT:
                raise FormatError(
                    f"Nodeward {program[:64]!r} wrote this record in format {written}, and this one reads format "
                    f"{FORMAT} only: replay it with the Nodeward that wrote it, or record anew with this one"
                )
            return Segment(program, bytes(parts[3]))
        case "event":
            name = msgspec.json.decode(parts[1], type=str)
            if name not in kinds:
                raise ValueError(f"event {name!r} is not known to this version")
            decoded: events.Event = msgspec.json.decode(parts[2], type=kinds[name])
            return decoded
        case "decision":
            return Decided(line)
        case "torn":
            return Torn(msgspec.json.decode(parts[1], type=str))
        case _:
            raise ValueError(f"line of kind {kind!r} is not known")
