"""The file of CPU grants, `cpus.journal`: JSON lines. The first is the whole of what was granted, with the boot, the
machine and the policy's settings; each other one is one change of that.

It is read by the process that comes after the writer's, of the same or of another version: what is not understood is
refused whole with the reason, never guessed. An unfinished last line was never answered, and is passed over.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from nodeward.core.errors import WireError
from nodeward.features.cpus.values import Change, Recorded

VERSION = 1
"""Raised whenever a reader of before would take what is written for something else."""
MAX_BYTES = 16 * 1024 * 1024


class _Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    boot: str
    recorded: Recorded


class _Version(msgspec.Struct, frozen=True):
    version: int
    boot: str


class _Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    change: Change


_version, _head, _change = msgspec.json.Decoder(_Version), msgspec.json.Decoder(_Head), msgspec.json.Decoder(_Change)


class Read(NamedTuple):
    """What a file says: the whole, and what became of it since."""

    boot: str
    recorded: Recorded
    changes: Sequence[Change]
    torn: bool = False
    """Its last line is cut off."""


def whole(recorded: Recorded, boot: str) -> bytes:
    """The file's whole content."""
    return msgspec.json.encode(_Head(VERSION, boot, recorded)) + b"\n"


def line(change: Change) -> bytes:
    """One line more."""
    return msgspec.json.encode(_Change(change)) + b"\n"


def _lines(data: bytes) -> Iterator[memoryview]:
    """Without a copy of each: a record may be large."""
    begin, whole = 0, memoryview(data)
    while (end := data.find(b"\n", begin)) >= 0:
        yield whole[begin:end]
        begin = end + 1
    yield whole[begin:]


def read(data: bytes, boot: str) -> Read | None:
    """What it says; None for a file of another boot than `boot`, or an empty one. WireError with the line and the
    reason where it cannot be understood."""
    first, *lines = _lines(data)
    try:
        about = _version.decode(first) if first or lines else None
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise WireError("cpus.journal", f"does not begin as a record of CPUs: {error}") from error
    if about is None or about.boot != boot:
        return None
    if about.version != VERSION:
        raise WireError("cpus.journal", f"is of version {about.version}, and this program reads version {VERSION}")
    if not lines:
        raise WireError("cpus.journal", "its first line is cut off")
    try:
        head = _head.decode(first)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise WireError("cpus.journal", f"line 1: {error}") from error
    changes = []
    for number, one in enumerate(lines[:-1], 2):
        try:
            changes.append(_change.decode(one).change)
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            raise WireError("cpus.journal", f"line {number}: {error}") from error
    return Read(head.boot, head.recorded, changes, torn=bool(lines[-1]))
