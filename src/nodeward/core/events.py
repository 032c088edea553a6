"""The events that the engine decides about, in words that NRI, CRI, the API server and the kernel share. `apply` folds
these into the state.

`core.decide` stamps `at_ns` (CLOCK_BOOTTIME, nanoseconds), `wall_ns` (for display only) and `seq`; an edge leaves
them 0. No event has a field for arguments, environment values or file content, so none can leak or be recorded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from nodeward.core.cgroup import Hierarchy
from nodeward.core.claims import Claim, ClaimUid, Front, Promised
from nodeward.core.cpuset import CpuSet
from nodeward.core.decision import Target
from nodeward.core.devices import DeviceNode, PluginStanding
from nodeward.core.gating import Gated, Verdict
from nodeward.core.hints import NO_HINTS, Hints
from nodeward.core.topology import Machine
from nodeward.core.vms import CgroupDriver, Handler, VmReading
from nodeward.core.workload import Container, ContainerId, PodSpec, PodUid, Sandbox, SandboxId

NO_POD = PodUid("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The stamp every event carries."""

    at_ns: int = 0
    wall_ns: int = 0
    seq: int = 0

    def stamped(self, **stamp: int) -> "Event":
        """The event with its stamp."""
        return replace(self, **stamp)


# ---- the container runtime -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RuntimeConnected(Event):
    """A runtime answered. `multi_line`: its OCI runtime writes `misc.max` line by line (runc 1.2, crun 1.18)."""

    name: str
    version: str
    nri_version: str = ""
    multi_line: bool = False


@dataclass(frozen=True, slots=True)
class RuntimeLost(Event):
    """The runtime went away; what was known stays until it is listed again."""

    why: str


@dataclass(frozen=True, slots=True)
class Listed(Event):
    """Everything the runtime has. `as_of` is the core's sequence number when the list was *requested*: absence says
    nothing about what came later. `complete` is false for lists that prove no absence."""

    sandboxes: tuple[Sandbox, ...]
    containers: tuple[Container, ...]
    as_of: int
    complete: bool = True


@dataclass(frozen=True, slots=True)
class SandboxStarted(Event):
    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class SandboxStopped(Event):
    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class SandboxRemoved(Event):
    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Question(Event):
    """An event somebody waits for the answer of; `core.ask` gives it its `ask_id`."""

    ask_id: int = field(default=0, kw_only=True)


@dataclass(frozen=True, slots=True)
class Creating(Question):
    """The runtime is about to create a container (tentative until Created). Answer: Adjustment or Refusal."""

    sandbox: Sandbox
    container: Container
    by_hook: bool = field(default=False, kw_only=True)
    """The OCI hook asks, for a container whose cgroup is there; it writes each resource by itself."""
    hints: Hints = field(default=NO_HINTS, kw_only=True)
    """Where what it uses lies, as far as the policy of CPUs goes by that."""

    def stamped(self, **stamp: int) -> "Creating":
        """The question with its stamp. Written out, since a runtime waits for it."""
        return Creating(self.sandbox, self.container, by_hook=self.by_hook, hints=self.hints, **stamp)


@dataclass(frozen=True, slots=True)
class Created(Event):
    sandbox: Sandbox
    container: Container


@dataclass(frozen=True, slots=True)
class Hooked(Event):
    """The OCI hook reported a sandbox, or a container in it that is about to run. Their cgroups are there, and nothing
    but the cgroups tells of their end. What a runtime tells of them itself takes this one's place."""

    sandbox: Sandbox
    container: Container | None = None


@dataclass(frozen=True, slots=True)
class CreateFailed(Event):
    container_id: ContainerId


@dataclass(frozen=True, slots=True)
class Started(Event):
    """The container's process runs; its cgroup can be read."""

    sandbox: Sandbox
    container: Container


@dataclass(frozen=True, slots=True)
class Updating(Question):
    """The runtime is about to update a container. The answer carries the whole current `misc.max`, or the runtime
    would write the old one back."""

    sandbox: Sandbox
    container: Container


Asked = Creating | Updating
"""What a runtime waits for. A name of its own, since a union written in a test is made anew at each test."""


# ---- kubelet ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Allocating(Question):
    """Kubelet admits a container and has chosen these ids of `resource` for it; it does not say for which pod. Answer:
    an empty Adjustment, or a Refusal, after which the pod has failed for good."""

    resource: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Starting(Question):
    """Kubelet is about to start a container that has these ids of `resource`. Answer: an empty Adjustment, or a
    Refusal, after which kubelet tries again."""

    resource: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Preparing(Question):
    """Kubelet is about to make the sandbox of a pod with a claim that has devices of this `driver` of ours. Answer: an
    empty Adjustment, or a Refusal; with NO_CAPACITY it may be asked again until kubelet waits no more."""

    driver: str
    claim: Claim


