"""Mounted cgroup trees, from the text of `/proc/self/mountinfo` (proc_pid_mountinfo(5)), and the kernel's controllers
from `/proc/cgroups` (cgroups(7))."""

import re
from dataclasses import dataclass

MAX_BYTES = 4 * 1024 * 1024
"""A node with a thousand containers has a few thousand mounts of some hundred bytes."""

_ESCAPE = re.compile(r"\\([0-3][0-7]{2})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount. `kind` is the file system's name, `how` the options of this mount, `options` those of the whole file
    system: for cgroup v1 the controllers."""

    place: str
    kind: str
    how: tuple[str, ...]
    options: tuple[str, ...]


def mounts(text: str) -> list[Mount]:
    """All mounts; a line that is none is left out."""
    found: list[Mount] = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        left, right = before.split(), after.split()
        if len(left) >= 6 and len(right) >= 3:
            place = _ESCAPE.sub(lambda found: chr(int(found[1], 8)), left[4])
            found.append(Mount(place, right[0], tuple(left[5].split(",")), tuple(right[2].split(","))))
    return found


def knows(text: str, controller: str) -> bool:
    """Whether the kernel has the controller and has not been told to leave it off."""
    rows = (line.split() for line in text.splitlines() if not line.startswith("#"))
    return any(len(row) == 4 and row[0] == controller and row[3] != "0" for row in rows)
