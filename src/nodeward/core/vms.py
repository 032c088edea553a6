"""VM sandboxes: what was read of them on the host, and what is decided about them.

A VM sandbox is a pod that runs in a virtual machine (Kata). On the host it is a shim, a VMM with its threads, perhaps
virtiofsd and vhost threads, and the cgroups that these are in. Bytes, nanoseconds and thousandths of a CPU are
integers. `None` stands for what is not known, and never 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from nodeward.core.workload import SandboxId


@dataclass(frozen=True, slots=True)
class PodInterface:
    """One interface of the pod. Empty texts and 0 are not known."""

    name: str
    mac: str = ""
    mtu: int = 0
    addresses: tuple[str, ...] = ()
    """Each with its prefix, such as 10.0.0.5/24."""
    device: str = ""
    """What Kata attaches: host-tap, vhost-user or vfio; empty for an interface in the network namespace."""
    host: str = ""
    """The tap's name, the socket's path or the PCI address on the host."""
    queues: int = 0
    """Pairs."""


@dataclass(frozen=True, slots=True)
class PodRoute:
    """One route. An empty gateway is none."""

    destination: str
    gateway: str = ""
    interface: str = ""
    mtu: int = 0


@dataclass(frozen=True, slots=True)
class PodNetwork:
    """What one source says."""

    netns: str = ""
    interfaces: tuple[PodInterface, ...] = ()
    routes: tuple[PodRoute, ...] = ()


@dataclass(frozen=True, slots=True)
class Allocatable:
    """What the Node object says that pods may have (`status.allocatable`): thousandths of a CPU, and bytes. None where
    that is unknown."""

    cpu_m: int | None = None
    memory: int | None = None


NOT_TOLD = Allocatable()


@dataclass(frozen=True, slots=True)
class Room:
    """What a VM may have of this machine at most, and which source says so. None where no source is known."""

    cpu_m: int | None = None
    memory: int | None = None
    cpu_by: str = ""
    memory_by: str = ""


class Way(Enum):
    """How a runtime handler learns the size of a VM that the relay decides."""

    RESOURCES = "resources"
    """`linux.resources` of RunPodSandbox, of which containerd makes the annotations that Kata reads."""
    KEYS = "the annotations io.kubernetes.cri.sandbox-*"
    """These annotations, written by the relay: where no containerd makes them, and Kata reads them."""
    DEFAULTS = "the annotations default_vcpus and default_memory"
    """Kata's defaults, overridden for this pod."""
    NONE = "nothing"


@dataclass(frozen=True, slots=True)
class Sized:
    """The resources of a pod as they are to be sent to the runtime (CRI's `linux.resources`), each with a sentence why.
    0 where nothing is said."""

    cpu_period: int = 0
    cpu_quota: int = 0
    memory_limit: int = 0
    cpu_why: str = ""
    memory_why: str = ""
    changes: bool = False
    """Whether this is other than what kubelet sent."""
    way: Way = Way.RESOURCES
    """Resources are sent with RESOURCES only."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """What is to be sent beside, or instead."""


UNLIMITED = -1
"""A limit that the cgroup does not set (`max`; on cgroup v1 the largest value)."""


class Profile(Enum):
    """The rules by which the processes of a sandbox are placed."""

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
    """The sandbox to which a cgroup outside of its pod belongs (Kata's `/kata_overhead/ID`, and what runtime-rs makes
    by systemd); empty for any other."""
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
