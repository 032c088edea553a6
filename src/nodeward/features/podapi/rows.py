"""The Pod API's questions and answers; contracts/podapi.proto is made of them (scripts/generate-protos).

An answer about a pod is made of sections, each with its source. Thousandths of a CPU end in `_m`; memory is in bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum, StrEnum
from typing import Final, Generic, TypeVar

from nodeward.core.devices import PodDevice, PodNuma
from nodeward.core.vms import PodNetwork
from nodeward.features.gate.rows import PodGate

HOST: Final = "HOST"
GUEST: Final = "GUEST"
BLOCK: Final = "block"
NFS: Final = "nfs"


@dataclass(frozen=True, slots=True)
class OfferedVolume:
    """A volume that a runtime could mount in its guest."""

    volume: str
    """Its name in the pod's spec."""
    path: str = ""
    """The mount's source as the container has it. Without it the host cannot be told, and stays the owner."""
    capabilities: tuple[str, ...] = ()
    """How the guest can get it: block, nfs, virtiofs. Other words are ignored."""
    fs: tuple[str, ...] = ()
    """The guest's file systems; empty for any."""


@dataclass(frozen=True, slots=True)
class OfferVolumesRequest:
    """A runtime offers to mount these."""

    pod_uid: str
    sandbox: str
    volumes: tuple[OfferedVolume, ...]


@dataclass(frozen=True, slots=True)
class VolumeOffer:
    """Who is to mount one volume: `owner` is HOST or GUEST."""

    volume: str
    owner: str
    why: str
    lease_s: int = 0
    """GUEST until then, unless it is confirmed; 0 where it is confirmed, or where the host is the owner."""
    firm: bool = False
    held_by: str = ""
    """The sandbox that has it instead."""


@dataclass(frozen=True, slots=True)
class OfferVolumesResponse:
    """One offer for each volume that was asked for, in that order."""

    pod_uid: str
    sandbox: str
    offers: tuple[VolumeOffer, ...]


@dataclass(frozen=True, slots=True)
class ConfirmVolumeRequest:
    """The guest mounts the volume; or, with `release`, it does not or no longer."""

    pod_uid: str
    sandbox: str
    volume: str
    release: bool = False


@dataclass(frozen=True, slots=True)
class ConfirmVolumeResponse:
    """Who mounts it from now on."""

    volume: str
    owner: str
    why: str


@dataclass(frozen=True, slots=True)
class ListVolumeClaimsRequest:
    """Which claims: of a path, of a pod, or all."""

    path: str = ""
    pod_uid: str = ""


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A volume that a guest has, or is offered."""

    volume: str
    path: str
    namespace: str
    pod: str
    pod_uid: str
    sandbox: str
    claim_name: str
    """Of the PersistentVolumeClaim."""
    firm: bool
    lease_s: int
    by: str
    """Who said so: `OfferVolumes`, `ConfirmVolume`, `HoldVolume` of the host, or `mountInfo.json` where Kata's shim has
    recorded itself."""
    holder: str = ""
    """Who on the host is mounting it."""


@dataclass(frozen=True, slots=True)
class HoldVolumeRequest:
    """Somebody on the host is about to mount the volume at `path`, or asks for more time; or, with `release`, it is
    done."""

    path: str
    holder: str
    """Any name that no other on the host has, such as a driver's with its process id."""
    release: bool = False


@dataclass(frozen=True, slots=True)
class HoldVolumeResponse:
    """Whether the holder has the volume; without it nothing may be mounted there."""

    path: str
    held: bool
    why: str
    lease_s: int = 0
    """Ask again within it, for as long as it takes."""
    held_by: str = ""
    """The sandbox, or the holder, that has it instead."""


@dataclass(frozen=True, slots=True)
class ListVolumeClaimsResponse:
    """The claims. While `complete` is false a volume that is not among them may be a guest's all the same."""

    claims: tuple[VolumeClaim, ...]
    complete: bool = True
    why: str = ""


@dataclass(frozen=True, slots=True)
class VolumeMount:
    """The mount point of a volume in a container."""

    container: str
    read_only: bool = False
    sub_path: bool = False
    """By subPath or subPathExpr."""
    raw: bool = False
    """As a block device, without a file system."""
    shared: bool = False
    """Mounts made later pass between host and container (mountPropagation)."""


@dataclass(frozen=True, slots=True)
class SpecVolume:
    """A volume of a pod's spec."""

    name: str
    kind: str
    """The name of its source, such as secret or persistentVolumeClaim."""
    claim_name: str = ""
    medium: str = ""
    """Of an emptyDir."""
    mounts: tuple[VolumeMount, ...] = ()


@dataclass(frozen=True, slots=True)
class PodVolumeRow:
    """A volume for the section `volumes`."""

    name: str
    kind: str
    claim_name: str
    medium: str
    mounts: tuple[VolumeMount, ...]
    owner: str
    why: str
    """Why the host must mount it, or who has it."""
    sandbox: str = ""
    firm: bool = False
    lease_s: int = 0


