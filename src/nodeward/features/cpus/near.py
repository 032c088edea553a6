"""How near a pool of the tree is to the things that a container uses (`core.hints`).

The scores are nri-plugins': of a hint by CPUs, the part of these that the pool has; of one by memory nodes, 1 for a
NUMA node's pool that has one of them, and a tenth less for each kind of pool around it. Whole numbers stand for them,
so that the same hints give the same order.
"""

from collections.abc import Iterable, Sequence

from nodeward.core.cpuset import CpuSet, of
from nodeward.core.hints import Hint
from nodeward.core.topology import Level, Machine
from nodeward.features.cpus.pool_tree import TreePool

_OF_LEVEL = {Level.SYSTEM: 81, Level.PACKAGE: 90, Level.DIE: 90, Level.NUMA: 100, Level.L3: 90}
_WHOLE = 100
Score = tuple[int, int]


def cpus_of(machine: Machine, hint: Hint) -> CpuSet:
    """The CPUs near it; none where it names a node that is not there, or has none."""
    nodes = (node.cpus for node in machine.memory if hint.nodes >> node.id & 1)
    return hint.cpus & machine.online or sum(nodes) & machine.online


def is_there(machine: Machine, hint: Hint) -> bool:
    """Whether it names something which this machine has."""
    return bool(hint.cpus & machine.online or hint.nodes & of(node.id for node in machine.memory))


def usable(machine: Machine, hints: Iterable[Hint]) -> tuple[Hint, ...]:
    """Those that say something: near all CPUs is whatever the firmware does not place."""
    return tuple(one for one in hints if is_there(machine, one) and machine.online & ~one.cpus)


def score(machine: Machine, pool: TreePool, hints: Sequence[Hint]) -> Score:
    """The product of the pool's scores, and that of those above 0, both in the same units for every pool."""
    product = above = 1
    for hint in hints:
        mine, most = _of_one(machine, pool, hint)
        product, above = product * mine, above * (mine or most)
    is_near_any = any(_of_one(machine, pool, hint)[0] for hint in hints)
    return product, above if is_near_any else 0


def _of_one(machine: Machine, pool: TreePool, hint: Hint) -> tuple[int, int]:
    """The score, and the most that there could be."""
    if cpus := hint.cpus & machine.online:
        return _WHOLE * (cpus & pool.cpus).bit_count(), _WHOLE * cpus.bit_count()
    nodes = pool.memory | of(node.id for node in machine.memory if node.cpus & pool.cpus)
    return _OF_LEVEL[pool.level] if hint.nodes & nodes else 0, _WHOLE


def is_within(machine: Machine, pool: TreePool, hints: Iterable[Hint]) -> bool:
    """Whether all CPUs of the pool are near each of them; of memory without CPUs, whether it has that."""
    return all(
        not pool.cpus & ~cpus if (cpus := cpus_of(machine, hint)) else bool(pool.memory & hint.nodes) for hint in hints
    )
