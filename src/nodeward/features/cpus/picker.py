"""Chooses CPUs of a set of free ones by what they share; one picker for `static-plus` and every policy with pools.

It promises, in this order: CPUs of the kind that is asked for before others; whole idle cores of one package where one
has enough; else any CPUs of one package where one has enough; and in either case the smallest group (core, cache, NUMA
node, die, package) that suffices, of several the one with the least room besides, then the one with the lowest CPU.
Where several groups are needed, they are few: the largest first. The same question has the same answer.

It must not know policies. Who may have which CPUs is decided before: `free` is all that it looks at.
"""

from collections.abc import Iterator
from enum import Enum

from nodeward.core.cpuset import CpuSet
from nodeward.core.topology import Level, Machine


class CpuPriority(Enum):
    """Which CPUs are taken first where a machine has different ones. Efficient cores are always low."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"
    ANY = "any"


_NARROW = (Level.CORE, Level.L2, Level.L3, Level.NUMA, Level.DIE, Level.PACKAGE)
"""From the narrowest group to the widest one. Where a cache spans NUMA nodes, or a node dies, either order is right."""
_AROUND = (Level.L3, Level.NUMA, Level.PACKAGE)


def pick(machine: Machine, free: CpuSet, n: int, kind: CpuPriority = CpuPriority.ANY, near: CpuSet = 0) -> CpuSet:
    """Exactly `n` CPUs of `free`; of those that share most with the CPUs `near`, if there are such.

    ValueError where `free` has fewer: who asks has looked before."""
    free &= machine.online
    if not 0 <= n <= free.bit_count():
        raise ValueError(f"{n} CPUs of {free.bit_count()}")
    got = 0
    for alike in _kinds(machine, kind):
        some = min(n, (have := free & alike).bit_count())
        if some:
            got |= _take(machine, _close(machine, have, some, near | got), some)
            n -= some
    return got


def drop(machine: Machine, held: CpuSet, n: int, kind: CpuPriority = CpuPriority.ANY) -> CpuSet:
    """Exactly `n` CPUs of `held` to give back: those whose loss leaves whole cores, near most of what is held."""
    keep = held.bit_count() - n
    for level in _AROUND:
        parts = [group.cpus & held for group in machine.groups(level)]
        most = max(parts, key=lambda part: (part.bit_count(), -_lowest(part)))
        if most.bit_count() >= keep:
            return held & ~pick(machine, most, keep, kind)
    return held & ~pick(machine, held, keep, kind)


def preferred(machine: Machine, kind: CpuPriority) -> CpuSet:
    """The CPUs that are taken first; all where the machine has one kind."""
    first, *others = _kinds(machine, kind)
    return first if first and any(others) else machine.online


def spans(machine: Machine, cpus: CpuSet) -> Level:
    """The narrowest group that has all of these CPUs."""
    for level in _NARROW:
        if any(cpus & ~group.cpus == 0 for group in machine.groups(level)):
            return level
    return Level.SYSTEM


def _kinds(machine: Machine, kind: CpuPriority) -> tuple[CpuSet, ...]:
    """The CPUs of each kind, those that are taken first in front."""
    every = machine.online
    low = machine.low | machine.efficient
    high = machine.high & ~low
    normal = every & ~low & ~high
    match kind:
        case CpuPriority.HIGH:
            return high, normal, low
        case CpuPriority.NORMAL:
            return normal, low, high
        case CpuPriority.LOW:
            return low, normal, high
        case CpuPriority.ANY:
            return (every,)


def _close(machine: Machine, free: CpuSet, n: int, near: CpuSet) -> CpuSet:
    """The free CPUs of the narrowest groups around `near` that have `n` of them."""
    if near:
        for level in _NARROW:
            around = 0
            for group in machine.groups(level):
                if group.cpus & near:
                    around |= group.cpus
            if (free & around).bit_count() >= n:
                return free & around
    return free


def _take(machine: Machine, free: CpuSet, n: int) -> CpuSet:
    threads = max(core.cpus.bit_count() for core in machine.cores)
    got = 0
    while n:
        whole = _union(core.cpus for core in machine.cores if core.cpus & free == core.cpus)
        free, counted, below = _narrowest(machine, free, whole, n, n - n % threads)
        parts = _parts(machine, free, below)
        if not parts:
            return got | _cores(machine, free, n)
        part = max(parts, key=lambda part: ((part & counted).bit_count(), -_lowest(part)))
        part = part & counted or part
        got |= part
        free &= ~part
        n -= part.bit_count()
    return got


def _narrowest(
    machine: Machine, free: CpuSet, whole: CpuSet, n: int, in_cores: int
) -> tuple[CpuSet, CpuSet, tuple[Level, ...]]:
    """The free CPUs of the group that suffices; which CPUs count in it (those of whole cores, or all); the levels
    below it."""
    for counted in (whole, free):
        for at, level in enumerate(_NARROW):
            best, tied = (0, 0), 0
            for group in machine.groups(level):
                have = group.cpus & free
                size = ((have & counted).bit_count(), have.bit_count())
                if size[1] < n or size[0] < in_cores:
                    continue
                if not tied or size < best:
                    best, tied = size, have
                elif size == best:
                    tied |= have
            if tied:
                first = _first(machine, free, tied)
                have = next(group.cpus for group in machine.groups(level) if group.cpus & first) & free
                return have, counted if in_cores else free, _NARROW[:at]
    return free, whole if in_cores and (whole.bit_count() >= in_cores) else free, _NARROW


def _first(machine: Machine, free: CpuSet, tied: CpuSet) -> CpuSet:
    """One CPU of groups that are as good as one another: where least room is around, then the lowest."""
    for level in _AROUND:
        best, kept = 0, 0
        for group in machine.groups(level):
            if group.cpus & tied:
                room = (group.cpus & free).bit_count()
                if not kept or room < best:
                    best, kept = room, group.cpus
                elif room == best:
                    kept |= group.cpus
        tied = tied & kept or tied
    return _lowest(tied)


def _parts(machine: Machine, free: CpuSet, below: tuple[Level, ...]) -> list[CpuSet]:
    """The free CPUs by the widest level below that divides them; none where only cores do."""
    cores = sum(1 for core in machine.cores if core.cpus & free)
    for level in reversed(below):
        parts = [have for group in machine.groups(level) if (have := group.cpus & free)]
        if len(parts) > 1:
            return parts if len(parts) < cores else []
    return []


def _cores(machine: Machine, free: CpuSet, n: int) -> CpuSet:
    """Whole cores by their lowest CPU, then CPUs of cores that are in use already."""
    got = 0
    cores = sorted((have for core in machine.cores if (have := core.cpus & free)), key=_lowest)
    idle = [core.cpus for core in machine.cores if core.cpus & free == core.cpus]
    for core in sorted(idle, key=_lowest):
        if core.bit_count() <= n - got.bit_count():
            got |= core
    for have in sorted(cores, key=lambda have: (have.bit_count(), _lowest(have))):
        while (left := have & ~got) and got.bit_count() < n:
            got |= _lowest(left)
    return got


def _lowest(cpus: CpuSet) -> CpuSet:
    return cpus & -cpus


def _union(sets: Iterator[CpuSet]) -> CpuSet:
    found = 0
    for one in sets:
        found |= one
    return found
