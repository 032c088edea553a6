"""The state of CPUs: which container has which, by the policy in force, and what the kernel has."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeward.core.by_claim import ByClaim
from nodeward.core.cpuset import CpuSet
from nodeward.core.modes import NO_POLICY
from nodeward.core.topology import Machine
from nodeward.core.workload import ContainerId
from nodeward.features.cpus.settings import PolicySettings
from nodeward.features.cpus.values import Pools, Recorded


@dataclass(frozen=True, slots=True)
class Held:
    """A container that is there, by its id: whose grant it has, and which CPUs it is known to be held to."""

    key: str
    path: str = ""
    """Its cgroup; empty where nobody has told."""
    has: CpuSet = 0
    """What was read back of its cgroup last, or given at its creation. 0: not known, so it may run anywhere."""
    given: CpuSet = 0
    """What the runtime's own record says, as far as we told it: it writes that again when it starts the container."""
    asked: CpuSet = 0
    """The latest goal for its cgroup while nobody has said that it was reached; 0 for none."""
    may: CpuSet = 0
    """Every CPU of goals since `has` was read back: a write of an earlier one may be under way still."""
    since_ns: int = 0
    """When `has` became what it is."""
    seq: int = 0
    """The same by sequence number: a reading that began before says nothing of it."""
    mems: CpuSet = 0
    """The memory nodes that it is to have at least; 0: it is not pinned to any."""
    mems_asked: CpuSet = 0
    """Those that the runtime was told at its creation, or the latest goal for its cgroup."""

    def told(self, to: CpuSet) -> "Held":
        """The entry once its cgroup has a goal. Written out, since one decision may change hundreds."""
        may, mems = self.may | to, (self.mems, self.mems_asked)
        return Held(self.key, self.path, self.has, self.given, to, may, self.since_ns, self.seq, *mems)

    def read_back(self, to: CpuSet, at_ns: int, seq: int) -> "Held":
        """The entry once the kernel has confirmed it. 0: it is held to nothing any more."""
        given, mems = self.given if to else 0, (self.mems, self.mems_asked)
        return Held(self.key, self.path, to, given, 0, 0, at_ns, seq, *mems)


@dataclass(frozen=True, slots=True)
class Cpus:
    """Slice of the feature `cpus`."""

    machine: Machine | None = None
    """What the policy stands on: the machine as it was read last, or `newer` has that."""
    rules: PolicySettings = field(default_factory=PolicySettings)
    """In force: newer ones that do not fit are refused whole."""
    pools: Pools = field(default_factory=Pools)
    held: Mapping[ContainerId, Held] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    """Why newer settings are not in force."""
    unplaced: Mapping[str, str] = field(default_factory=dict)
    """By key, why a container that runs has no grant by the policy: it stays where it is."""
    misses: Mapping[ContainerId, str] = field(default_factory=dict)
    """Why the last write failed, until one succeeds."""
    memory_misses: Mapping[ContainerId, str] = field(default_factory=dict)
    """The same for memory nodes."""
    memory_used: Mapping[ContainerId, Mapping[int, int]] = field(default_factory=dict)
    """Bytes in use on each NUMA node, of the containers for which that was read last, to a few percent."""
    drifts: int = 0
    """How often somebody else had changed a set, ever; each time it was put right."""
    late: int = 0
    """How many programs were started, or refused, while others were still on their CPUs, ever."""
    in_force: bool = False
    """Whether any settings are. False after a start by settings that do not fit: then nothing is pinned."""
    recorded: Recorded | None = None
    """What the process before this one wrote down, until the runtime has told which containers are left of it."""
    listed: bool = False
    """Whether the runtime has told all that it has to this process."""
    cold: Mapping[str, int] = field(default_factory=dict)
    """By key, when a container that has begun without DRAM gets it (CLOCK_BOOTTIME, nanoseconds)."""
    by_claim: ByClaim = field(default_factory=ByClaim)
    newer: Machine | None = None
    """The machine as it was read last, where no settings fit it: the policy goes on by `machine`."""


def is_active(cpus: Cpus) -> bool:
    """Whether a policy that pins is in force, or was before this one."""
    return bool(cpus.held) or cpus.rules.active not in NO_POLICY


def is_unfit(cpus: Cpus) -> bool:
    """Whether nothing is pinned since the settings at the start do not fit the machine."""
    return bool(cpus.refused) and not cpus.in_force


def latest(cpus: Cpus) -> Machine | None:
    """The machine as it was read last."""
    return cpus.newer or cpus.machine
