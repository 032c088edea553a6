"""Processes of the simulated node as proc(5) tells of them, and what they take of memory and CPU time.

Each is in the simulated kernel's cgroup tree and has a folder below /proc: `stat`, `statm`, `status`, `cmdline`,
`cgroup`, `smaps` and its threads. A file of a process that has ended says ESRCH to who has it open. Memory is charged
to the cgroup where the process is when it takes it. Where a limit has no room the largest process below that limit is
killed, as the kernel does.
"""

import errno
import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from nodeward_sim.doubles.kernel import CGROUP_MOUNT, SimKernel
from nodeward_sim.doubles.memory_controller import MemoryState
from nodeward_sim.doubles.misc_controller import RefusalError

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_US: Final = 1_000_000
_GUEST_AT: Final = 0x7F0000000000
_HEAP_AT: Final = 0x550000000000


@dataclass(slots=True, eq=False)
class Thread:
    """A thread; the first one of a process is its leader."""

    tid: int
    name: str
    start: int
    used_us: int = 0


@dataclass(slots=True, eq=False)
class Process:
    """A process. `guest_size` is the mapping in which a VMM keeps its guest's memory, `guest` what of it is resident;
    where that is `shared` it is a memfd's. `own` is all other memory."""

    pid: int
    parent: int
    words: tuple[str, ...]
    threads: list[Thread]
    guest_size: int = 0
    shared: bool = False
    own: int = 0
    guest: int = 0
    charges: list[tuple[MemoryState, int]] = field(default_factory=list)
    began_in: str = ""
    """The cgroup in which it was started."""
    alive: bool = True

    @property
    def rss(self) -> int:
        """All that it has in memory."""
        return self.own + self.guest


class Processes:
    """All of a node, but those that only the cgroup tree knows."""

    def __init__(self, kernel: SimKernel) -> None:
        self._kernel = kernel
        self._numbers = itertools.count(4001)
        self._starts = itertools.count(1000, 10)
        self._there: dict[int, Process] = {}
        self.frozen = False
        """`cgroup` files tell where a process began: the mutant of one that is moved unseen."""

    def start(
        self, cgroup: str, words: Sequence[str], parent: int = 1, threads: int = 0, guest: int = 0, shared: bool = False
    ) -> Process:
        """Starts a process in this cgroup (from the tree's root), with so many threads besides its leader."""
        name = words[0].rpartition("/")[2][:15]
        made = [Thread(next(self._numbers), name, next(self._starts)) for _ in range(threads + 1)]
        one = Process(made[0].tid, parent, tuple(words), made, guest, shared, began_in=cgroup)
        self._kernel.add_process(CGROUP_MOUNT + cgroup, one.pid)
        self._there[one.pid] = one
        self._tell(one)
        return one

    def end(self, one: Process) -> None:
        """It has ended; what it had is given back."""
        if not one.alive:
            return
        one.alive = False
        for state, amount in one.charges:
            state.uncharge(amount)
        self._kernel.end_process(one.pid)
        self._kernel.untell(f"/proc/{one.pid}")
        del self._there[one.pid]

    def cgroup(self, one: Process) -> str:
        """The cgroup of the process, from the tree's root."""
        return self._kernel.cgroup_of(one.pid)

    def move(self, one: Process, cgroup: str) -> None:
        """Somebody moves it; its memory stays charged where it is."""
        self._kernel.write(f"{CGROUP_MOUNT}{cgroup}/cgroup.procs", str(one.pid).encode())

    def take(self, one: Process, amount: int, *, guest: bool = False) -> list[Process]:
        """The process takes memory, its guest's or its own; those that the kernel has killed for want of room."""
        killed = list[Process]()
        state = self._kernel.memory_of(one.pid)
        while (full := state.charge(amount)) is not None:
            victim = max((each for each in self._there.values() if self._below(each, full)), key=lambda each: each.rss)
            self._kernel.memory_of(victim.pid).count("oom_kill")
            self.end(victim)
            killed.append(victim)
            if victim is one:
                return killed
        one.charges.append((state, amount))
        if guest:
            one.guest += amount
        else:
            one.own += amount
        return killed

    def run(self, one: Process, thread: Thread, spent_us: int) -> None:
        """A thread of it runs for so long."""
        thread.used_us += spent_us
        self._kernel.time_of(one.pid).spend(spent_us)

    def _below(self, one: Process, level: MemoryState) -> bool:
        return any(above is level for above in self._kernel.memory_of(one.pid).upwards())

    # ---- what /proc says

    def _tell(self, one: Process) -> None:
        base, leader = f"/proc/{one.pid}", one.threads[0]
        files: dict[str, Callable[[], str]] = {
            "stat": lambda: _stat(one, leader, one.threads),
            "statm": lambda: f"{one.rss // _PAGE + 1000} {one.rss // _PAGE} 0 1 0 0 0\n",
            "status": lambda: _status(one),
            "cmdline": lambda: "".join(f"{word}\0" for word in one.words),
            "cgroup": lambda: self._cgroup(one),
            "smaps": lambda: _smaps(one),
        }
        for thread in one.threads:
            files[f"task/{thread.tid}/stat"] = partial(_stat, one, thread, (thread,))
            files[f"task/{thread.tid}/cgroup"] = files["cgroup"]
        for name, text in files.items():
            self._kernel.tell(f"{base}/{name}", partial(_of_living, one, text))

    def _cgroup(self, one: Process) -> str:
        return f"0::{one.began_in if self.frozen else self.cgroup(one)}\n"


def _of_living(one: Process, text: Callable[[], str]) -> bytes:
    if not one.alive:
        raise RefusalError(errno.ESRCH)
    return text().encode()


def _stat(one: Process, thread: Thread, counted: Sequence[Thread]) -> str:
    ticks = sum(each.used_us for each in counted) * _TICKS // _US
    head = f"{thread.tid} ({thread.name}) S {one.parent} {one.pid} {one.pid} 0 -1 0 0 0 0 0"
    return f"{head} {ticks} 0 0 0 20 0 {len(one.threads)} 0 {thread.start} 0 {one.rss // _PAGE} 0\n"


def _status(one: Process) -> str:
    shared = one.guest if one.shared else 0
    rows = (("VmRSS", one.rss), ("RssAnon", one.rss - shared), ("RssShmem", shared), ("HugetlbPages", 0))
    return f"Name:\t{one.threads[0].name}\n" + "".join(f"{name}:\t{amount // 1024:8} kB\n" for name, amount in rows)


def _smaps(one: Process) -> str:
    name = "/memfd:memory-backend (deleted)" if one.shared else ""
    rows = [(_HEAP_AT, max(one.own, _PAGE), one.own, "[heap]")]
    if one.guest_size:
        rows.append((_GUEST_AT, one.guest_size, one.guest, name))
    return "".join(
        f"{at:x}-{at + size:x} rw-p 00000000 00:00 0 {text}\nSize: {size // 1024:8} kB\nRss: {rss // 1024:8} kB\n"
        for at, size, rss, text in rows
    )
