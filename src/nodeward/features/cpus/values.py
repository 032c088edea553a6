"""What a CPU policy is asked and what it answers.

A grant is keyed by pod and container name (`uid/name`), so it outlives a restart of the container.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeward.core.cpuset import CpuSet
from nodeward.core.events import Event
from nodeward.core.hints import Hint
from nodeward.core.refusal import Reason
from nodeward.core.topology import Machine
from nodeward.core.workload import Labels, Qos, Role
from nodeward.features.cpus.pool_settings import MemoryType
from nodeward.features.cpus.settings import PolicySettings


@dataclass(frozen=True, slots=True)
class Ask:
    """What one container wants. A resize or a restart of the container is one whose key has a grant already."""

    key: str
    pod_uid: str
    namespace: str
    pod: str
    container: str
    qos: Qos
    request_m: int
    """Thousandths of a CPU."""
    limit_m: int = 0
    """0 for none."""
    role: Role = Role.REGULAR
    source: str = ""
    """Who said how much, in words."""
    known: bool = True
    """False where nobody could say what is requested: no policy may give CPUs of its own by a guess."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    has: CpuSet = 0
    """What it has, where it runs already: it stays there if it may. 0 for nothing known."""
    pod_level: bool = False
    """The pod has resources as a whole, and its containers none of their own but by these."""
    faults: tuple[str, ...] = ()
    """Why a more trusted source than `source` does not count, in sentences."""
    labels: Labels = field(default_factory=dict)
    """Its own and its pod's, by the keys that expressions have."""
    memory_request: int = 0
    """Bytes; 0 for none, or where nobody could say."""
    memory_limit: int = 0
    own: CpuSet = 0
    """Those that it alone has, by the policy before or on record."""
    mems: CpuSet | None = None
    """The memory nodes of a container that is there, 0 for any; None for one that is being created."""
    was: str = ""
    """The pool that it is in, where the pools are made anew."""
    hints: tuple[Hint, ...] = ()
    """Where the things lie that it uses."""
    resizes: bool = False
    """The runtime is updating it, and `request_m` is by that."""
    claims: tuple[str, ...] = ()
    """The claims of CPUs that it uses, by NAMESPACE/NAME."""
    unclaimed: str = ""
    """Why it is not known which those are, in words."""
    unhinted: tuple[str, ...] = ()
    """Why it is not known of all of them, in sentences."""
    kin: Mapping[str, int] | None = None
    """By key, the weight of each container that it wants to be near to; below 0: far from. None: it has no wish."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What one container has. May use: `own`, and besides the pool's CPUs where it has a `part` or nothing of its own,
    and `extra`."""

    key: str
    pool: str = ""
    """The pool that it shares; empty for none."""
    own: CpuSet = 0
    """Exclusive."""
    part_m: int = 0
    """What it takes of the pool, in thousandths of a CPU."""
    extra: CpuSet = 0
    """Lent to it alone."""
    shares: int = 0
    """cpu.shares that it is to have, 0 to leave them."""
    request_m: int = 0
    role: Role = Role.REGULAR
    source: str = ""
    reason: Reason = field(default_factory=lambda: Reason(""))
    """Why these: code and values for `explain`."""
    hide: bool = False
    """Of the pool's CPUs it has one thread of each core."""
    hidden: CpuSet = 0
    """Of the cores of its own CPUs, the threads that it does not use."""
    pinned: bool = True
    """False: it counts in its pool, and is not held to its CPUs."""
    namespace: str = ""
    group: str = ""
    """By which containers are kept together, where the pool's type has `group_by`."""
    pins_memory: bool | None = None
    """Whether it is held to the memory near its CPUs; None: the policy has no word on that."""
    memory_types: tuple[MemoryType, ...] = ()
    """Of which that memory is; none means any."""
    cold_ns: int = 0
    """For so long after its start it has no DRAM of these, in nanoseconds; 0 once it has it."""
    warm_ns: int = 0
    """When it gets it (CLOCK_BOOTTIME); 0 before its start."""
    memory_near: CpuSet = 0
    """The memory nodes that are its own in the place of those near its CPUs; 0 for these."""
    memory: int = 0
    """How many bytes count in its zone."""
    zone: CpuSet = 0
    """The memory nodes that it may use at least; 0 for any."""
    rank: int = 0
    """0 to 2, by its QoS class: where a zone has too little memory, those of the lowest rank get more nodes first."""
    widened: str = ""
    """The key of the container for which its zone was made wider last; its own where it came to a full one."""
    waits: bool = False
    """Given without a label that the settings name and nobody has told yet: it is placed anew once all are known."""

    @property
    def types_now(self) -> tuple[MemoryType, ...]:
        """Of which its memory is at present."""
        if not self.cold_ns:
            return self.memory_types
        return tuple(one for one in self.memory_types or MemoryType if one is not MemoryType.DRAM)

    @property
    def shares_pool(self) -> bool:
        """Whether it runs on its pool's CPUs."""
        return bool(self.pool) and (self.part_m > 0 or not self.own)


