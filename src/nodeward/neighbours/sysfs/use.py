"""How much each CPU is used, from /proc/stat: counters now, and the use between two looks."""

from collections.abc import Mapping

from nodeward.host.hostfs import HostFiles
from nodeward.neighbours.formats import proc_files

STAT = "/proc/stat"
MAX_BYTES = 4 * 1024 * 1024
"""A machine with 8192 CPUs has some 100 bytes for each, and numbers of all interrupts."""
Counters = Mapping[int, tuple[int, int]]
"""By CPU: ticks in all, and ticks in which it did something."""


def read(files: HostFiles) -> Counters:
    """The counters now. OSError, or WireError for a file that is not the kernel's."""
    return proc_files.cpu_times(files.read(STAT, MAX_BYTES))


def between(before: Counters, after: Counters) -> dict[int, int]:
    """The use of each CPU in thousandths. A CPU that was away, or whose counters ran backwards, is left out."""
    used = dict[int, int]()
    for cpu, (total, busy) in after.items():
        total_before, busy_before = before.get(cpu, (total, busy))
        if total > total_before and busy >= busy_before:
            used[cpu] = min(1000, 1000 * (busy - busy_before) // (total - total_before))
    return used
