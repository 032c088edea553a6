"""The rows of a picture of VM sandboxes: where their processes are, what they cost, whether they fit.

Bytes and thousandths of a CPU. None stands for what is not known, and never 0; the row's `unknown` says why.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeward.core.modes import Mode
from nodeward.core.shown import Info, Label, Metric, Rows, counter, gauge, known, shown, shows

_MODE = Info("nodeward_sandboxes_mode_info", "1, with the mode, the cgroup version and the cgroup driver.")
_SANDBOX = Info("nodeward_sandboxes_sandbox_info", "1 for each VM sandbox, with what it is.")
_HANDLER = Info("nodeward_sandboxes_handler_info", "1 for each runtime handler that starts VMs.")
_MEMORY = Metric("nodeward_sandboxes_memory_bytes", "Memory on the host, by part.")
_MOST_CLASSES = 100
"""RuntimeClasses, and handlers."""


def _by_percentile(found: "Percentiles") -> Mapping[str, int]:
    return {"50": found.p50, "95": found.p95, "99": found.p99}


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

    code: str = field(
        metadata=shown(
            Metric(
                "nodeward_sandboxes_drifts", "Things not where they should be. Absent for none.", by="code", adds=True
            )
        )
    )
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

    fit: str = gauge(
        "nodeward_sandboxes_fit",
        "1 for the verdict on whether the pod's limit has room for its VM.",
        by="fit",
        default="unknown",
    )
    """fits, tight, will be killed, killed, unlimited, outside, unknown."""
    limit: int | None = None
    vm: int | None = None
    overhead: int | None = None
    overhead_from: str = ""
    """measured, declared, usual."""
    left: int | None = gauge(
        "nodeward_sandboxes_headroom_bytes", "Limit less VM and overhead; below 0 the kernel kills a VM that fills up."
    )
    killed_at: int | None = gauge(
        "nodeward_sandboxes_killed_at_bytes",
        "Guest memory in use at which the kernel kills the VM. Absent if it cannot.",
    )
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

    id: str = field(metadata=shown(Label("sandbox")))
    namespace: str = known(Label(), default="")
    pod: str = known(Label(), default="")
    """Its name; empty where only the sandbox's id is known."""
    uid: str = ""
    runtime_class: str = known(_SANDBOX, default="")
    """Empty where the pod's spec is not known."""
    handler: str = known(_SANDBOX, default="")
    engine: str = ""
    """containerd's namespace by the shim's command line (`k8s.io`, `moby`)."""
    profile: str = known(_SANDBOX, default="")
    """document, kata-go, kata-rs; empty where it is not recognised."""
    vmm: str = known(_SANDBOX, default="")
    only: bool | None = known(_SANDBOX)
    """`sandbox_cgroup_only`."""
    only_from: str = known(_SANDBOX, default="")
    """annotation, default, dragonball, or the configuration file."""
    pod_cgroup: str = ""
    sandbox_cgroup: str = ""
    overhead_cgroup: str = ""
    """Outside the pod; empty where there is none."""
    tasks: tuple[TaskRow, ...] = ()
    drifts: tuple[DriftRow, ...] = ()
    note: str = ""
    """Where the rules cannot be met on this version of cgroups."""
    vm_memory: int | None = gauge("nodeward_sandboxes_vm_memory_bytes", "Memory of the VM.")
    vm_vcpus: int | None = gauge("nodeward_sandboxes_vm_vcpus", "vCPUs of the VM.")
    size_from: str = ""
    """vmm, annotation, config+limits, config."""
    fit: FitRow = field(default_factory=FitRow)
    memory: int | None = gauge(
        "nodeward_sandboxes_charged_memory_bytes",
        "Memory charged for the sandbox, overhead included, inside and outside the pod's cgroup.",
    )
    guest_memory: int | None = known(_MEMORY.at(part="guest"))
    """Guest RAM in the host's memory."""
    guest_used: int | None = gauge("nodeward_sandboxes_guest_used_bytes", "Memory in use, as the guest reports it.")
    vmm_memory: int | None = known(_MEMORY.at(part="vmm"))
    """Without guest RAM."""
    shim_memory: int | None = known(_MEMORY.at(part="shim"))
    virtiofsd_memory: int | None = known(_MEMORY.at(part="virtiofsd"))
    overhead_memory: int | None = gauge(
        "nodeward_sandboxes_overhead_memory_bytes", "VMM without guest RAM, shim and virtiofsd."
    )
    outside_memory: int | None = gauge(
        "nodeward_sandboxes_outside_memory_bytes", "The part of it charged outside the pod's cgroup."
    )
    cpu_m: int | None = None
    vcpu_m: int | None = None
    overhead_cpu_m: int | None = gauge(
        "nodeward_sandboxes_overhead_cpu_cores", "CPUs in use now by all but the vCPU threads.", per=1e3
    )
    outside_cpu_m: int | None = None
    """Of `cpu_m`, what is counted outside the pod."""
    cpu_ns: int | None = counter("nodeward_sandboxes_cpu_seconds_total", "CPU time, overhead included.", per=1e9)
    vcpu_ns: int | None = counter("nodeward_sandboxes_vcpu_seconds_total", "CPU time of the vCPU threads.", per=1e9)
    oom_kills: int | None = counter("nodeward_sandboxes_oom_kills_total", "OOM kills in the pod's cgroup.")
    declared_memory: int | None = gauge(
        "nodeward_sandboxes_declared_memory_bytes", "Memory overhead that the pod declares (podFixed)."
    )
    declared_cpu_m: int | None = gauge(
        "nodeward_sandboxes_declared_cpu_cores", "CPU overhead that the pod declares (podFixed).", per=1e3
    )
    limit_memory: int | None = None
    """The pod's limit as it should be: the containers' sum and the overhead; None where not every container has one."""
    limit_cpu_m: int | None = None
    limit_now: int | None = gauge(
        "nodeward_sandboxes_limit_bytes", "Memory limit of the pod's cgroup. Absent for none.", absent=-1
    )
    """The memory limit that the pod's cgroup has; -1 for none."""
    limit_cpu_now_m: int | None = None
    faults: tuple[str, ...] = gauge(
        "nodeward_sandboxes_read_faults", "Things that could not be read or contradict each other.", default=()
    )
    unknown: Mapping[str, str] = field(default_factory=dict)
    """By the name of a field that is None, why."""
    age_ms: int | None = gauge(
        "nodeward_sandboxes_sample_age_seconds", "Time since the sandbox was last read.", per=1e3
    )

    @property
    def name(self) -> str:
        """The name that is shown: NAMESPACE/POD, or the sandbox's id."""
        return f"{self.namespace}/{self.pod}" if self.pod else self.id

    @property
    @shows(_SANDBOX)
    def level(self) -> str:
        """Whether it is a pod's, or a container's alone."""
        return "pod" if self.pod else "container"