@dataclass(frozen=True, slots=True)
class Inside:
    """An instance of a type of several parts, which is itself within a pool. Of what the pool needs, it bears one of so
    many `shares`."""

    type: str
    number: int
    """Which of the components it is, of the instance around it."""
    shares: int


@dataclass(frozen=True, slots=True)
class Part:
    """CPUs of a pool that are there for a type, which counts them as its own. Of what the pool needs, the part bears
    one of so many `shares`."""

    type: str
    shares: int
    cpus: CpuSet = 0
    inside: tuple[Inside, ...] = ()
    """The instances around it within the pool, the outermost first."""


@dataclass(frozen=True, slots=True)
class Pool:
    """CPUs that containers share."""

    cpus: CpuSet
    lent: CpuSet = 0
    """Idle CPUs of nobody that its members may use too."""
    members: tuple[str, ...] = ()
    """Keys of the grants that share it, in the order in which they came."""
    firsts: CpuSet = 0
    """The lowest thread of each core, of `cpus` before `lent`."""
    apart: bool = False
    """Nobody but its members may run on `cpus`."""
    parts: tuple[Part, ...] = ()
    """Of which `cpus` are made, where several types have a share in them."""
    weight: int = 0
    """How much its CPUs were used when that was measured last, in thousandths of a CPU."""


@dataclass(frozen=True, slots=True)
class Pools:
    """The state of a policy."""

    pools: Mapping[str, Pool] = field(default_factory=dict)
    grants: Mapping[str, Grant] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recorded:
    """Which container had which CPUs, as the process that drove the policy before this one wrote it down."""

    machine: Machine
    rules: PolicySettings
    pools: Pools
    mems: Mapping[str, CpuSet] = field(default_factory=dict)
    """By key, the memory nodes of a container that is held to some."""


@dataclass(frozen=True, slots=True)
class CpusRecalled(Event):
    """Which CPUs containers had when the process that drove the policy before this one wrote it down. Told before
    anybody asks. `fault` says why the record cannot be believed: the runtime's own record counts then."""

    recorded: Recorded | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """What became of the pools of a `Recorded` with one decision."""

    gone: tuple[str, ...] = ()
    """Keys whose grants ended."""
    grants: tuple[Grant, ...] = ()
    """New grants, and those that are others than before."""
    pools: Mapping[str, Pool | None] = field(default_factory=dict)
    """Pools that are others than before, without their members: these follow from the grants. None: the pool ended."""
    mems: Mapping[str, CpuSet] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Denied:
    """Why not, in a sentence with the numbers and the remedy. Nothing of the attempt stays."""

    why: str


@dataclass(frozen=True, slots=True)
class Ground:
    """What a policy decides from: it never changes while the policy is in force."""

    machine: Machine
    rules: PolicySettings
