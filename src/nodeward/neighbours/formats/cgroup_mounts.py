"""Parses `/proc/self/mountinfo` and `/proc/cgroups` into mounted cgroup trees (proc_pid_mountinfo(5), cgroups(7)). One
line at a time is taken to pieces, and none that is too long."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO

MAX_BYTES = 4 * 1024 * 1024
"""A node with a thousand containers has a few thousand mounts of some hundred bytes."""
MAX_LINE = 16 * 1024
"""A cgroup tree's line has some hundred bytes. An overlay of many layers may have more, and is not looked for."""

_ESCAPE = re.compile(r"\\([0-3][0-7]{2})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount. `kind` is the file system's name, `how` the options of this mount, `options` those of the whole file
    system: for cgroup v1 the controllers."""

    place: str
    kind: str
    how: tuple[str, ...]
    options: tuple[str, ...]
    device: tuple[int, int] | None = None
    """Major and minor number of the device that has it; 0 for the major where none has."""


def mounts(data: bytes) -> Iterator[Mount]:
    """All mounts; a line that is none, or longer than MAX_LINE, is left out."""
    for line in _lines(data):
        before, _, after = line.partition(" - ")
        left, right = before.split(), after.split()
        if len(left) >= 6 and len(right) >= 3:
            place = _ESCAPE.sub(lambda found: chr(int(found[1], 8)), left[4])
            yield Mount(place, right[0], tuple(left[5].split(",")), tuple(right[2].split(",")), _number(left[2]))


def _number(text: str) -> tuple[int, int] | None:
    major, _, minor = text.partition(":")
    is_one = all(one.isascii() and one.isdigit() and len(one) < 10 for one in (major, minor))
    return (int(major), int(minor)) if is_one else None


def _lines(data: bytes) -> Iterator[str]:
    return (line.decode("utf-8", "replace") for line in BytesIO(data) if len(line) <= MAX_LINE)


def knows(data: bytes, controller: str) -> bool:
    """Whether the kernel has the controller and its command line does not disable it."""
    rows = (line.split() for line in _lines(data) if not line.startswith("#"))
    return any(len(row) == 4 and row[0] == controller and row[3] != "0" for row in rows)
