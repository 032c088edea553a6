"""What the engine decides: an answer, goals and calls, each with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from nodeward.core.devices import DeviceNode
from nodeward.core.refusal import Reason, Refusal


class Scheduler(Enum):
    """A policy of the kernel's scheduler."""

    NONE = "none"
    """As the runtime has it."""
    OTHER = "other"
    FIFO = "fifo"
    RR = "rr"
    BATCH = "batch"
    IDLE = "idle"
    DEADLINE = "deadline"


class SchedulerFlag(Enum):
    """A flag of sched_setattr(2)."""

    RESET_ON_FORK = "reset-on-fork"
    RECLAIM = "reclaim"
    DL_OVERRUN = "dl-overrun"
    KEEP_POLICY = "keep-policy"
    KEEP_PARAMS = "keep-params"
    UTIL_CLAMP_MIN = "util-clamp-min"
    UTIL_CLAMP_MAX = "util-clamp-max"


class IoClass(Enum):
    """An I/O class of ioprio_set(2)."""

    NONE = "none"
    """As the runtime has it."""
    RT = "rt"
    BE = "be"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class SchedulingClass:
    """How the kernel schedules a container's processes and their block I/O. `runtime`, `deadline` and `period` are of
    the scheduler `deadline`, in nanoseconds as OCI and the kernel count them; nri-plugins hands them on as they are."""

    name: str = ""
    policy: Scheduler = Scheduler.NONE
    priority: int = 0
    flags: tuple[SchedulerFlag, ...] = ()
    nice: int = 0
    runtime: int = 0
    deadline: int = 0
    period: int = 0
    io_class: IoClass = IoClass.NONE
    io_priority: int = 0


@dataclass(frozen=True, slots=True)
class Mount:
    """A bind mount that a container is to have."""

    source: str
    destination: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class Adjustment:
    """What a container is to be given, as whole values. Empty, or 0, for no change."""

    unified: Mapping[str, str] = field(default_factory=dict)
    """Files of cgroup v2, such as `misc.max`, by name."""
    cpus: str = ""
    """In the kernel's list format, as `cpuset.cpus`. Empty never means all CPUs."""
    memory_nodes: str = ""
    """In the same format, as `cpuset.mems`."""
    cpu_shares: int = 0
    """As cgroup v1 counts them, 2 to 262144: CRI's and NRI's unit."""
    rdt_class: str = ""
    blockio_class: str = ""
    mounts: tuple[Mount, ...] = ()
    scheduling: SchedulingClass | None = None
    """At creation only, where the runtime's interface has a word for it."""
    devices: tuple[DeviceNode, ...] = ()
    """At creation only."""

    def sets(self) -> Mapping[str, str]:
        """What it sets, and to what, as texts. Two features never set the same."""
        plain = {
            "cpus": self.cpus,
            "memory_nodes": self.memory_nodes,
            "cpu_shares": str(self.cpu_shares or ""),
            "rdt_class": self.rdt_class,
            "blockio_class": self.blockio_class,
            "scheduling": self.scheduling.name if self.scheduling is not None else "",
        }
        mounts = {f"the mount at {mount.destination}": mount.source for mount in self.mounts}
        devices = {f"the device {node.path}": f"{node.major}:{node.minor}" for node in self.devices}
        return {**self.unified, **{name: text for name, text in plain.items() if text}, **mounts, **devices}

    def beside(self, other: "Adjustment") -> "Adjustment":
        """Both; this one's values where both set the same."""
        mine = self.sets()
        return Adjustment(
            {**other.unified, **self.unified},
            self.cpus or other.cpus,
            self.memory_nodes or other.memory_nodes,
            self.cpu_shares or other.cpu_shares,
            self.rdt_class or other.rdt_class,
            self.blockio_class or other.blockio_class,
            self.mounts + tuple(one for one in other.mounts if f"the mount at {one.destination}" not in mine),
            self.scheduling or other.scheduling,
            self.devices + tuple(one for one in other.devices if f"the device {one.path}" not in mine),
        )


@dataclass(frozen=True, slots=True)
class Final:
    """An answer that ends the ask."""

    value: Adjustment | Refusal
    reason: Reason


@dataclass(frozen=True, slots=True)
class Need:
    """The ask waits for a fact: `fact` is a kind (`pod`), `key` names it, `within_ns` bounds the wait."""

    fact: str
    key: str
    within_ns: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The ask waits until this record is durable."""

    record: str


class Special(Enum):
    """The value of a goal that is not a text."""

    ABSENT = "absent"


class Target(NamedTuple):
    """What a goal is about, as a key of tables: a limit of a cgroup, a device list, a number of NFD's."""

    kind: str
    """Says which feature gives such goals and which edge performs them: `misc.max`, `subtree`, `offer`, `nfd`."""
    where: str
    """A cgroup's path, or the name of what is published."""
    resource: str = ""
    """Of `misc.max` the misc resource."""

    def __str__(self) -> str:
        return ":".join(part for part in (self.kind, self.resource, self.where) if part)


@dataclass(frozen=True, slots=True)
class Goal:
    """What should be true on the node until another decision changes it.

    `value` is the text to be there; ABSENT takes back what our record says we wrote. `undo` asks that the old value is
    kept on disk before the first write (for what outlives pods). `perform` is false where the feature only observes.
    """

    target: Target
    value: str | Special
    reason: Reason
    undo: bool = False
    perform: bool = True
    ours: bool = False
    """What is to be taken back was written in our name by somebody else: by the runtime, at our word."""
    also: tuple[str, ...] = ()
    """More places that get alike: a shared CPU set of 450 containers is one goal. Each is a slot of its own."""

    def targets(self) -> tuple[Target, ...]:
        """Every target of it."""
        return (self.target, *(self.target._replace(where=where) for where in self.also))


@dataclass(frozen=True, slots=True)
class PodEvent:
    """A call: one Kubernetes Event on a pod, or on the node itself where `pod` is empty, sent at most once. Its outcome
    returns as CallEnded with the same `id`.

    `series` is the id of the call that made the Event object: what happens again is sent with the same and a higher
    `count`. Where it is the call's own id, the object is to be made. Times are by the clock that decisions go by.
    """

    id: int
    series: int
    namespace: str
    pod: str
    pod_uid: str
    container: str
    """Empty for the pod itself, or the node."""
    field_path: str
    """Where in the pod's spec the container stands, as Kubernetes writes it; empty for the pod itself."""
    reason: Reason
    count: int
    first_ns: int
    last_ns: int


@dataclass(frozen=True, slots=True)
class Fault:
    """A feature raised; its old slice was kept and its `on_error` answered."""

    feature: str
    error: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows from one event."""

    answer: Final | Need | Commit | None = None
    goals: tuple[Goal, ...] = ()
    forget: tuple[Target, ...] = ()
    """Targets whose world is gone (a removed cgroup): their slots end without a write."""
    faults: tuple[Fault, ...] = ()
    notes: tuple[Reason, ...] = ()
    """Things a person should hear of (a log line), at most once each."""
    calls: tuple[PodEvent, ...] = ()
    """One-shot effects, for what cannot be a goal."""


NOTHING = Decision()
"""What most events lead to."""
