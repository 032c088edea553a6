"""Reads how much of a guest's memory is in the host's memory.

Where it lies in tmpfs, memfd or hugetlbfs, the VMM's `status` has it in one line. Else it is anonymous memory among the
VMM's own, and only smaps tells them apart: that file makes the kernel walk all of it, so it is read seldom, at most for
a small share of the time. In between, what the VMM's memory has grown or shrunk by is taken for the guest's.
"""

from collections.abc import Callable
from dataclasses import dataclass

from nodeward.core.errors import WireError
from nodeward.host.hostfs import HostFiles
from nodeward.neighbours.formats import proc_files
from nodeward.neighbours.formats.proc_files import Mapping
from nodeward.neighbours.kata.kept import Kept
from nodeward.neighbours.kata.processes import Backing, CommandLine
from nodeward.neighbours.kata.tasks import SeenTask

LEAST = 4 * 1024 * 1024
"""A smaller mapping is none of a guest's memory."""
_LIKELY = 64 * 1024 * 1024
"""Where the VMM does not say how much it gives its guest, a smaller nameless mapping is not taken for it."""
_ROUNDED = 2 * 1024 * 1024
_NAMES = ("memory-backend", "qemu_back_mem", "ch_ram", "guest_mem", "/dev/hugepages", "pc.ram", "ram-node")


def guest_ram(found: list[Mapping], told: int | None) -> tuple[int, int] | None:
    """How much of the guest's memory is resident, and how much there is of its mappings. `told`: what the VMM was told
    to give. None where no mapping is seen to be the guest's.

    A mapping is known by a VMM's name for it; else the largest ones are taken that together are as large as told.
    """
    able = [one for one in found if one.access.startswith("rw-") and one.size >= LEAST]
    named = [one for one in able if any(name in one.name for name in _NAMES)]
    if named:
        return _sum(named)
    plain = sorted((one for one in able if not one.name or one.name.startswith("/dev/shm")), key=_size, reverse=True)
    if told is None:
        return _sum([one for one in plain if one.size >= _LIKELY])
    chosen, left = list[Mapping](), told
    for one in plain:
        if one.size <= left + _ROUNDED:
            chosen.append(one)
            left -= one.size
        if left <= 0:
            return _sum(chosen)
    return None


def _size(one: Mapping) -> int:
    return one.size


def _sum(chosen: list[Mapping]) -> tuple[int, int] | None:
    return (sum(one.resident for one in chosen), sum(one.size for one in chosen)) if chosen else None


AGAIN_NS = 15_000_000_000
MOVED = 16 * 1024 * 1024
"""When a VMM's memory has changed by so much, smaps is read again sooner."""
SHARE = 500
"""Of the time, one part in so many is spent on smaps, and at most FIRST_NS a round on sandboxes that have none yet."""
FIRST_NS = 15_000_000
PAUSE_NS = 30_000_000_000
"""No reading makes the next one wait longer: one took so long since the machine was busy, not since smaps is large."""


@dataclass(slots=True)
class GuestMemory:
    """What smaps said last of one VMM, and the VMM's memory then."""

    at_ns: int | None = None
    ram: int | None = None
    most: int = 0
    """The size of its mappings."""
    rss: int = 0
    huge: int = 0
    """What the VMM has in hugetlbfs, which `rss` does not hold."""
    on_huge_pages: bool = False
    """The guest's memory lies in hugetlbfs, as its command line or smaps says."""


class Smaps:
    """Spends the time that there is for smaps."""

    def __init__(self, files: HostFiles, now_ns: Callable[[], int]) -> None:
        self._files, self._now_ns = files, now_ns
        self._not_before_ns = 0
        self._left_ns = FIRST_NS

    def begin(self) -> None:
        """A round begins."""
        self._left_ns = FIRST_NS

    def read(
        self, known: GuestMemory, vmm: SeenTask, kept: Kept, said: CommandLine, faults: list[str]
    ) -> tuple[int | None, int | None]:
        """The VMM's memory and the guest's part of it; None where not known."""
        if said.backing is not Backing.ANONYMOUS:
            known.on_huge_pages = said.backing is Backing.HUGE
            return self._by_status(vmm, kept, said.backing, faults)
        rss = vmm.rss
        if rss is None:
            return None, None
        if self._is_due(known, rss):
            self._by_smaps(known, vmm, rss, said, faults)
        if known.ram is None:
            if known.at_ns is not None:
                faults.append(
                    f"which mappings of VMM {vmm.pid} are its guest's memory is not known by {vmm.base}/smaps"
                )
            return rss, None
        resident = rss + known.huge
        return resident, max(0, min(known.ram + rss - known.rss, known.most, resident))

    def _by_status(
        self, vmm: SeenTask, kept: Kept, backing: Backing, faults: list[str]
    ) -> tuple[int | None, int | None]:
        try:
            said = proc_files.status(kept.read(f"{vmm.base}/status"))
        except OSError as error:
            faults.append(f"{vmm.base}/status cannot be read: {error.strerror}")
            return None, None
        rss, huge = said.get("VmRSS"), said.get("HugetlbPages", 0)
        return None if rss is None else rss + huge, huge if backing is Backing.HUGE else said.get("RssShmem")

    def _is_due(self, known: GuestMemory, rss: int) -> bool:
        now_ns = self._now_ns()
        if known.at_ns is None:
            return self._left_ns > 0
        is_old = now_ns - known.at_ns >= AGAIN_NS or abs(rss - known.rss) >= MOVED
        return is_old and now_ns >= self._not_before_ns

    def _by_smaps(self, known: GuestMemory, vmm: SeenTask, rss: int, said: CommandLine, faults: list[str]) -> None:
        began_ns = self._now_ns()
        try:
            found = proc_files.mappings(self._files.read(f"{vmm.base}/smaps", proc_files.MAX_SMAPS), LEAST)
            chosen = guest_ram(found, said.memory)
            known.huge = sum(one.huge for one in found)
            known.on_huge_pages = known.huge > 0
        except (OSError, WireError) as error:
            faults.append(f"{vmm.base}/smaps cannot be read: {error}")
            chosen = None
        now_ns = self._now_ns()
        known.at_ns, known.rss = now_ns, rss
        known.ram, known.most = chosen or (None, 0)
        self._left_ns -= now_ns - began_ns
        self._not_before_ns = now_ns + min(PAUSE_NS, (now_ns - began_ns) * SHARE)