Admitted = Allocating | Starting | Preparing
"""What kubelet waits for."""


@dataclass(frozen=True, slots=True)
class Unprepared(Event):
    """Kubelet has no use for a prepared claim any more: its pods' containers have ended. Also what was decided of a
    Preparing that could not be answered."""

    driver: str
    claim: ClaimUid


@dataclass(frozen=True, slots=True)
class ClaimsRecalled(Event):
    """The claims of a driver of ours that were prepared before the daemon started. Where `fault` says why that is not
    known, nothing else is there, and nothing is promised meanwhile."""

    driver: str
    claims: tuple[Promised, ...] = ()
    adopted: tuple[Claim, ...] = ()
    """Those that were not on record: kubelet has prepared them, and the API server says what they were given."""
    fault: str = ""


@dataclass(frozen=True, slots=True)
class DriverTold(Event):
    """Whether kubelet has a driver of ours registered, and why not."""

    driver: str
    registered: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class SliceTold(Event):
    """What the API server has of the ResourceSlice of a driver of ours: of each device how much the scheduler counts
    by, 0 for one that is withheld. `since_wall_ns` is when it was last written, by the API server's clock; 0 where that
    is not known. `first`: no life of the daemon before this one has made one."""

    driver: str
    devices: Mapping[str, int] = field(default_factory=dict)
    since_wall_ns: int = 0
    first: bool = False


@dataclass(frozen=True, slots=True)
class FrontChosen(Event):
    """A person has chosen by which way keys go, now or before the daemon started."""

    front: Front


@dataclass(frozen=True, slots=True)
class GrantsRecalled(Event):
    """The ids that an earlier life of the daemon granted since the machine's boot, by resource, with how many times
    each. `fault` says why the journal of grants cannot be trusted whole, or not be written: nothing is granted then.
    Told at the start, and again when the fault is another or over; grants that were told before stand."""

    grants: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    fault: str = ""
    lost: bool = False
    """There was a journal of this boot, and it is gone: what it said is known to kubelet alone, as far as it is."""


@dataclass(frozen=True, slots=True)
class PodsOfKubelet(Event):
    """Every pod that kubelet has, by its Pods API. `as_of`: see Listed. Where `fault` says why it cannot be asked,
    nothing else is there, and what was told before stands."""

    as_of: int
    pods: tuple[PodSpec, ...] = ()
    fault: str = ""
    absent: bool = False
    """The fault is that nobody serves it: kubelet is down, or has no such API."""


@dataclass(frozen=True, slots=True)
class PluginTold(Event):
    """The state of our device plugin for a resource."""

    resource: str
    standing: PluginStanding
    why: str = ""
    restarts: int = 0
    """How often kubelet was seen to begin anew, ever."""


@dataclass(frozen=True, slots=True)
class QuotesTold(Event):
    """Whether the service answers that makes quotes for VMs with this kind of key (TDX: the QGS)."""

    key: str
    answers: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class NfdSeen(Event):
    """What Node Feature Discovery has for this node in the API server. Where `fault` says why it cannot be asked,
    nothing else is there, and what was told before stands."""

    served: bool = False
    """Whether the API server knows NodeFeature objects at all."""
    worker: bool = False
    """Whether NFD's own worker has an object for this node, and keeps it up."""
    discovered: Mapping[str, int] = field(default_factory=dict)
    """How many keys there are of each kind, by NFD's own object."""
    written: Mapping[str, int] = field(default_factory=dict)
    """What our object says of each kind; empty where there is none."""
    on_node: Mapping[str, int] = field(default_factory=dict)
    """The capacity that the node has of each extended resource of the settings, whoever put it there."""
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Updated(Event):
    sandbox: Sandbox
    container: Container


@dataclass(frozen=True, slots=True)
class Stopped(Event):
    sandbox: Sandbox
    container: Container


@dataclass(frozen=True, slots=True)
class Removed(Event):
    sandbox_id: SandboxId
    container_id: ContainerId


# ---- the API server --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PodSeen(Event):
    """A pod as the API server (or the disk) has it now."""

    pod: PodSpec


@dataclass(frozen=True, slots=True)
class PodGone(Event):
    uid: PodUid


@dataclass(frozen=True, slots=True)
class PodsListed(Event):
    """All pods bound to this node. `as_of`: see Listed."""

    pods: tuple[PodSpec, ...]
    as_of: int


@dataclass(frozen=True, slots=True)
class ApiBack(Event):
    """The API server answers (again)."""


@dataclass(frozen=True, slots=True)
class ApiLost(Event):
    """The API server does not answer; pods are the last known ones from here on. `since_wall_ns` says since when, where
    that is longer ago: what is known is then from an earlier life."""

    why: str
    since_wall_ns: int = field(default=0, kw_only=True)


