"""VM sandboxes: what was read of them on the host, and what is decided about them.

A VM sandbox is a pod that runs in a virtual machine (Kata). On the host it is a shim, a VMM with its threads, perhaps
virtiofsd and vhost threads, and the cgroups that these are in. Bytes, nanoseconds and thousandths of a CPU are
integers. `None` stands for what is not known, and never 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from nodeward.core.workload import SandboxId

UNLIMITED = -1
"""A limit that the cgroup does not set (`max`; on cgroup v1 the largest value)."""


class Profile(Enum):
    """By whose rules the processes of a sandbox are placed."""

    DOCUMENT = "document"
    """Kata's page "host cgroup management", to the letter: for runtimes without placement of their own."""
    KATA_GO = "kata-go"
    KATA_RS = "kata-rs"
    """Kata's runtime-rs."""


class CgroupDriver(Enum):
    """Who makes cgroups for pods."""

    CGROUPFS = "cgroupfs"
    SYSTEMD = "systemd"


class TaskRole(Enum):
    """What a process or thread does for its sandbox."""

    SHIM = "shim"
    VMM = "vmm"
    """The VMM's thread-group leader: whose cgroup the VM's memory is charged to."""
    VCPU = "vcpu"
    IO = "io"
    """Any other thread of the VMM."""
    VIRTIOFSD = "virtiofsd"
    VHOST = "vhost"


class Place(Enum):
    """Which cgroup a `CgroupReading` is of."""

    POD = "pod"
    SANDBOX = "sandbox"
    """What the runtime made for the sandbox (Kata: `kata_ID`, `kata-sandbox-ID`, a scope)."""
    OVERHEAD = "overhead"
    """Outside the pod (Kata: `/kata_overhead/ID`)."""


@dataclass(frozen=True, slots=True)
class Task:
    """A process (`tid` is its `pid`) or a thread. `start` is in clock ticks after boot (field 22 of stat(5)): a number
    that was given to another process has another."""

    role: TaskRole
    pid: int
    tid: int
    start: int
    name: str = ""
    cgroup: str = ""
    """Its cgroup where memory is counted, from that tree's root; cgroup v2 has one for all."""
    cpu_cgroup: str = ""
    """Where its CPU time is counted. On cgroup v1 a thread may be elsewhere than its memory."""
    cpu_ns: int | None = None
    """User and system time so far. Of a process without its threads that are listed beside it, and with those that
    have ended."""
    rss: int | None = None
    """Of a process: what it has in memory, shared memory included (of virtiofsd without, which maps the guest's); None
    for a thread."""


@dataclass(frozen=True, slots=True)
class CgroupReading:
    """A cgroup's own files. `path` is from the tree's root. On cgroup v1 each figure is of its controller's tree."""

    place: Place
    path: str
    memory: int | None = None
    memory_limit: int | None = None
    """`UNLIMITED` for none."""
    cpu_ns: int | None = None
    cpu_limit_m: int | None = None
    """quota / period in thousandths of a CPU; `UNLIMITED` for none."""
    oom_kills: int | None = None
    """The kernel's count `oom_kill`, children included."""
    huge_limit: int | None = None
    """Of huge pages of the size that is used most (hugetlb), in bytes; read where a VM's memory is on these."""


OVERHEADS = ("/kata_overhead/", "/kata.slice/kata-overhead.slice/")
"""Below these Kata makes cgroups for what is not to count for a pod."""


def outside_of(path: str) -> SandboxId:
    """Whose cgroup this is where Kata makes one for a sandbox outside of its pod (`/kata_overhead/ID`, and what
    runtime-rs makes by systemd); empty for any other."""
    for folder in (*OVERHEADS, "/kata_sandboxed_pod/"):
        if path.startswith(folder):
            name = path.removeprefix(folder).removeprefix("runtime-rs-").removesuffix(".scope")
            return SandboxId("" if "/" in name else name)
    return SandboxId("")


@dataclass(frozen=True, slots=True)
class VmReading:
    """One sandbox, read at `at_ns` (CLOCK_BOOTTIME)."""

    sandbox: SandboxId
    at_ns: int
    tasks: tuple[Task, ...] = ()
    cgroups: tuple[CgroupReading, ...] = ()
    namespace: str = ""
    """containerd's namespace by the shim's command line (`k8s.io`, `moby`); empty where it does not tell."""
    vmm: str = ""
    """qemu, cloud-hypervisor, firecracker, dragonball; empty where none is seen."""
    vm_memory: int | None = None
    """What the VMM was told to give its guest, by its command line."""
    vm_vcpus: int | None = None
    guest_ram: int | None = None
    """So much of the guest's memory is in the host's memory now: the mappings that back it."""
    guest_used: int | None = None
    """What the guest says it uses, by the shim's metrics socket."""
    faults: tuple[str, ...] = ()
    """What could not be read, or contradicts itself (two VMMs that claim one sandbox), each a sentence."""
    on_huge_pages: bool = False
    """The guest's memory is charged to hugetlb and not to memory."""

    def of(self, *roles: TaskRole) -> tuple[Task, ...]:
        """Its tasks with these roles."""
        return tuple(task for task in self.tasks if task.role in roles)

    def cgroup(self, place: Place) -> CgroupReading | None:
        """The reading of this cgroup, where there is one."""
        for one in self.cgroups:
            if one.place is place:
                return one
        return None


@dataclass(frozen=True, slots=True)
class Handler:
    """A runtime handler that starts VMs, as the container runtime's configuration and its own say."""

    name: str
    runtime_type: str = ""
    """Such as `io.containerd.kata.v2`."""
    profile: Profile | None = None
    """None where it is not recognised."""
    config: str = ""
    """The path of its configuration file; empty where none was found."""
    drop_ins: tuple[str, ...] = ()
    hypervisor: str = ""
    only: bool | None = None
    """`sandbox_cgroup_only` as files and drop-ins say together; None where none says."""
    only_from: str = ""
    """The file that says it."""
    static: bool | None = None
    """`static_sandbox_resource_mgmt`."""
    default_vcpus_m: int | None = None
    default_memory: int | None = None
    overhead_vcpus_m: int | None = None
    """runtime-rs adds so much to what containers ask for."""
    overhead_memory: int | None = None
    enable_annotations: tuple[str, ...] = ()
    """Regular expressions of the `hypervisor.*` annotations that Kata obeys."""
    passes: tuple[str, ...] = ()
    """The patterns of pod annotations that containerd hands on."""
    serves: bool = False
    """Its shim serves the sandbox itself (containerd's `sandboxer = "shim"`): there is no pause container."""
    fault: str = ""
    """Why it could not be read, with the file and a remedy."""
    pod_resources: str = ""
    """`pod_resource_api_sock`: where it asks for a pod's devices; empty for nowhere."""


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
    """Where each process of a sandbox should be: cgroup paths from the tree's root. Empty: by these rules nowhere in
    particular."""

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
        """Where tasks with this role should be."""
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
class Need:
    """What a VM takes of its pod's limits, once it uses all that it was given. None where that is not known."""

    sandbox: SandboxId
    memory: int | None
    vm: int | None
    """Of `memory`, the VM's own."""
    huge: int | None = 0
    """Of huge pages."""
    is_measured: bool = False
    """Its overhead is measured."""


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
        """Memory beside guest RAM; None where a part is not known."""
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
