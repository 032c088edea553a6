"""The machine's topology: its logical CPUs, and the caches, packages and memory nodes that they share. Read from sysfs
by `neighbours.sysfs`.

Every level lists its groups, also where a level has the same groups as another one (one die a package). A group of a
level without CPUs that are online is left out. The word for each level is sysfs's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from nodeward.core.cpuset import CpuSet


@dataclass(frozen=True, slots=True)
class CpuAmount:
    """An amount in thousandths of a CPU. `allocatable_m`: what containers can get of `capacity_m` at most;
    `available_m`: what they still can."""

    capacity_m: int
    allocatable_m: int
    available_m: int


@dataclass(frozen=True, slots=True)
class Zone:
    """CPUs that belong together: by the machine, or by the policy. `cpu` is None where it has none. `costs` are
    distances to zones, by name."""

    name: str
    type: str
    cpu: CpuAmount | None = None
    parent: str = ""
    costs: Mapping[str, int] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeZones:
    """All of them, those of the machine first. Without a zone there is nothing to tell, and no object."""

    zones: tuple[Zone, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)


MOST_NODES = 1024
"""Linux is built for so many NUMA nodes at most (CONFIG_NODES_SHIFT)."""


class Level(IntEnum):
    """What CPUs share, from all to nothing. Numbers as nri-plugins orders them."""

    SYSTEM = 1
    PACKAGE = 2
    DIE = 3
    NUMA = 4
    L3 = 5
    L2 = 6
    CORE = 7
    THREAD = 8


@dataclass(frozen=True, slots=True)
class Group:
    """CPUs that share something. `id` is unique in the level on this machine: a package's, die's and node's own where
    sysfs's is unique, and the lowest CPU of a core or cache, as kubelet has it for cores."""

    id: int
    cpus: CpuSet


@dataclass(frozen=True, slots=True)
class MemoryNode:
    """A NUMA node's memory; also of a node without CPUs. `distances` is by node number, empty where sysfs has none."""

    id: int
    cpus: CpuSet
    bytes: int = 0
    normal: bool = True
    distances: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine's CPUs. Sets are of CPUs that are online, but for `offline`."""

    online: CpuSet
    packages: tuple[Group, ...]
    dies: tuple[Group, ...]
    nodes: tuple[Group, ...]
    """NUMA nodes with CPUs. A machine without NUMA has one, 0."""
    l3: tuple[Group, ...]
    """Where a CPU has no such cache: its package."""
    l2: tuple[Group, ...]
    """Where a CPU has no such cache: its core."""
    cores: tuple[Group, ...]
    isolated: CpuSet = 0
    """The kernel's `isolcpus`: its scheduler never balances onto these."""
    efficient: CpuSet = 0
    """Cores of a hybrid machine that are made for economy."""
    high: CpuSet = 0
    """CPUs with a higher base frequency than others, where there is a difference; what is in neither set is normal."""
    low: CpuSet = 0
    memory: tuple[MemoryNode, ...] = ()
    faults: tuple[str, ...] = ()
    """What sysfs did not tell, a sentence each, and what is assumed for it."""
    offline: CpuSet = 0
    """CPUs that are there and not online."""
    near: Mapping[str, CpuSet] = field(default_factory=dict)
    """The CPUs near each device that the settings name, by its path there."""

    def groups(self, level: Level) -> tuple[Group, ...]:
        """The groups of a level."""
        match level:
            case Level.SYSTEM:
                return (Group(0, self.online),)
            case Level.PACKAGE:
                return self.packages
            case Level.DIE:
                return self.dies
            case Level.NUMA:
                return self.nodes
            case Level.L3:
                return self.l3
            case Level.L2:
                return self.l2
            case Level.CORE:
                return self.cores
            case _:
                return tuple(Group(cpu, 1 << cpu) for cpu in range(self.online.bit_length()) if self.online >> cpu & 1)