# ---- the kernel ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MiscReading:
    """The misc files of one cgroup at one moment, by resource. A value at or above 2**63 in the file is negative here.

    `limit` has no entry where the file says `max`. `controller` is false where the cgroup has no misc files. `outside`:
    the container's processes are not in it, since its runtime does not join the misc hierarchy of cgroup v1."""

    controller: bool = True
    limit: Mapping[str, int] = field(default_factory=dict)
    usage: Mapping[str, int] = field(default_factory=dict)
    peak: Mapping[str, int] = field(default_factory=dict)
    refusals: Mapping[str, int] = field(default_factory=dict)
    refusals_local: Mapping[str, int] = field(default_factory=dict)
    outside: bool = False


@dataclass(frozen=True, slots=True)
class CapacityRead(Event):
    """`misc.capacity` and `misc.current` of the root of `tree`. `controller` is false where the kernel has no misc
    controller, or where it cannot be used (the tree's fault)."""

    controller: bool
    capacity: Mapping[str, int] = field(default_factory=dict)
    usage: Mapping[str, int] = field(default_factory=dict)
    tree: Hierarchy = field(default_factory=Hierarchy)


@dataclass(frozen=True, slots=True)
class EnclavesSeen(Event):
    """The node's SGX by its files: the device nodes that are there, why others are not, by path, and how many bytes of
    enclave memory each NUMA node has; empty where the kernel does not tell (before Linux 5.17)."""

    nodes: tuple[DeviceNode, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    memory: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sampled(Event):
    """What was read of cgroups, by cgroup path below the cgroup root.

    `as_of` is the core's sequence number when the reading began; `gone` are the asked-for cgroups that were not there.
    `rest_same`: every other cgroup with a known reading was read as well, and says what is known, but for `unread`. A
    pass of the sampler over a quiet node is thus a short event, whatever the number of cgroups. One in which much has
    changed is told in several, of the same `as_of`; only the last one has `gone`, `rest_same` and `unread`."""

    readings: Mapping[str, MiscReading]
    as_of: int
    gone: tuple[str, ...] = ()
    rest_same: bool = False
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FoundCgroup:
    """A container's cgroup beneath a pod's. `pod_uid` is empty where the pod's cgroup is not named after it."""

    path: str
    id: ContainerId
    pod_uid: PodUid


@dataclass(frozen=True, slots=True)
class CgroupsFound(Event):
    """Containers that are known by their cgroup alone: the runtime lost their events. `as_of`: when the search
    began."""

    found: tuple[FoundCgroup, ...]
    as_of: int


@dataclass(frozen=True, slots=True)
class HeldElsewhere:
    """Keys charged to a cgroup outside of all known pods. `below` is true where they are not the cgroup's own: it has
    children, and holds more than they do together, as after a cgroup was removed with its charge."""

    path: str
    key: str
    amount: int
    below: bool
    pod: PodUid = NO_POD
    """The pod in whose cgroup it is, by that cgroup's name: the runtime has not told of it."""


@dataclass(frozen=True, slots=True)
class KeysRead(Event):
    """One sample of the key counters, read in the order root, pods, root, pods, by the misc controller's names.

    `as_of` is the core's sequence number when it began. A value at or above 2**63 in a file is negative here."""

    as_of: int
    capacity: Mapping[str, int] = field(default_factory=dict)
    """What misc.capacity says, 0 for a kind that it does not name; empty where it is hidden or cannot be read, or there
    is no misc controller."""
    roots: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Both reads of the root. A kind that it did not show both times is left out: what is in use of it is not known."""
    pods: Mapping[PodUid, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    """Both reads of each pod that ever held one of the keys within the sample; a pod that is left out held none."""
    unread: tuple[PodUid, ...] = ()
    """Pods whose counters could not be read twice."""
    elsewhere: tuple[HeldElsewhere, ...] = ()
    read_ns: int = 0
    """When it began: what it does not show was not there then. 0 for when it is told."""


@dataclass(frozen=True, slots=True)
class KeysHeld(Event):
    """Which pods have which ids of TEE keys, by kubelet's own checkpoint, and the ids that are registered with it, each
    by the extended resource's name. Told when it has changed; both are empty where no plugin has ever registered.

    `as_of` is the core's sequence number when it was read. Where `fault` says why it could not be, what was told before
    stands. Nothing else is there then, but for `pods` where kubelet's PodResources says what some of them have."""

    as_of: int
    pods: Mapping[PodUid, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    registered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fault: str = ""
    read_ns: int = 0
    """When the read began: it says nothing of what has been since, however long it took. 0 for when it is told."""
    answered: bool | None = None
    """Whether PodResources, asked because of the fault, has answered, and all whom it names with ids are in `pods`;
    None where it was not asked."""


@dataclass(frozen=True, slots=True)
class TopologyRead(Event):
    """The machine's CPUs, at the start and whenever they have changed (a CPU went offline, or came)."""

    machine: Machine


@dataclass(frozen=True, slots=True)
class StartLate(Event):
    """The wait before a container's program ran out while `others` were still on its CPUs (container ids), or its own
    set was not there. `refused`: it was not started."""

    container_id: ContainerId
    others: tuple[ContainerId, ...] = ()
    refused: bool = False


@dataclass(frozen=True, slots=True)
class CpusetsRead(Event):
    """What cgroups were given (`cpuset.cpus`), by cgroup path, where that is not what was wanted of them. `lost`: those
    whose set cannot be read, with the reason; they may run on any CPU. `as_of` is the core's sequence number when the
    reading began. `hangs`: that did not come back, and nobody is known to have changed anything."""

    sets: Mapping[str, CpuSet]
    as_of: int
    lost: Mapping[str, str] = field(default_factory=dict)
    hangs: bool = False


@dataclass(frozen=True, slots=True)
class CpusUsed(Event):
    """How much each CPU was used since the last such event, in thousandths, where a policy divides CPUs by use."""

    used: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class MemoryUsed(Event):
    """Bytes of memory that containers use on each NUMA node, of those where that has changed; empty where it is not
    known any more."""

    used: Mapping[ContainerId, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class HandlersRead(Event):
    """The runtime handlers that start VMs, by the configurations on this node: at the start and when these change."""

    handlers: tuple[Handler, ...]


@dataclass(frozen=True, slots=True)
class VmsRead(Event):
    """Some VM sandboxes as they are now. A round is told in several events, since each holds up others for a while.
    `there`, with the last of a round: all that are there; the others have ended."""

    readings: tuple[VmReading, ...]
    version: int
    """Of cgroups: 1, or 2."""
    driver: CgroupDriver | None = None
    there: tuple[SandboxId, ...] | None = None


# ---- gates -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GateAsked(Event):
    """The relay holds the start of this pod, and asks whether its gate is open."""

    pod: Gated


@dataclass(frozen=True, slots=True)
class GateSet(Event):
    """A verdict on a pod; it is on disk."""

    uid: PodUid
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class GateRecalled(Event):
    """The verdicts of an earlier life of the daemon; `fault` says why they cannot be read."""

    verdicts: Mapping[PodUid, Verdict] = field(default_factory=dict)
    fault: str = ""


# ---- the core's own --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewSettings(Event):
    """Settings were accepted; everything is decided by them from here on. Each engine says what they are."""

    settings: object


@dataclass(frozen=True, slots=True)
class FactRead(Event):
    """The answer to a Need: the fact is in the state by now (`why_missing` empty), or will not come in time."""

    ask_id: int
    why_missing: str = ""


@dataclass(frozen=True, slots=True)
class Committed(Event):
    """The answer to a Commit; `error` is empty when the record is durable."""

    ask_id: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class Expired(Event):
    """The ask's deadline has come: answer now."""

    ask_id: int


@dataclass(frozen=True, slots=True)
class Abandoned(Event):
    """The caller no longer waits for the answer: undo what was reserved."""

    ask_id: int


News = FactRead | Committed | Expired
"""What brings an open ask further."""


@dataclass(frozen=True, slots=True)
class Reached(Event):
    """Goals that are true now: the targets of one batch, since each event costs a decision."""

    targets: tuple[Target, ...]
    written: tuple[Target, ...] = ()
    """Those of them where something else was before, so that it had to be written."""

    def of(self, kinds: tuple[str, ...]) -> "Reached | None":
        """The same of these kinds of goals alone; None where there are none."""
        mine = tuple(target for target in self.targets if target.kind in kinds)
        if not mine or len(mine) == len(self.targets):
            return self if mine else None
        return replace(self, targets=mine, written=tuple(target for target in self.written if target.kind in kinds))


@dataclass(frozen=True, slots=True)
class Missed(Event):
    """Goals of one batch that could not be reached this time, each with why. The slots try them again."""

    why: tuple[tuple[Target, str], ...]

    def of(self, kinds: tuple[str, ...]) -> "Missed | None":
        """The same of these kinds of goals alone; None where there are none."""
        mine = tuple((target, why) for target, why in self.why if target.kind in kinds)
        return replace(self, why=mine) if mine else None


@dataclass(frozen=True, slots=True)
class CallEnded(Event):
    """What became of a call. `error` is empty where it was performed; nobody tries it again."""

    call_id: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class Tick(Event):
    """`next_wake` has come."""
