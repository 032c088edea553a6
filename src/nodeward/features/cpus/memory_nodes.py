"""Which memory nodes are near some CPUs, and of which type each is. Nodes are counted as bits, as CPUs are."""

from collections.abc import Collection, Iterable, Sequence

from nodeward.core.cpuset import CpuSet, of
from nodeward.core.topology import Machine, MemoryNode
from nodeward.features.cpus.pool_settings import MemoryType


def nodes_of(machine: Machine, cpus: CpuSet, wanted: Collection[MemoryType] = ()) -> CpuSet:
    """The memory nodes for these CPUs: of the types that are wanted (none: all), where there are any of them. 0: they
    cannot be told, and any are good."""
    there = [node for node in machine.memory if node.bytes > 0]
    near = [node for node in machine.memory if node.cpus & cpus]
    if not near or not there:
        return 0
    zone = [node for node in near if node.bytes > 0]
    types = types_of(machine)
    for one in wanted or MemoryType:
        if all(types[node.id] is not one for node in zone):
            zone += _closest(near, [node for node in there if types[node.id] is one])
    if wanted:
        zone = [node for node in zone if types[node.id] in wanted] or zone
    if not any(node.normal for node in zone):
        normal = [node for node in there if node.normal]
        zone += _closest(near, [node for node in normal if types[node.id] in wanted] or normal)
    return of(node.id for node in zone)


def around(machine: Machine, zone: CpuSet, wanted: Collection[MemoryType] = ()) -> CpuSet:
    """The nodes of each of these types (none: all) that are nearest to those of the zone, and not in it."""
    there = [node for node in machine.memory if node.bytes > 0]
    near, types = [node for node in there if zone >> node.id & 1], types_of(machine)
    found = list[MemoryNode]()
    for one in wanted or MemoryType:
        others = [node for node in there if not zone >> node.id & 1 and types[node.id] is one]
        found += _closest(near, others) if near else others
    return of(node.id for node in found)


def types_of(machine: Machine) -> dict[int, MemoryType]:
    """The type of each node that has memory."""
    there = [node for node in machine.memory if node.bytes > 0]
    dram = [one.bytes for one in there if one.cpus]

    def type_(node: MemoryNode) -> MemoryType:
        if node.cpus:
            return MemoryType.DRAM
        return MemoryType.HBM if dram and node.bytes * len(dram) < sum(dram) else MemoryType.PMEM

    return {node.id: type_(node) for node in there}


def _closest(near: Iterable[MemoryNode], others: Sequence[MemoryNode]) -> list[MemoryNode]:
    """All of `others` that have the smallest distance from any of `near`; all of them where sysfs tells none."""
    far = max((*(distance for one in near for distance in one.distances.values()), 0)) + 1
    to = {other.id: min(one.distances.get(other.id, far) for one in near) for other in others}
    least = min(to.values(), default=0)
    return [other for other in others if to[other.id] == least]