class PullMode(StrEnum):
    """Whether the image of a container is pulled on the host or in the guest."""

    HOST = "HOST"
    GUEST = "GUEST"
    UNKNOWN = "UNKNOWN"


class PullState(StrEnum):
    """Whether it is known for which sandbox a pull is."""

    RESOLVED = "RESOLVED"
    PENDING = "PENDING"
    """The sandbox is not known yet: ask again."""
    STALE = "STALE"
    """A later attempt of that pod exists."""
    UNKNOWN = "UNKNOWN"
    """Nobody can tell: no relay answers."""


class GuestState(StrEnum):
    """How far a guest is with an image."""

    PULLING = "PULLING"
    PULLED = "PULLED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class ResolvePullRequest:
    """Names, UID and attempt as kubelet has them in PullImageRequest.sandbox_config.metadata."""

    namespace: str
    name: str
    uid: str
    attempt: int = 0
    image: str = ""


@dataclass(frozen=True, slots=True)
class ResolvePullResponse:
    """The sandbox that the pull is for, and where the image is pulled. `handler` is empty for the runtime's default."""

    state: str
    """RESOLVED, PENDING, STALE or UNKNOWN (PullState)."""
    why: str = ""
    sandbox: str = ""
    handler: str = ""
    mode: str = PullMode.UNKNOWN
    mode_why: str = ""
    """The file and key that say so."""


@dataclass(frozen=True, slots=True)
class ReportPullRequest:
    """A runtime's report of an image inside its sandbox's VM. `state` is PULLING, PULLED or FAILED; `digest` is needed
    with PULLED."""

    sandbox: str
    image: str
    state: str
    digest: str = ""
    bytes: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class ReportPullResponse:
    """Whether the report was taken in, else why not."""

    accepted: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class HostPull:
    """A PullImage that passed the relay. `sandbox` is empty where that attempt's sandbox is not known."""

    image: str
    attempt: int
    sandbox: str
    began: int
    ended: int
    status: str
    image_ref: str


@dataclass(frozen=True, slots=True)
class GuestImage:
    """An image that a runtime reported of its VM."""

    sandbox: str
    image: str
    state: str
    digest: str
    bytes: int
    error: str
    reported: int


@dataclass(frozen=True, slots=True)
class PodImage:
    """The image of one container. A pull on the host says nothing of what the guest holds: `guest` has only digests
    that its runtime reported."""

    container: str
    image: str
    host: tuple[str, ...]
    """What the runtime answered to pulls of it that passed the relay."""
    guest: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PodPullsSeen:
    """The section `pulls` of a pod. `sandbox` is the newest one; `mode` HOST, GUEST or UNKNOWN, and what says so."""

    sandbox: str
    host: tuple[HostPull, ...]
    guest: tuple[GuestImage, ...]
    mode: str
    mode_why: str


T_co = TypeVar("T_co", covariant=True)


class Json:
    """A value that is JSON already: itself over HTTP, a string over gRPC."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


@dataclass(frozen=True, slots=True)
class Section(Generic[T_co]):
    """One part of an answer. `why` says what it lacks, or which source contradicts; `observed_at` is in nanoseconds
    since 1970, 0 for not known."""

    value: T_co | None
    source: str
    complete: bool = True
    why: str = ""
    observed_at: int = 0


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """Which pod it is."""

    namespace: str
    name: str
    uid: str
    sandbox: str
    handler: str
    runtime_class: str


@dataclass(frozen=True, slots=True)
class PodContainer:
    """One container of the spec, also before it exists. None is not known; a limit of 0 is none."""

    name: str
    role: str
    cpu_request_m: int | None
    cpu_limit_m: int
    memory_request: int | None
    memory_limit: int
    declared: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PodTotals:
    """The sums of the containers as Kubernetes counts them (KEP-753), without overhead; where the pod has resources as
    a whole (KEP-2837), these. A container without a limit adds nothing to the limits: `all_cpu_limited` and
    `all_memory_limited` say whether each has one, or the pod as a whole."""

    cpu_request_m: int | None
    cpu_limit_m: int
    memory_request: int | None
    memory_limit: int
    all_cpu_limited: bool
    all_memory_limited: bool


@dataclass(frozen=True, slots=True)
class PodOverhead:
    """What its RuntimeClass adds."""

    cpu_m: int
    memory: int


@dataclass(frozen=True, slots=True)
class PodCgroup:
    """The pod's cgroup as the runtime knows it; `driver` is systemd or cgroupfs, `version` 0 for not known."""

    parent: str
    driver: str
    version: int


