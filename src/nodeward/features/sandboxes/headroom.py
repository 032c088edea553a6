"""Whether a pod's memory limit has room for its VM: `limit - vm - overhead = left`.

A VM uses all the memory that it was given sooner or later, since its guest keeps files in it. Where the limit is below
that and what the VMM, shim and virtiofsd need, the kernel ends the VMM one day. It is said here before it happens.
A VM on huge pages is charged to hugetlb: its limit holds the VM, and the memory limit holds the overhead alone.
"""

from dataclasses import replace

from nodeward.core.vms import UNLIMITED, CgroupReading, Need, Place, VmReading
from nodeward.core.workload import SandboxId
from nodeward.features.sandboxes.usage import INSIDE_SHIM, added, below, parts, vmm_of
from nodeward.features.sandboxes.values import HUGETLB, MEMORY, Fit, Headroom, VmSize

MIB = 1 << 20
USUAL = {
    "qemu": 160 * MIB,
    "cloud-hypervisor": 96 * MIB,
    "firecracker": 96 * MIB,
    INSIDE_SHIM: 96 * MIB,
}
"""What VMM and shim take at least, by the VMM, where nobody measures or declares it. The overheads of Kata's own
RuntimeClasses are higher, since these cover some memory of the guest as well."""
MEASURED = "measured"
"""Only with such an overhead is a pod said to be too small that has room for the VM alone."""
Beside = tuple[Need, ...]
_URGENT = (Fit.KILLED, Fit.OUTSIDE, Fit.UNKNOWN, Fit.TIGHT, Fit.FITS, Fit.UNLIMITED)


def headroom(
    reading: VmReading, size: VmSize | None, declared: int, tight_percent: int, beside: Beside = ()
) -> Headroom:
    """The verdict; of two limits that hold the sandbox, the one that ends it sooner. `declared`: the RuntimeClass's
    overhead in bytes, 0 for none; `beside`: the other VMs in the pod's cgroup."""
    of_memory = memory_headroom(reading, size, declared, tight_percent, beside)
    if not reading.on_huge_pages or of_memory.fit is Fit.OUTSIDE:
        return of_memory
    return min(_huge_headroom(reading, size, beside), of_memory, key=lambda one: _URGENT.index(one.fit))


def need(reading: VmReading, size: VmSize | None, declared: int) -> Need | None:
    """What the sandbox takes of its pod's limits; None where it has no VM, or one that is charged elsewhere."""
    found = memory_headroom(reading, size, declared, 0)
    if vmm_of(reading) is None or found.fit is Fit.OUTSIDE:
        return None
    memory, huge = added((found.vm, found.overhead)), size.memory if size is not None else None
    is_measured = found.overhead_from == MEASURED
    return Need(reading.sandbox, memory, found.vm, huge if reading.on_huge_pages else 0, is_measured)


def _huge_headroom(reading: VmReading, size: VmSize | None, beside: Beside) -> Headroom:
    """The limit of huge pages, which may be as large as the VM and no more: nothing else is charged to it."""
    vmm, vm = vmm_of(reading), size.memory if size is not None else None
    holders = limits_on(reading, vmm.cgroup) if vmm is not None else ()
    more = added(one.huge for one in beside)
    limit, taken = _lowest([(one, one.huge_limit) for one in holders], more)
    found = Headroom(Fit.UNKNOWN, limit, vm, 0, limit_of=HUGETLB, beside=taken, others=_names(beside))
    left = None if limit is None or vm is None else limit - vm - (taken or 0)
    if left is not None and left < 0:
        return replace(found, fit=Fit.KILLED, left=left, killed_at=max(left + (vm or 0), 0))
    if vm is None or taken is None or not holders or any(one.huge_limit is None for one in holders):
        return found
    return replace(found, fit=Fit.UNLIMITED if limit is None else Fit.FITS, left=left)


def memory_headroom(
    reading: VmReading, size: VmSize | None, declared: int, tight_percent: int, beside: Beside = ()
) -> Headroom:
    """The verdict by the memory limit alone."""
    vm = VmSize(0, None, "") if reading.on_huge_pages else size
    found = replace(_memory_headroom(reading, vm, declared, tight_percent, beside), others=_names(beside))
    return replace(found, limit_of=MEMORY, killed_at=None) if reading.on_huge_pages else found


