"""Pods and containers as Nodeward knows them, from whatever source said so."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NewType

from nodeward.core.cpuset import CpuSet

POD, OWN = "pod/labels/", "labels/"
PREFIXES = (POD, OWN)
MOST = 64
"""Keys that settings may name."""
MAX_VALUE = 63
"""Characters. Kubernetes has no longer value of a label; a runtime that tells one tells of none."""
Labels = Mapping[str, str | None]
"""By key as above; None where there is no such label. A key that is not there was not read."""
Keys = Collection[str]


def read_labels(found: Mapping[str, str], keys: Keys, prefix: str) -> dict[str, str | None]:
    """The labels of a pod (POD) or a container (OWN) that `keys` name."""
    values = {key: found.get(key.removeprefix(prefix)) for key in keys if key.startswith(prefix)}
    return {key: text if text is not None and len(text) <= MAX_VALUE else None for key, text in values.items()}


SHORT_ID = 13
"""So many characters of a container's id are shown, as `crictl ps` does; enough for `nodeward explain`."""
PodUid = NewType("PodUid", str)
ContainerId = NewType("ContainerId", str)
SandboxId = NewType("SandboxId", str)

Amounts = Mapping[str, int]
"""What is declared for each misc resource by the kernel's name (`sgx_epc` in bytes), and of each extended
resource that `keys` counts by its own, read-only."""


class Role(Enum):
    """What kind of container this is in its pod; decides how it counts in the pod's budget (KEP-753)."""

    REGULAR = "container"
    INIT = "init container"
    SIDECAR = "sidecar"
    EPHEMERAL = "ephemeral container"


class Qos(Enum):
    """A pod's quality-of-service class."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class Source(Enum):
    """Who said so, in order of trust."""

    API = "the pod's spec in the API server"
    DISK = "the pod's spec as last known, from disk"
    OWN_ANNOTATION = "annotation nodeward.io/limits"
    NONE = "nothing"


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One container of a pod's spec. `declared` holds only resources the spec names; an amount of 0 denies."""

    name: str
    role: Role = Role.REGULAR
    declared: Amounts = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    """Declarations that could not be read, each a sentence with path and value; they count as undeclared."""
    cpu_m: int | None = None
    """The CPU request in thousandths; None where the source does not tell (a spec kept by an older release)."""
    cpu_limit_m: int = 0
    """0 for none."""
    memory_limit: int = 0
    """Bytes; 0 for none."""
    memory_request: int | None = None
    """Bytes; None where the source does not tell (a spec kept by an older release)."""
    claims: tuple[str, ...] = ()
    """The names of the ResourceClaims that it uses, in the pod's namespace; with `/REQUEST` where it uses only one."""


@dataclass(frozen=True, slots=True)
class WholePod:
    """What a spec asks for the pod as a whole (KEP-2837). Of an amount of 0 it says nothing: the containers' counts."""

    cpu_m: int = 0
    """The request in thousandths of a CPU."""
    cpu_limit_m: int = 0
    memory_request: int = 0
    """Bytes."""
    memory_limit: int = 0
    faults: tuple[str, ...] = ()
    """Amounts that could not be read, each a sentence with path and value."""


NO_WHOLE = WholePod()
"""Nothing is asked for the pod as a whole."""


@dataclass(frozen=True, slots=True)
class PodSpec:
    """What a pod was promised. `containers` is in the order of the spec, init containers and sidecars first."""

    uid: PodUid
    namespace: str
    name: str
    containers: tuple[ContainerSpec, ...] = ()
    overhead: Amounts = field(default_factory=dict)
    source: Source = Source.API
    config_hash: str = ""
    """A static pod's UID at the runtime, as its mirror pod in the API server claims it; empty for any other pod, and
    for a static pod as kubelet tells it, whose own UID is that one."""
    container_ids: Mapping[str, str] = field(default_factory=dict)
    """Container name to the runtime's id (without `containerd://`), from the status, where it is there."""
    terminal: bool = False
    """Phase Succeeded or Failed."""
    qos: Qos | None = None
    """None where the source does not tell."""
    pod_level: bool = False
    """It has resources of the pod as a whole (KEP-2837)."""
    runtime_class: str = ""
    overhead_cpu_m: int = 0
    """Of its RuntimeClass, in thousandths of a CPU."""
    overhead_memory: int = 0
    """Of its RuntimeClass, in bytes."""
    whole: WholePod | None = None
    """None where `pod_level` is false, and where the source does not tell (a spec kept by an older release)."""


