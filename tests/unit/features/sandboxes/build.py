"""VM sandboxes as they are read: Kata with everything in the pod's cgroup, unless a test says otherwise."""

from nodeward.core.vms import CgroupReading, Handler, Place, Profile, Task, TaskRole, VmReading
from nodeward.core.workload import SandboxId

MIB, GIB = 1 << 20, 1 << 30
SECOND = 1_000_000_000
ID = SandboxId("s1")
POD = "/kubepods/podu1"
IN = f"{POD}/s1"
OVERHEAD = "/kata_overhead/s1"
RS = Handler("kata", profile=Profile.KATA_RS, config="/c.toml", only=True, static=True,
             default_vcpus_m=1000, default_memory=2 * GIB, overhead_vcpus_m=200, overhead_memory=32 * MIB)  # fmt: skip
GO = Handler("kata", profile=Profile.KATA_GO, config="/c.toml", only=False, static=True,
             default_vcpus_m=1000, default_memory=2 * GIB)  # fmt: skip


def task(role: TaskRole, tid: int, cpu_ns: int | None, rss: int | None, at: str, start: int = 7) -> Task:
    """A task that is a process of its own, but for threads of the VMM (20)."""
    pid = 20 if role in (TaskRole.VCPU, TaskRole.IO) else tid
    return Task(role, pid, tid, start, "", at, at, cpu_ns, rss)


def shim(at: str = IN, rss: int | None = 40 * MIB, cpu_ns: int | None = 0) -> Task:
    return task(TaskRole.SHIM, 10, cpu_ns, rss, at)


def vmm(at: str = IN, rss: int | None = 600 * MIB, cpu_ns: int | None = 0) -> Task:
    return task(TaskRole.VMM, 20, cpu_ns, rss, at)


def vcpu(at: str = IN, cpu_ns: int | None = 0, tid: int = 21, start: int = 7) -> Task:
    return task(TaskRole.VCPU, tid, cpu_ns, None, at, start)


def pod(
    limit: int | None = None, memory: int | None = None, cpu_ns: int | None = None, path: str = POD
) -> CgroupReading:
    return CgroupReading(Place.POD, path, memory, limit, cpu_ns)


def reading(
    *tasks: Task,
    cgroups: tuple[CgroupReading, ...] = (),
    at_s: int = 1,
    guest: int | None = 512 * MIB,
    vm_memory: int | None = None,
    vm_vcpus: int | None = None,
    kind: str = "qemu",
) -> VmReading:
    return VmReading(ID, at_s * SECOND, tasks, cgroups, "k8s.io", kind, vm_memory, vm_vcpus, guest)