@dataclass(frozen=True, slots=True)
class HandlerRow:
    """A runtime handler that starts VMs, as configured on this node."""

    name: str = field(metadata=shown(Label("handler")))
    runtime_type: str = ""
    profile: str = known(_HANDLER, default="")
    config: str = ""
    drop_ins: tuple[str, ...] = ()
    hypervisor: str = known(_HANDLER, default="")
    only: bool | None = known(_HANDLER)
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
    fault: str = gauge(
        "nodeward_sandboxes_handler_unread",
        "1 if the handler's configuration could not be read, else 0.",
        of=bool,
        default="",
    )


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles of samples; right to a few per cent."""

    p50: int
    p95: int
    p99: int


@dataclass(frozen=True, slots=True)
class ClassRow:
    """The overhead of one RuntimeClass (or handler): measured, declared and recommended."""

    name: str = field(metadata=shown(Label("class")))
    sandboxes: int = 0
    """How many were measured."""
    samples: int = gauge("nodeward_sandboxes_class_samples", "Samples behind these figures.", default=0)
    memory: Percentiles | None = gauge(
        "nodeward_sandboxes_class_overhead_memory_bytes",
        "Measured memory overhead.",
        by="percentile",
        of=_by_percentile,
    )
    cpu_m: Percentiles | None = gauge(
        "nodeward_sandboxes_class_overhead_cpu_cores",
        "Measured CPU overhead.",
        by="percentile",
        of=_by_percentile,
        per=1e3,
    )
    declared_memory: int | None = gauge(
        "nodeward_sandboxes_class_declared_memory_bytes", "podFixed memory of a pod of the class."
    )
    """podFixed, by the spec of a pod of this class that runs; None where none is known."""
    declared_cpu_m: int | None = gauge(
        "nodeward_sandboxes_class_declared_cpu_cores", "podFixed CPU of a pod of the class.", per=1e3
    )
    recommended_memory: int | None = gauge(
        "nodeward_sandboxes_class_recommended_memory_bytes",
        "Recommended podFixed memory. Absent until there are enough samples.",
    )
    recommended_cpu_m: int | None = gauge(
        "nodeward_sandboxes_class_recommended_cpu_cores",
        "Recommended podFixed CPU. Absent until there are enough samples.",
        per=1e3,
    )
    why: str = ""
    """How the recommendation comes about, or why there is none."""


@dataclass(frozen=True, slots=True)
class SandboxesView:
    """The VM sandboxes of this node."""

    mode: str = field(metadata=shown(_MODE))
    version: int = 0
    """Of cgroups; 0 before the first reading."""
    driver: str = known(_MODE, default="")
    rows: tuple[SandboxRow, ...] = known(
        Rows(1000, Metric("nodeward_sandboxes_left_out", "VM sandboxes not shown, beyond the most."), once=True),
        default=(),
    )
    handlers: tuple[HandlerRow, ...] = known(Rows(_MOST_CLASSES, once=True), default=())
    classes: tuple[ClassRow, ...] = known(Rows(_MOST_CLASSES, once=True), default=())
    unaccounted_memory: int | None = gauge(
        "nodeward_sandboxes_unaccounted_memory_bytes", "Memory of sandboxes charged to no pod's cgroup."
    )
    """What sandboxes are charged outside their pods, so that no pod's limit holds it."""
    unaccounted_cpu_m: int | None = gauge(
        "nodeward_sandboxes_unaccounted_cpu_cores", "CPUs in use now by sandboxes outside pods' cgroups.", per=1e3
    )
    reserved_memory: int | None = gauge(
        "nodeward_sandboxes_system_reserved_memory_bytes", "kubelet's system-reserved memory that would cover it."
    )
    reserved_cpu_m: int | None = gauge(
        "nodeward_sandboxes_system_reserved_cpu_cores", "kubelet's system-reserved CPU that would cover it.", per=1e3
    )
    outside: int = 0
    """Of how many sandboxes a part is charged to no pod."""
    untold: int = 0
    """Of how many that is not known; they are left out of the sums."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """By the name of a field that is None, why."""
    writes: int = counter("nodeward_sandboxes_limit_writes_total", "Pod limits that the daemon has set.", default=0)
    misses: Mapping[str, str] = known(
        Metric("nodeward_sandboxes_limit_misses", "Pod limits that it could not set."), default_factory=dict
    )
    """By cgroup, why a pod's limit could not be set."""

    @property
    @shows(_MODE)
    def cgroup_version(self) -> str:
        """Empty before the first reading."""
        return str(self.version or "")
