"""Values that describe VM sandboxes: placement, drift, size, room and cost."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from nodeward.core.vms import TaskRole
from nodeward.core.workload import SandboxId

HUGETLB, MEMORY = "hugetlb", "memory"
OUTSIDE_POD = "outside-pod"
"""The VMM is outside the pod and should be in it: no limit of the pod holds the VM."""
LITERAL_SCOPE = "literal-scope"
"""In a folder that is called `slice:prefix:id`: systemd's form was taken for a path. Outside the pod."""
SANDBOXED_POD_CODE = "sandboxed-pod"
"""In `kata_sandboxed_pod`: runtime-rs found no OCI spec. Outside the pod."""
RUNTIME_SERVICE = "runtime-service"
"""Still in the container runtime's own cgroup: it was never moved, and what it starts stays there as well."""
ELSEWHERE = "elsewhere"
"""In another cgroup than it should be."""
OTHER_MODE = "other-mode"
"""Everything is where the other mode has it: the configuration was changed after the start. No fault."""
SANDBOX_LIMIT = "sandbox-limit"
"""The sandbox's cgroup has a limit of its own beside the pod's."""
FAULTS = (OUTSIDE_POD, LITERAL_SCOPE, SANDBOXED_POD_CODE, RUNTIME_SERVICE, ELSEWHERE, SANDBOX_LIMIT)
"""All codes that say something is wrong; OTHER_MODE is not among them."""
ANNOTATION, DEFAULT, DRAGONBALL = "annotation", "default", "dragonball"
"""Sources of a mode, beside the path of a configuration file."""


@dataclass(frozen=True, slots=True)
class ModeSaid:
    """`sandbox_cgroup_only`, and who said so."""

    only: bool
    source: str
    """`annotation`, `default`, `dragonball` (whose VMM is part of the shim), or the path of a configuration file."""
    fault: str = ""
    """An annotation that could not be obeyed, in a sentence."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The cgroup of each process of a sandbox, as the rules want it: cgroup paths from the tree's root. Empty: by these
    rules nowhere in particular."""

    sandbox: str
    overhead: str = ""
    """Empty where everything is in the sandbox's cgroup."""
    shim: str = ""
    virtiofsd: str = ""
    vmm: str = ""
    vcpu: str = ""
    note: str = ""
    """A sentence where the rules cannot be met on this cgroup version (threads cannot be split on v2)."""

    def of(self, role: TaskRole) -> str:
        """The cgroup of the tasks with this role."""
        places = {TaskRole.SHIM: self.shim, TaskRole.VIRTIOFSD: self.virtiofsd, TaskRole.VCPU: self.vcpu}
        return places.get(role, self.vmm)


@dataclass(frozen=True, slots=True)
class Drift:
    """Something of a sandbox is not where it should be. The words are made of `code` by
    `people`."""

    code: str
    role: str = ""
    seen: str = ""
    expected: str = ""
    count: int = 0
    """How many tasks."""


@dataclass(frozen=True, slots=True)
class VmSize:
    """What the VM is given, and by which sum."""

    memory: int | None
    vcpus: int | None
    source: str
    """`vmm` (its command line), `annotation`, `config+limits`, `config`; empty where nothing is known."""


class Fit(Enum):
    """Whether a pod's cgroup has room for its VM."""

    FITS = "fits"
    TIGHT = "tight"
    KILLED = "will be killed"
    WAS_KILLED = "killed"
    """The kernel has ended its VM, and no other one has begun."""
    UNLIMITED = "unlimited"
    OUTSIDE = "outside"
    """The VM's memory is not charged to the pod at all."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Headroom:
    """A pod's memory limit against the size of its VM. `limit - vm - overhead = left`."""

    fit: Fit
    limit: int | None = None
    vm: int | None = None
    overhead: int | None = None
    """VMM without guest RAM, shim and virtiofsd: measured, else what is usual for this VMM, or declared where that is
    less."""
    overhead_from: str = ""
    """`measured`, `declared`, `usual`."""
    left: int | None = None
    killed_at: int | None = None
    """So much guest memory in use brings the kernel's OOM kill; None where it cannot come to that."""
    limit_of: str = ""
    """`hugetlb`: the limit of huge pages, on which the VM's memory is; `memory`: the memory limit beside these, which
    holds the overhead alone; empty for the memory limit that holds both."""
    beside: int | None = 0
    """What the other VMs in the pod's cgroup take of this limit, which is subtracted too; None where that is not
    known."""
    others: tuple[SandboxId, ...] = ()
    """The sandboxes with these VMs."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a sandbox costs the host now. CPU is in thousandths of a CPU over the time since the reading before."""

    memory: int | None = None
    """All of it: the pod's cgroup and what is charged outside."""
    guest: int | None = None
    """Guest RAM."""
    vmm: int | None = None
    """The VMM without guest RAM."""
    shim: int | None = None
    virtiofsd: int | None = None
    outside: int | None = None
    """Charged to a cgroup outside the pod."""
    cpu_m: int | None = None
    vcpu_m: int | None = None
    """Of it by vCPU threads."""
    overhead_cpu_m: int | None = None
    """Of it by everything else."""
    cpu_ns: int | None = None
    """All CPU time so far, of tasks that are there and in cgroups; never falls."""
    vcpu_ns: int | None = None
    outside_cpu_m: int | None = None
    """Of `cpu_m`, counted outside the pod."""

    @property
    def overhead(self) -> int | None:
        """Memory besides guest RAM; None where a part is not known."""
        parts = (self.vmm, self.shim)
        if None in parts:
            return None
        return sum(part for part in (*parts, self.virtiofsd) if part is not None)


@dataclass(frozen=True, slots=True)
class Measured:
    """The overheads of one RuntimeClass (or handler) so far: how many samples fell at or below each bound. Bounds rise
    by a few per cent, so percentiles are right to that."""

    memory: Mapping[int, int] = field(default_factory=dict)
    """Upper bound in bytes to samples."""
    cpu: Mapping[int, int] = field(default_factory=dict)
    """Upper bound in thousandths of a CPU to samples."""
    samples: int = 0
    sandboxes: int = 0
    """How many different ones."""


@dataclass(frozen=True, slots=True)
class Recommended:
    """What a RuntimeClass's `overhead.podFixed` should be. None while there are too few samples; `why` says so."""

    memory: int | None
    cpu_m: int | None
    why: str
