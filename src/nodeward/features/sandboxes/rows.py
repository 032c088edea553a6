"""The rows of a picture of VM sandboxes: where their processes are, what they cost, whether they fit.

Bytes and thousandths of a CPU. None stands for what is not known, and never 0; the row's `unknown` says why.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeward.core.modes import Mode


@dataclass(frozen=True, slots=True)
class SizingRow:
    """What became of the sizes of VMs whose start a relay held."""

    mode: str = Mode.OFF.value
    counts: Mapping[str, int] = field(default_factory=dict)
    """RunPodSandbox calls by what became of them: `sized`, `kept` (nothing to add), `others` (no VM)."""
    last: str = ""
    """The last decision about a VM, in a line."""


@dataclass(frozen=True, slots=True)
class VmGuardRow:
    """Calls that a VM cannot do: `pass` or `refuse` by the settings, and how many were refused."""

    checkpoint: str = "pass"
    resize: str = "pass"
    counts: Mapping[str, int] = field(default_factory=dict)
    """Held calls by what became of them: `checkpoints refused`, `resizes refused`, `passed`, and `unknown`, which
    passed too since the runtime or the configuration did not tell what was needed."""
    last: str = ""
    """The last refusal, in a line."""


@dataclass(frozen=True, slots=True)
class TaskRow:
    """Processes or threads of one role in one cgroup. `where` is where their memory is counted, `cpu_where` where
    their CPU time is, and empty for the same. Paths are from the tree's root."""

    role: str
    """shim, vmm, vcpu, io, virtiofsd, vhost."""
    count: int
    where: str
    cpu_where: str = ""
    expected: str = ""
    """Empty where no rule says where."""
    since_ms: int | None = None
    """For how long they are there; None where that is not known."""
    ids: tuple[int, ...] = ()
    """The first of their thread ids."""


@dataclass(frozen=True, slots=True)
class DriftRow:
    """Something that is not where it should be. `code` stays; `sentence` is for people. Not `is_fault`: worth knowing,
    and nothing to mend (started under the other mode)."""

    code: str
    sentence: str
    role: str = ""
    seen: str = ""
    expected: str = ""
    count: int = 0
    since_ms: int | None = None
    is_fault: bool = True


@dataclass(frozen=True, slots=True)
class FitRow:
    """The pod's memory limit against the size of its VM: `limit - vm - overhead = left`."""

    fit: str = "unknown"
    """fits, tight, will be killed, killed, unlimited, outside, unknown."""
    limit: int | None = None
    vm: int | None = None
    overhead: int | None = None
    overhead_from: str = ""
    """measured, declared, usual."""
    left: int | None = None
    killed_at: int | None = None
    """So much guest memory in use brings the kernel's OOM kill."""
    killed_since: str = ""
    """When the kernel ended the VM (RFC 3339); empty where it has not, or where that was before the first reading."""
    sentence: str = ""
    limit_of: str = ""
    """`hugetlb`, or `memory` beside it, where the VM's memory is on huge pages; else empty."""
    beside: int | None = 0
    """What the pod's other VMs take of the limit, which is subtracted too."""
    others: tuple[str, ...] = ()
    """The sandboxes with these VMs, by id."""


