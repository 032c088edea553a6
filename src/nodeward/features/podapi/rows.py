"""The Pod API's questions and answers. Each dataclass is a message of proto/podapi.proto with the same fields.

An answer about a pod is made of sections, each with its source. Thousandths of a CPU end in `_m`; memory is in bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Generic, TypeVar

from nodeward.core.devices import PodDevice, PodNuma
from nodeward.core.podapi_network import PodNetwork
from nodeward.features.gate.rows import PodGate
from nodeward.features.podapi.podapi_pulls import PodImage, PodPullsSeen
from nodeward.features.podapi.podapi_volumes import PodVolumeRow

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
    """The pod's cgroup as the runtime was told it; `driver` is systemd or cgroupfs, `version` 0 for not known."""

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
    for."""

    selector: Selector = field(default_factory=Selector)
    fields: tuple[str, ...] = ()
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class ListPodsRequest:
    """Asks for every pod of this node."""


@dataclass(frozen=True, slots=True)
class ListPodsResponse:
    """By namespace and name."""

    pods: tuple[PodIdentity, ...] = ()


class Kind(Enum):
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

    kind: Kind
    seq: int
    namespace: str = ""
    name: str = ""
    uid: str = ""
    sandbox: str = ""


@dataclass(frozen=True, slots=True)
class ComputeSizeRequest:
    """How large a pod's VM would be. `handler`: another runtime handler than the sandbox's. `unlimited`, `keep_cpus`,
    `keep_memory_mib`: instead of the settings of `sizing`."""

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