@dataclass(frozen=True, slots=True)
class PodVmSize:
    """What its VM is given; None is not known. `by`: vmm, annotation, config+limits, config or reported."""

    vcpus: int | None
    memory: int | None
    by: str


@dataclass(frozen=True, slots=True)
class PodCheckpoint:
    """Whether its runtime handler can checkpoint it (None: not known)."""

    possible: bool | None


@dataclass(frozen=True, slots=True)
class PodDescription:
    """Everything that is answered of one pod. None for a section that was not asked for."""

    identity: Section[PodIdentity] | None = None
    containers: Section[tuple[PodContainer, ...]] | None = None
    totals: Section[PodTotals] | None = None
    overhead: Section[PodOverhead] | None = None
    cgroup: Section[PodCgroup] | None = None
    size: Section[PodVmSize] | None = None
    numa: Section[PodNuma] | None = None
    devices: Section[tuple[PodDevice, ...]] | None = None
    volumes: Section[tuple[PodVolumeRow, ...]] | None = None
    network: Section[PodNetwork] | None = None
    images: Section[tuple[PodImage, ...]] | None = None
    pulls: Section[PodPullsSeen] | None = None
    gate: Section[PodGate] | None = None
    checkpoint: Section[PodCheckpoint] | None = None
    spec: Section[Json] | None = None


SECTIONS = tuple(one.name for one in fields(PodDescription))
SPEC = "spec"
"""The only section that is answered just where it is named."""


@dataclass(frozen=True, slots=True)
class Selector:
    """Which pod is meant: by `uid`, by `sandbox`, or by `namespace` and `name`. Where more is given, all has to fit."""

    uid: str = ""
    sandbox: str = ""
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class DescribePodRequest:
    """`fields` names the sections; none for all but the spec. `wait_ms`: so long a pod that is not known yet is waited
    for, 5000 at most."""

    selector: Selector = field(default_factory=Selector)
    fields: tuple[str, ...] = ()
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class ListPodsRequest:
    """Asks for every pod of this node."""


@dataclass(frozen=True, slots=True)
class ListPodsResponse:
    """The pods, sorted by namespace and name."""

    pods: tuple[PodIdentity, ...] = ()


class PodChange(Enum):
    """What happened to a pod."""

    ADDED = "ADDED"
    CHANGED = "CHANGED"
    GONE = "GONE"
    GAP = "GAP"
    """Events were dropped, since this watcher read too slowly: list the pods again."""


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """Asks for every pod that is known, as ADDED, and for each change from then on."""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change; a GAP names no pod. `seq` counts the events of this daemon's life."""

    kind: PodChange
    seq: int
    namespace: str = ""
    name: str = ""
    uid: str = ""
    sandbox: str = ""


@dataclass(frozen=True, slots=True)
class ComputeSizeRequest:
    """How large a pod's VM would be. `handler`: another runtime handler than the sandbox's. `unlimited`, `keep_cpus`,
    `keep_memory_mib`: instead of the settings of `sizing`; `unlimited` is request, N, N% or all."""

    selector: Selector = field(default_factory=Selector)
    handler: str = ""
    unlimited: str = ""
    keep_cpus: int | None = None
    keep_memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class SizeTerm:
    """One amount that the size is made of, and where it comes from. None is not known."""

    what: str
    amount: int | None
    why: str


@dataclass(frozen=True, slots=True)
class SizeSent:
    """CRI's `linux.resources` of RunPodSandbox, and annotations, as the relay sends them with `sizing.mode: enforce`.
    `way`: by what the handler learns the size; `changes`: whether that is other than what kubelet sends."""

    way: str
    cpu_period: int
    cpu_quota: int
    memory_limit: int
    annotations: Mapping[str, str]
    changes: bool
    why: str


@dataclass(frozen=True, slots=True)
class KataSize:
    """What Kata makes of these resources by the handler's configuration; None is not known."""

    vcpus: int | None
    memory: int | None
    why: str


@dataclass(frozen=True, slots=True)
class ComputeSizeResponse:
    """`cpu_m`, `vcpus` (whole) and `memory`: what the pod's containers are to have by the policy, 0 for nothing."""

    handler: str
    cpu_m: int
    vcpus: int
    memory: int
    terms: tuple[SizeTerm, ...]
    sent: SizeSent
    kata: KataSize


@dataclass(frozen=True, slots=True)
class ReportSandboxRequest:
    """What a runtime says of its sandbox. 0 and empty: not said. `cgroups`: paths from the tree's root."""

    sandbox: str = ""
    vmm_pid: int = 0
    vcpu_tids: tuple[int, ...] = ()
    vcpus: int = 0
    memory: int = 0
    cgroups: tuple[str, ...] = ()
    runtime: str = ""


@dataclass(frozen=True, slots=True)
class ReportSandboxResponse:
    """`known`: whether the node knows this sandbox already. A report comes before the runtime has told of it, too."""

    known: bool
