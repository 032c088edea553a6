"""The kernel's memory controller as a value machine, cgroup v2 only: what processes have, limits, and kills.

The rules are those of mm/memcontrol.c: a page is charged where its process was when it was touched, and stays charged
there when that process moves; a level whose limit would be passed calls for a kill; `memory.events` counts at the level
that it is about and at all above it. Reclaim, swap and protection are left out: what a process has, it keeps.
"""

import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from nodeward_sim.doubles.misc_controller import MAX, RefusalError

PAGE: Final = 4096
FILES: Final = ("memory.current", "memory.events", "memory.max")
NUMA_STAT: Final = "memory.numa_stat"
_EVENTS: Final = ("low", "high", "max", "oom", "oom_kill", "oom_group_kill")
_AMOUNT: Final = re.compile(r"([0-9]*)([KMGT]?)", re.IGNORECASE)
_UNITS: Final = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


@dataclass(slots=True, eq=False)
class MemoryState:
    """What one cgroup has while memory is on for it. It lives on, reachable from charges only, when the cgroup is
    gone."""

    parent: "MemoryState | None"
    alive: bool = True
    usage: int = 0
    limit: int | None = None
    events: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_EVENTS, 0))

    def upwards(self) -> "Iterator[MemoryState]":
        """This level, then each above it, the root last."""
        level: MemoryState | None = self
        while level is not None:
            yield level
            level = level.parent

    def charge(self, amount: int) -> "MemoryState | None":
        """Charges here and above; the lowest level without room where there is one, and nothing is charged then."""
        for level in self.upwards():
            if level.limit is not None and level.usage + amount > level.limit:
                level.count("max", "oom")
                return level
        for level in self.upwards():
            level.usage += amount
        return None

    def uncharge(self, amount: int) -> None:
        """Gives back here and above."""
        for level in self.upwards():
            level.usage -= amount

    def count(self, *events: str) -> None:
        """Something happened here."""
        for level in self.upwards():
            for event in events:
                level.events[event] += 1

    def show(self, file: str) -> bytes:
        """Content of one of FILES."""
        if file == "memory.events":
            return "".join(f"{name} {count}\n" for name, count in self.events.items()).encode()
        amount = self.usage if file == "memory.current" else self.limit
        return f"{'max' if amount is None else amount}\n".encode()

    def by_node(self, count: int, at: int) -> bytes:
        """Content of NUMA_STAT on a machine of so many nodes, with all memory on the node `at`."""
        nodes = " ".join(f"N{node}={self.usage if node == at else 0}" for node in range(count))
        return f"anon {nodes}\nfile {' '.join(f'N{node}=0' for node in range(count))}\n".encode()

    def write_max(self, text: str) -> None:
        """One write(2) to memory.max: `max`, or bytes with or without a unit, rounded down to whole pages; no
        digits are 0. EBUSY where more is in use, for which the kernel would reclaim and kill."""
        word = text.strip()
        if word == "max":
            self.limit = None
            return
        found = _AMOUNT.fullmatch(word)
        if found is None:
            raise RefusalError(errno.EINVAL)
        limit = min(int(found[1] or 0) << _UNITS[found[2].upper()], MAX) // PAGE * PAGE
        if limit < self.usage:
            raise RefusalError(errno.EBUSY)
        self.limit = limit
