"""Files below /proc (proc(5)): stat, statm, status and smaps of a process, and stat of the machine. Sans-I/O: bytes to
values, or WireError."""

import re
from typing import NamedTuple

from nodeward.core.cpuset import MAX_CPU
from nodeward.core.errors import WireError

MAX_SMAPS = 8 * 1024 * 1024
"""A VMM has some hundred mappings of some 700 bytes each."""
_KIB = 1024
_DIGITS = 19
_HEAD = re.compile(rb"^([0-9a-f]{1,16})-([0-9a-f]{1,16}) (\S{4}) \S+ \S+ \S+ *(.*)$", re.MULTILINE)
_RSS = re.compile(rb"\nRss: +(\d{1,15}) kB")
_HUGE = re.compile(rb"\n(?:Shared|Private)_Hugetlb: +(\d{1,15}) kB")
_STATUS = re.compile(rb"^(VmRSS|RssShmem|HugetlbPages):\s+(\d{1,15}) kB", re.MULTILINE)

_CPU_TIMES = re.compile(rb"^cpu(\d{1,4})((?: +\d{1,19}){1,16})", re.MULTILINE)


class Stat(NamedTuple):
    """What `stat` says of a process or a thread. `ticks`: user and system time, of all threads for a process."""

    name: str
    state: str
    parent: int
    ticks: int
    threads: int
    start: int


class Mapping(NamedTuple):
    """A mapping of smaps. `resident` has pages of hugetlbfs in it."""

    size: int
    access: str
    name: str
    resident: int
    huge: int = 0
    """Of `resident`, what is in hugetlbfs."""


def stat(data: bytes) -> Stat:
    """The name may have blanks and brackets: what follows begins after the last one."""
    opened, closed = data.find(b"("), data.rfind(b")")
    fields = data[closed + 1 :].split(None, 20)
    if opened < 0 or closed < opened or len(fields) < 20:
        raise WireError("stat", f"{data[:100]!r} is not a stat file of proc(5)")
    try:
        ticks = int(fields[11]) + int(fields[12])
        parent, threads, start = int(fields[1]), int(fields[17]), int(fields[19])
    except ValueError as error:
        raise WireError("stat", f"{data[:100]!r} has no numbers where proc(5) has them") from error
    name = data[opened + 1 : closed].decode("utf-8", "replace")
    return Stat(name, fields[0].decode("ascii", "replace"), parent, ticks, threads, start)


def cpu_times(data: bytes) -> dict[int, tuple[int, int]]:
    """The times of each CPU: its ticks in all since the start, and those in which it did something, from /proc/stat."""
    found = dict[int, tuple[int, int]]()
    for cpu, numbers in _CPU_TIMES.findall(data):
        ticks = [int(number) for number in numbers.split()]
        if len(ticks) >= 4 and int(cpu) <= MAX_CPU:
            total = sum(ticks[:8])  # time of guests is in user's
            found[int(cpu)] = total, total - sum(ticks[3:5])
    if not found:
        raise WireError("stat", f"{data[:100]!r} has no line of a CPU, such as cpu0 1 2 3 4")
    return found


def resident_pages(statm: bytes, *, shared: bool = True) -> int:
    """Pages of a process in memory; or without those that it shares with others, or with a file."""
    fields = statm.split()[1:3]
    if len(fields) < 2 or not all(field.isdigit() and len(field) <= _DIGITS for field in fields):
        raise WireError("statm", f"{statm[:100]!r} has no second and third number")
    resident, common = map(int, fields)
    return resident if shared else max(0, resident - common)


def status(data: bytes) -> dict[str, int]:
    """VmRSS, RssShmem and HugetlbPages in bytes, where they are there."""
    return {name.decode(): int(kib) * _KIB for name, kib in _STATUS.findall(data)}


def mappings(smaps: bytes, least: int) -> list[Mapping]:
    """The mappings of at least so many bytes."""
    found = list[Mapping]()
    for head in _HEAD.finditer(smaps):
        size = int(head[2], 16) - int(head[1], 16)
        if size >= least:
            following = _HEAD.search(smaps, head.end())
            block = smaps[head.end() : following.start() if following else len(smaps)]
            rss = _RSS.search(block)
            pages = int(rss[1]) if rss else 0
            huge = sum(int(kib) for kib in _HUGE.findall(block))
            name = head[4].decode("utf-8", "replace")
            found.append(Mapping(size, head[3].decode("ascii", "replace"), name, (pages + huge) * _KIB, huge * _KIB))
    return found
