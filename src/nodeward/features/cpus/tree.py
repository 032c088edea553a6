"""Narrows the free CPUs to one place of the machine: the tree allocator of nri-plugins' balloons policy.

The tree is system, package, die, NUMA node, cache of level 3, of level 2, core, thread. The picker then takes the CPUs
in the place that was found. Promises nri-plugins' places on machines where it knows the same tree, names compared as
text among them (`cpu10` before `cpu8`). It knows no caches of level 3; here they keep a balloon together.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nodeward.core.cpuset import CpuSet
from nodeward.core.tables import kept
from nodeward.core.topology import Level, Machine
from nodeward.features.cpus.picker import CpuPriority, pick

_LETTERS = {
    Level.PACKAGE: "p",
    Level.DIE: "d",
    Level.NUMA: "n",
    Level.L3: "",
    Level.L2: "$",
    Level.CORE: "cpu",
    Level.THREAD: "t",
}


@dataclass(frozen=True, slots=True)
class Wish:
    """How CPUs are chosen. `hints`: sets from which all are taken where they suffice, the most important first."""

    balanced: bool = False
    """Where most CPUs are free, rather than where fewest are."""
    spread: bool = False
    """First threads of cores before second ones."""
    kind: CpuPriority = CpuPriority.ANY
    hints: tuple[CpuSet, ...] = ()


@dataclass(frozen=True, slots=True)
class _Node:
    cpus: CpuSet
    above: tuple[CpuSet, ...]
    """The CPUs of every level from the system down to the node itself."""
    name: str


def grow(machine: Machine, current: CpuSet, free: CpuSet, n: int, wish: Wish) -> CpuSet:
    """Chooses exactly `n` CPUs of `free`, near `current`. ValueError where `free` has fewer, as of `pick`."""
    for hint in wish.hints:
        if (free & hint).bit_count() >= n:
            free &= hint
    tree, step = _tree(machine, wish.spread), 1 if wish.spread else max(n, 1)
    got = 0
    for _ in range(0, n, step):
        place = _place(tree, current | got, free & ~got, step, wish.balanced)
        got |= pick(machine, place, step, wish.kind, near=current | got)
    return got


def shrink(machine: Machine, current: CpuSet, free: CpuSet, n: int, wish: Wish) -> CpuSet:
    """Exactly `n` CPUs of `current` to give back, one at a time: where it has fewest, the last ones first."""
    threads = _tree(machine, wish.spread)[-1]
    gone = 0
    for _ in range(n):
        left = current & ~gone
        may = left
        for hint in wish.hints:
            may = may & ~hint or may
        gone |= max(
            (node for node in threads if node.cpus & may),
            key=lambda node: ([-c for c in _counts(node, left)], [-c for c in _counts(node, free | gone)], node.name),
        ).cpus
    return gone


def _place(tree: tuple[tuple[_Node, ...], ...], current: CpuSet, free: CpuSet, n: int, balanced: bool) -> CpuSet:
    """The free CPUs of the deepest node that has `n`; of several the one with most of `current`."""
    sign = -1 if balanced else 1
    for nodes in reversed(tree):
        fit = [node for node in nodes if (node.cpus & free).bit_count() >= n]
        if fit:
            best = min(
                fit,
                key=lambda node: (
                    [-c for c in _counts(node, current)],
                    [sign * c for c in _counts(node, free)],
                    node.name,
                ),
            )
            return best.cpus & free
    return free


def _counts(node: _Node, cpus: CpuSet) -> list[int]:
    return [(above & cpus).bit_count() for above in node.above]


@kept
def _tree(machine: Machine, spread: bool) -> tuple[tuple[_Node, ...], ...]:
    """The nodes of each level. With `spread` each NUMA node is divided by the number of the thread in its core."""
    levels: list[tuple[_Node, ...]] = [(_Node(machine.online, (machine.online,), ""),)]
    for level, letter in _LETTERS.items():
        groups = [(f"{letter}{group.id}" if letter else "", group.cpus) for group in machine.groups(level)]
        levels.append(tuple(_below(levels[-1], groups)))
        if spread and level is Level.NUMA:
            levels.append(tuple(_below(levels[-1], [(f"ht{i}", cpus) for i, cpus in enumerate(_threads(machine))])))
    return tuple(levels)


def _below(parents: tuple[_Node, ...], groups: list[tuple[str, CpuSet]]) -> Iterator[_Node]:
    for parent in parents:
        for name, cpus in groups:
            if inside := parent.cpus & cpus:
                yield _Node(inside, (*parent.above, inside), f"{parent.name}{name}")


def _threads(machine: Machine) -> list[CpuSet]:
    """The first threads of all cores, the second ones, and so on."""
    found, left = list[CpuSet](), [core.cpus for core in machine.cores]
    while any(left):
        firsts = [cpus & -cpus for cpus in left]
        found.append(sum(firsts))
        left = [cpus & ~first for cpus, first in zip(left, firsts, strict=True)]
    return found