def _names(beside: Beside) -> tuple[SandboxId, ...]:
    return tuple(one.sandbox for one in beside)


def _lowest(limits: list[tuple[CgroupReading, int | None]], more: int | None) -> tuple[int | None, int | None]:
    """The limit that leaves least, and what the other VMs take of it (`more` of the pod's, nothing of the sandbox's
    own)."""
    known = [(limit, more if one.place is Place.POD else 0) for one, limit in limits if limit not in (None, UNLIMITED)]
    return min(((limit, taken) for limit, taken in known if limit is not None), key=_left, default=(None, 0))


def _left(one: tuple[int, int | None]) -> int:
    return one[0] - (one[1] or 0)


def _memory_headroom(
    reading: VmReading, size: VmSize | None, declared: int, tight_percent: int, beside: Beside
) -> Headroom:
    vmm = vmm_of(reading)
    holders = () if vmm is None else limits_on(reading, vmm.cgroup)
    overhead, source = _overhead(reading, holders, declared)
    vm = size.memory if size is not None else None
    if vmm is None or not vmm.cgroup or not _pod_cgroups(reading):
        return Headroom(Fit.UNKNOWN, None, vm, overhead, source)
    if not holders or (reading.cgroup(Place.POD) is not None and holders[0].place is not Place.POD):
        return Headroom(Fit.OUTSIDE, None, vm, overhead, source)
    more = added(one.memory for one in beside)
    limit, taken = _lowest([(one, one.memory_limit) for one in holders], more)
    if limit is None:
        fit = Fit.UNLIMITED if holders[0].memory_limit == UNLIMITED else Fit.UNKNOWN
        return Headroom(fit, None, vm, overhead, source)
    if vm is None or overhead is None:
        return Headroom(Fit.UNKNOWN, limit, vm, overhead, source)
    left = limit - vm - overhead - (taken or 0)
    found = Headroom(Fit.UNKNOWN, limit, vm, overhead, source, left, beside=taken)
    counted = beside if taken else ()
    vms = vm + sum(one.vm or 0 for one in counted)
    if left < 0 and (limit < vms or (source == MEASURED and all(one.is_measured for one in counted))):
        return replace(found, fit=Fit.KILLED, killed_at=max(limit - overhead - (taken or 0), 0))
    if taken is None:
        return replace(found, left=None)
    if holders[0].memory_limit is None:
        return found
    return replace(found, fit=Fit.TIGHT if left * 100 < limit * tight_percent else Fit.FITS)


def limits_on(reading: VmReading, path: str) -> tuple[CgroupReading, ...]:
    """The pod's and the sandbox's cgroups that hold a process at `path`, the outer one first."""
    return tuple(one for one in _pod_cgroups(reading) if below(path, one.path))


def lowest_limit(reading: VmReading) -> CgroupReading | None:
    """Whichever of the cgroups that hold the VMM has the lowest memory limit; None where none is seen to have one."""
    vmm = vmm_of(reading)
    holders = () if vmm is None else limits_on(reading, vmm.cgroup)
    limited = [one for one in holders if one.memory_limit not in (None, UNLIMITED)]
    return min(limited, key=lambda one: one.memory_limit or 0, default=None)


def _pod_cgroups(reading: VmReading) -> tuple[CgroupReading, ...]:
    both = (reading.cgroup(Place.POD), reading.cgroup(Place.SANDBOX))
    return tuple(one for one in both if one is not None)


def _overhead(reading: VmReading, holders: tuple[CgroupReading, ...], declared: int) -> tuple[int | None, str]:
    """What the processes need that are charged to the limit. Those outside are not."""
    outer = holders[0].path if holders else ""
    measured = parts(reading, (lambda task: below(task.cgroup, outer)) if outer else None).overhead
    if measured is not None and vmm_of(reading) is not None:
        return measured, MEASURED
    usual = USUAL.get(reading.vmm)
    if declared > 0 and (usual is None or declared < usual):
        return declared, "declared"  # a larger one may be for memory of the guest too, which is in the VM's already
    return usual, "usual" if usual is not None else ""