@dataclass(frozen=True, slots=True)
class CpuRecord:
    """What the runtime's record of a container says of its CPUs, as kubelet asked for it. 0 where nothing is said."""

    shares: int = 0
    """cpu.shares as cgroup v1 counts them, 2 to 262144: 1024 a CPU of request."""
    quota: int = 0
    """Microseconds in each `period`; 0 or below for no limit."""
    period: int = 0
    cpus: CpuSet = 0
    """The cpuset by the record; by the kernel where the record names none."""
    unread: bool = False
    """The record could not be read: what kubelet asked for is unknown, which is not the same as nothing."""
    mems: CpuSet = 0
    """Memory nodes, as bits; 0 for any."""


NO_RECORD = CpuRecord()
"""Nothing is said."""


@dataclass(frozen=True, slots=True)
class HostShare:
    """The resources of a whole pod that kubelet passes to a runtime (CRI's `linux.resources` and `linux.overhead`)."""

    cpu: CpuRecord = NO_RECORD
    memory: int = 0
    """The limit in bytes; 0 for none."""


NO_SHARE = HostShare()
"""Nothing is told."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A pod sandbox as the runtime shows it."""

    id: SandboxId
    pod_uid: PodUid
    namespace: str
    name: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Only the keys of `nodeward.core.annotations.READ`; nothing else enters (redaction by construction)."""
    cgroup_parent: str = ""
    """The pod's cgroup as kubelet named it: `/kubepods/...` (cgroupfs) or a `.slice` name (systemd)."""
    handler: str = ""
    """The runtime handler; empty for the default one, and where nobody tells."""
    asked: HostShare = NO_SHARE
    """The sum of its containers."""
    overhead: HostShare = NO_SHARE
    labels: Labels = field(default_factory=dict)
    """Only those that the settings name (`nodeward.core.workload`)."""


class Phase(Enum):
    """The phase of a container, as the runtime reports it."""

    CREATING = "creating"
    CREATED = "created"
    RUNNING = "running"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Container:
    """A container as the runtime shows it."""

    id: ContainerId
    sandbox_id: SandboxId
    name: str
    phase: Phase = Phase.CREATED
    cgroups_path: str = ""
    """The runtime's `linux.cgroupsPath`: a path (cgroupfs) or `slice:prefix:id` (systemd); empty where not shown."""
    recorded: Amounts = field(default_factory=dict)
    """The limits that the runtime's own record of the container has for `misc.max`: it writes them again with each
    update, whoever asked for them at first. Without those that are `max`."""
    image: str = ""
    """The image's name, as kubelet asked for it; empty where the runtime does not tell."""
    cpu: CpuRecord = NO_RECORD
    memory: int = 0
    """The memory limit in the runtime's record, in bytes; 0 for none."""
    labels: Labels = field(default_factory=dict)
    """Its own, and only those that the settings name."""

    def with_cpus(self, cpus: CpuSet) -> "Container":
        """The container with these CPUs in the kernel."""
        return self if cpus == self.cpu.cpus else replace(self, cpu=replace(self.cpu, cpus=cpus))

    def in_phase(self, phase: Phase) -> "Container":
        """The container, in `phase`."""
        if phase is self.phase:
            return self
        named = self.id, self.sandbox_id, self.name, phase, self.cgroups_path
        return Container(*named, self.recorded, self.image, self.cpu, self.memory, self.labels)
