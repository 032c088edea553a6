"""Counts the memory of containers by zones: sets of memory nodes to which a policy holds them.

What is promised of a zone is the sum of the containers whose zone lies within it. Where that is more than the nodes
have, containers get more nodes, those of the lowest QoS class, the smallest and the youngest first; a container that
runs is never taken a node away. Nobody is refused for memory: kubelet has counted it, and who fits no zone has all
nodes. The rules are those of nri-plugins' libmem, but for that.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from nodeward.core.cpuset import CpuSet, of
from nodeward.core.tables import beside
from nodeward.core.topology import Machine
from nodeward.core.workload import Qos
from nodeward.features.cpus.memory_nodes import around, nodes_of
from nodeward.features.cpus.policies.table import policy_of
from nodeward.features.cpus.pool_settings import MemoryType
from nodeward.features.cpus.pools import changed, counted_cpus, own_of
from nodeward.features.cpus.values import Ask, Grant, Ground, Pools

_RANKS = {Qos.BEST_EFFORT: 0, Qos.BURSTABLE: 1, Qos.GUARANTEED: 2}
_WIDER: Sequence[tuple[MemoryType, ...]] = (
    (MemoryType.DRAM,),
    (MemoryType.DRAM, MemoryType.PMEM),
    (MemoryType.DRAM, MemoryType.PMEM, MemoryType.HBM),
)
"""Types of memory that are added where the container's own do not suffice."""


def counted(ground: Ground, before: Pools, after: Pools, asks: Iterable[Ask]) -> Pools:
    """The pools with the zones of these containers, which are new or have changed, and of those who get more nodes for
    them."""
    by_key = {ask.key: ask for ask in asks}
    keys = dict.fromkeys((*by_key, *changed(before, after)))
    pinned = [grant for key in keys if (grant := after.grants.get(key)) is not None and grant.pins_memory]
    if not pinned:
        return after
    machine = ground.machine
    every = of(node.id for node in machine.memory if node.bytes > 0)
    new = dict[str, Grant]()
    if every.bit_count() > 1:
        near = lru_cache(partial(nodes_of, machine))  # those of a pool have the same CPUs
        for grant in pinned:
            nodes = grant.memory_near or near(counted_cpus(after, grant), grant.types_now)
            found = _zoned(ground, grant, before.grants.get(grant.key), by_key.get(grant.key), nodes)
            new |= {grant.key: found} if found != grant else {}
    if not new:
        return after
    grants = {**after.grants, **new}
    wider = _widened(machine, grants, every, next(iter(new)))
    return Pools(after.pools, beside(after.grants, new | wider))


def warmed(ground: Ground, at: Pools, keys: Iterable[str]) -> Pools:
    """The pools with DRAM for these containers, whose time without it is over."""
    for key in keys:
        grant = replace(at.grants[key], cold_ns=0, warm_ns=0)
        nodes = grant.memory_near or nodes_of(ground.machine, counted_cpus(at, grant), grant.memory_types)
        grants = {**at.grants, key: replace(grant, zone=grant.zone | nodes if grant.zone else 0)}
        every = of(node.id for node in ground.machine.memory if node.bytes > 0)
        at = Pools(at.pools, beside(grants, _widened(ground.machine, grants, every, key)))
    return at


def _zoned(ground: Ground, grant: Grant, before: Grant | None, ask: Ask | None, near: CpuSet) -> Grant:
    if ask is None:  # its CPUs have changed since others came or went
        return replace(grant, zone=grant.zone | near) if near & ~grant.zone and grant.zone else grant
    had, why = (before.zone, before.widened) if before is not None else (0, "")
    zone = near
    if ask.mems is not None:  # it is there already, and keeps what it has: any nodes, where it is held to none
        zone = near | ask.mems | had if ask.mems else 0
    memory = policy_of(ground.rules.active).memory(ask)
    return replace(grant, memory=memory, zone=zone, rank=_RANKS[ask.qos], widened=why)


def promised(grants: Mapping[str, Grant]) -> Mapping[CpuSet, int]:
    """What is promised of each zone that a container has, with the zones within it."""
    own = own_of(grants)
    return {zone: sum(size for other, size in own.items() if not other & ~zone) for zone in own}


def _widened(machine: Machine, grants: Mapping[str, Grant], every: CpuSet, cause: str) -> dict[str, Grant]:
    """The grants that get more nodes until no zone but all nodes has more promised than it has."""
    size = {node.id: node.bytes for node in machine.memory}
    now, new = dict(grants), dict[str, Grant]()
    if not _over(now, size, every):
        return new
    for rank in (1, 2):
        for more in ((), *_WIDER):
            for zone, _ in _over(now, size, every):
                excess = dict(_over(now, size, every)).get(zone, 0)  # a zone before it may have changed that
                for key in _movable(now, zone, rank):
                    if excess <= 0:
                        break
                    grant = now[key]
                    wide = zone | around(machine, zone, (*grant.types_now, *more) if grant.types_now else more)
                    if wide != grant.zone and wide & ~zone:
                        now[key] = new[key] = replace(grant, zone=grant.zone | wide, widened=cause)
                        excess -= grant.memory
    return new


def _over(grants: Mapping[str, Grant], size: Mapping[int, int], every: CpuSet) -> list[tuple[CpuSet, int]]:
    """The zones with too much promised, and how much: the smallest ones first."""
    found = list[tuple[CpuSet, int]]()
    for zone, bytes_ in promised(grants).items():
        has = sum(amount for node, amount in size.items() if zone >> node & 1)
        if every & ~zone and bytes_ > has:
            found.append((zone, bytes_ - has))
    return sorted(found, key=lambda one: (one[0].bit_count(), one[0]))


def _movable(grants: Mapping[str, Grant], zone: CpuSet, rank: int) -> list[str]:
    """Who may leave a zone: by rank, then the smallest, then the youngest."""
    inside = [key for key, one in grants.items() if one.zone and not one.zone & ~zone and one.memory]
    age = {key: i for i, key in enumerate(inside)}
    allowed = [key for key in inside if grants[key].rank <= rank]
    return sorted(allowed, key=lambda key: (grants[key].rank, grants[key].memory, -age[key]))
