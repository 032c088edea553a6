"""The tree of pools of `topology-aware`: the machine, its packages, dies, NUMA nodes and caches of level 3, each within
the one above. A level that would only repeat the one above it is left out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from nodeward.core.cpuset import CpuSet
from nodeward.core.topology import Group, Level, Machine
from nodeward.features.cpus.memory_nodes import nodes_of


@dataclass(frozen=True, slots=True)
class TreePool:
    """One pool. The tree has each one before those within it."""

    name: str
    level: Level
    cpus: CpuSet
    """All of its CPUs that are online, whoever has them."""
    above: int = -1
    """The place in the tree of the pool around it; -1 for the root."""
    depth: int = 0
    memory: CpuSet = 0
    """The memory nodes near its CPUs; 0 where they cannot be told."""


@dataclass(frozen=True, slots=True)
class Tree:
    """All pools, and what is asked of them for every container."""

    pools: tuple[TreePool, ...]
    paths: tuple[tuple[int, ...], ...] = ()
    """By pool, itself and those around it, the root last."""
    inside: tuple[tuple[int, ...], ...] = ()
    """By pool, those directly within it."""
    at: dict[str, int] = field(default_factory=dict)
    """The place of each pool by its name."""

    def around(self, name: str) -> str:
        """The pool around the one of this name; empty for the root, and for a pool that is not in the tree."""
        above = self.pools[self.at[name]].above if name in self.at else -1
        return self.pools[above].name if above >= 0 else ""


_NAMES = {
    Level.SYSTEM: "root",
    Level.PACKAGE: "socket #{}",
    Level.DIE: "die #{}",
    Level.NUMA: "NUMA node #{}",
    Level.L3: "L3 cache #{}",
}
"""As nri-plugins names its pools."""


def tree_of(machine: Machine) -> Tree:
    """The machine's pools. The root is the package where there is one only."""
    pools = list[TreePool]()
    if len(machine.packages) > 1:
        _grow(machine, pools, Level.SYSTEM, Group(0, machine.online), -1)
    else:
        _grow(machine, pools, Level.PACKAGE, machine.packages[0], -1)
    paths = tuple(tuple(_up(pools, i)) for i in range(len(pools)))
    inside = tuple(tuple(j for j, one in enumerate(pools) if one.above == i) for i in range(len(pools)))
    return Tree(tuple(pools), paths, inside, {one.name: i for i, one in enumerate(pools)})


def _grow(machine: Machine, pools: list[TreePool], level: Level, group: Group, above: int) -> None:
    """Adds a pool, and those within it."""
    at, depth = len(pools), pools[above].depth + 1 if above >= 0 else 0
    memory = nodes_of(machine, group.cpus)
    pools.append(TreePool(_NAMES[level].format(group.id), level, group.cpus, above, depth, memory))
    for below, groups in _within(machine, level, group.cpus):
        for one in groups:
            _grow(machine, pools, below, one, at)
        return


def _within(machine: Machine, level: Level, cpus: CpuSet) -> Iterator[tuple[Level, Sequence[Group]]]:
    """The levels that divide these CPUs, the widest first."""
    bytes_ = {node.id: node.bytes for node in machine.memory}
    for below in (Level.PACKAGE, Level.DIE, Level.NUMA, Level.L3):
        groups = [one for one in machine.groups(below) if one.cpus & ~cpus == 0]
        if below is Level.NUMA:
            groups = [one for one in groups if bytes_.get(one.id, 1) > 0]
        if below > level and len(groups) > 1:
            yield below, groups


def _up(pools: Sequence[TreePool], at: int) -> Iterator[int]:
    while at >= 0:
        yield at
        at = pools[at].above
