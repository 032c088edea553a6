"""Reads one process or thread: CPU time, memory and cgroups, and whether it is still the same one."""

import errno
import os
import re
from dataclasses import dataclass

from nodeward.core.errors import WireError
from nodeward.core.vms import Task, TaskRole
from nodeward.neighbours.formats import cgroup_paths, proc_files
from nodeward.neighbours.kata.finder import Process
from nodeward.neighbours.kata.kept import Kept

PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_GONE = (errno.ESRCH, errno.ENOENT)
_VCPU = re.compile(r"CPU \d+/(?:KVM|TCG)|ALL CPUs/TCG|(?:fc_|db_)?vcpu ?\d+")
"""QEMU started with `debug-threads=on`, Cloud Hypervisor, Firecracker, Dragonball."""
MOST_THREADS = 4096
_MOST_KNOWN = 8192
_CGROUP_BYTES = 16 * 1024


def is_vcpu(name: str) -> bool:
    """Whether a thread's name says that it is a vCPU."""
    return _VCPU.fullmatch(name) is not None


@dataclass(slots=True)
class SeenTask:
    """A process or thread from one reading to the next. `base` is its folder below /proc."""

    role: TaskRole
    pid: int
    tid: int
    start: int
    name: str
    base: str
    ticks: int | None = None
    threads: int = 1
    pages: int | None = None
    paths: tuple[str, str] = ("", "")
    """Its cgroups where memory and where CPU time are counted."""
    lost: str = ""
    """Why these are not known."""

    @property
    def files(self) -> tuple[str, ...]:
        """The /proc files of the task that may be kept open."""
        return tuple(f"{self.base}/{name}" for name in ("stat", "statm", "cgroup", "status"))

    @property
    def rss(self) -> int | None:
        """What it has in memory, in bytes."""
        return None if self.pages is None else self.pages * PAGE

    def task(self, role: TaskRole, ticks: int | None, rss: int | None) -> Task:
        """Its value."""
        cpu_ns = None if ticks is None else ticks * _TICK_NS
        return Task(role, self.pid, self.tid, self.start, self.name, *self.paths, cpu_ns, rss)


def process(role: TaskRole, one: Process) -> SeenTask:
    """What was found, before it is first read."""
    return SeenTask(role, one.pid, one.pid, one.start, one.name, f"/proc/{one.pid}")


class Tasks:
    """Belongs to one thread at a time."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._known: dict[bytes, tuple[tuple[str, str], str]] = {}
        """What files `cgroup` mean: most are alike, and as a period ago."""

    def threads(self, pid: int, known: dict[int, SeenTask]) -> dict[int, SeenTask]:
        """The threads of a process but its leader; those that are known are kept."""
        tids = [int(name) for name in self._names(pid)[:MOST_THREADS] if name.isdecimal() and int(name) != pid]
        return {
            tid: known.get(tid) or SeenTask(TaskRole.IO, pid, tid, -1, "", f"/proc/{pid}/task/{tid}") for tid in tids
        }

    def read(self, one: SeenTask, faults: list[str], *, places: bool, memory: bool) -> bool:
        """Reads the task again; false where it is gone, or its number is another's by now. `stat` is read last: by it
        all that was read before is known to be of the same process."""
        try:
            if places:
                self._read_places(one)
            if memory:
                statm = self._kept.read(f"{one.base}/statm")
                # virtiofsd maps the guest's memory, which is counted as the VMM's
                one.pages = proc_files.resident_pages(statm, shared=one.role is not TaskRole.VIRTIOFSD)
            now = proc_files.stat(self._kept.read(f"{one.base}/stat"))
        except OSError as error:
            if error.errno not in _GONE:
                faults.append(f"{one.base} cannot be read: {error.strerror}")
            return False
        except WireError as error:
            faults.append(f"{one.base}: {error}")
            return False
        if one.start < 0:
            one.start = now.start
        if now.start != one.start or now.state in "ZX":
            return False
        if one.lost:
            faults.append(f"{one.base}/cgroup is not followed: {one.lost}")
        one.name, one.ticks, one.threads = now.name, now.ticks, now.threads
        return True

    def drop(self, one: SeenTask) -> None:
        """Closes our descriptors of the task."""
        self._kept.drop(*one.files)

    def _names(self, pid: int) -> list[str]:
        try:
            return self._kept.files.listdir(f"/proc/{pid}/task")
        except OSError:
            return []

    def _read_places(self, one: SeenTask) -> None:
        data = self._kept.read(f"{one.base}/cgroup", _CGROUP_BYTES)
        known = self._known.get(data)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[data] = _places(data)
        one.paths, one.lost = known


def _places(data: bytes) -> tuple[tuple[str, str], str]:
    """Where memory and CPU time are counted; else why it is not known."""
    try:
        by = cgroup_paths.by_controller(data)
    except WireError as error:
        return ("", ""), error.fault
    unified = by.get("", "")
    return (by.get("memory", unified), by.get("cpuacct", by.get("cpu", unified))), ""