@dataclass(frozen=True, slots=True)
class SandboxRow:
    """One VM sandbox."""

    id: str
    namespace: str = ""
    pod: str = ""
    """Its name; empty where only the sandbox's id is known."""
    uid: str = ""
    runtime_class: str = ""
    """Empty where the pod's spec is not known."""
    handler: str = ""
    engine: str = ""
    """containerd's namespace by the shim's command line (`k8s.io`, `moby`)."""
    profile: str = ""
    """document, kata-go, kata-rs; empty where it is not recognised."""
    vmm: str = ""
    only: bool | None = None
    """`sandbox_cgroup_only`."""
    only_from: str = ""
    """annotation, default, dragonball, or the configuration file."""
    pod_cgroup: str = ""
    sandbox_cgroup: str = ""
    overhead_cgroup: str = ""
    """Outside the pod; empty where there is none."""
    tasks: tuple[TaskRow, ...] = ()
    drifts: tuple[DriftRow, ...] = ()
    note: str = ""
    """Where the rules cannot be met on this version of cgroups."""
    vm_memory: int | None = None
    vm_vcpus: int | None = None
    size_from: str = ""
    """vmm, annotation, config+limits, config."""
    fit: FitRow = field(default_factory=FitRow)
    memory: int | None = None
    """All of it: the pod's cgroup and what is charged outside."""
    guest_memory: int | None = None
    """Guest RAM in the host's memory."""
    guest_used: int | None = None
    """What the guest says that it uses."""
    vmm_memory: int | None = None
    """Without guest RAM."""
    shim_memory: int | None = None
    virtiofsd_memory: int | None = None
    overhead_memory: int | None = None
    """VMM without guest RAM, shim, virtiofsd."""
    outside_memory: int | None = None
    """Charged to a cgroup outside the pod."""
    cpu_m: int | None = None
    vcpu_m: int | None = None
    overhead_cpu_m: int | None = None
    outside_cpu_m: int | None = None
    """Of `cpu_m`, what is counted outside the pod."""
    cpu_ns: int | None = None
    """All CPU time so far."""
    vcpu_ns: int | None = None
    oom_kills: int | None = None
    """In the pod's cgroup."""
    declared_memory: int | None = None
    """The overhead of its RuntimeClass (podFixed), by the pod's spec."""
    declared_cpu_m: int | None = None
    limit_memory: int | None = None
    """The pod's limit as it should be: the containers' sum and the overhead; None where not every container has one."""
    limit_cpu_m: int | None = None
    limit_now: int | None = None
    """The memory limit that the pod's cgroup has; -1 for none."""
    limit_cpu_now_m: int | None = None
    faults: tuple[str, ...] = ()
    """What could not be read, or contradicts itself."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """By the name of a field that is None, why."""
    age_ms: int | None = None
    """How old the reading is."""

    @property
    def name(self) -> str:
        """The name that is shown: NAMESPACE/POD, or the sandbox's id."""
        return f"{self.namespace}/{self.pod}" if self.pod else self.id


@dataclass(frozen=True, slots=True)
class HandlerRow:
    """A runtime handler that starts VMs, as configured on this node."""

    name: str
    runtime_type: str = ""
    profile: str = ""
    config: str = ""
    drop_ins: tuple[str, ...] = ()
    hypervisor: str = ""
    only: bool | None = None
    """`sandbox_cgroup_only` as it holds for a pod without annotation; None where it is not known."""
    only_from: str = ""
    static: bool | None = None
    default_vcpus_m: int | None = None
    default_memory: int | None = None
    overhead_vcpus_m: int | None = None
    overhead_memory: int | None = None
    enable_annotations: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()
    """The patterns of pod annotations that the container runtime hands on."""
    sandboxes: int = 0
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles of samples; right to a few per cent."""

    p50: int
    p95: int
    p99: int


@dataclass(frozen=True, slots=True)
class ClassRow:
    """The overhead of one RuntimeClass (or handler): measured, declared and recommended."""

    name: str
    sandboxes: int = 0
    """How many were measured."""
    samples: int = 0
    memory: Percentiles | None = None
    cpu_m: Percentiles | None = None
    declared_memory: int | None = None
    """podFixed, by the spec of a pod of this class that runs; None where none is known."""
    declared_cpu_m: int | None = None
    recommended_memory: int | None = None
    recommended_cpu_m: int | None = None
    why: str = ""
    """How the recommendation comes about, or why there is none."""


@dataclass(frozen=True, slots=True)
class SandboxesView:
    """The VM sandboxes of this node."""

    mode: str
    version: int = 0
    """Of cgroups; 0 before the first reading."""
    driver: str = ""
    rows: tuple[SandboxRow, ...] = ()
    handlers: tuple[HandlerRow, ...] = ()
    classes: tuple[ClassRow, ...] = ()
    unaccounted_memory: int | None = None
    """What sandboxes are charged outside their pods, so that no pod's limit holds it."""
    unaccounted_cpu_m: int | None = None
    reserved_memory: int | None = None
    """kubelet's `system-reserved` would cover it with so much more."""
    reserved_cpu_m: int | None = None
    outside: int = 0
    """Of how many sandboxes a part is charged to no pod."""
    untold: int = 0
    """Of how many that is not known; they are left out of the sums."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """By the name of a field that is None, why."""
    writes: int = 0
    """How often a pod's limit was set by Nodeward."""
    misses: Mapping[str, str] = field(default_factory=dict)
    """By cgroup, why a pod's limit could not be set."""
