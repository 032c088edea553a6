"""Whether a pod's memory limit has room for its VM: `limit - vm - overhead = left`.

A VM uses all the memory that it was given sooner or later, since its guest keeps files in it. Where the limit is below
that and what the VMM, shim and virtiofsd need, the kernel ends the VMM one day. It is said here before it happens.
A VM on huge pages is charged to hugetlb: its limit holds the VM, and the memory limit holds the overhead alone.
"""

from dataclasses import replace

from nodeward.engine.sandboxes.usage import INSIDE_SHIM, below, parts, vmm_of
from nodeward.model.sandboxes import UNLIMITED, CgroupReading, Fit, Headroom, Place, VmReading, VmSize

MIB = 1 << 20
USUAL = {
    "qemu": 160 * MIB,
    "cloud-hypervisor": 96 * MIB,
    "firecracker": 96 * MIB,
    INSIDE_SHIM: 96 * MIB,
}
"""What VMM and shim take at least, by the VMM, where nobody measures or declares it. The overheads of Kata's own
RuntimeClasses are higher, since these cover some memory of the guest as well."""
HUGETLB, MEMORY = "hugetlb", "memory"
MEASURED = "measured"
"""Only with such an overhead is a pod said to be too small that has room for the VM alone."""


_URGENT = (Fit.KILLED, Fit.OUTSIDE, Fit.UNKNOWN, Fit.TIGHT, Fit.FITS, Fit.UNLIMITED)


def headroom(reading: VmReading, size: VmSize | None, declared: int, tight_percent: int) -> Headroom:
    """The verdict; of two limits that hold the sandbox, the one that ends it sooner. `declared`: the RuntimeClass's
    overhead in bytes, 0 for none."""
    of_memory = memory_headroom(reading, size, declared, tight_percent)
    if not reading.on_huge_pages or of_memory.fit is Fit.OUTSIDE:
        return of_memory
    return min(_huge_headroom(reading, size), of_memory, key=lambda one: _URGENT.index(one.fit))


def _huge_headroom(reading: VmReading, size: VmSize | None) -> Headroom:
    """The limit of huge pages, which may be as large as the VM and no more: nothing else is charged to it."""
    vmm, vm = vmm_of(reading), size.memory if size is not None else None
    limits = [one.huge_limit for one in (limits_on(reading, vmm.cgroup) if vmm is not None else ())]
    limit = min((one for one in limits if one not in (None, UNLIMITED)), default=None)
    if limit is not None and vm is not None and limit < vm:
        return Headroom(Fit.KILLED, limit, vm, 0, "", limit - vm, limit, HUGETLB)
    if vm is None or not limits or None in limits:
        return Headroom(Fit.UNKNOWN, limit, vm, 0, limit_of=HUGETLB)
    if limit is None:
        return Headroom(Fit.UNLIMITED, None, vm, 0, limit_of=HUGETLB)
    return Headroom(Fit.FITS, limit, vm, 0, "", limit - vm, limit_of=HUGETLB)


def memory_headroom(reading: VmReading, size: VmSize | None, declared: int, tight_percent: int) -> Headroom:
    """The verdict by the memory limit alone."""
    found = _memory_headroom(reading, VmSize(0, None, "") if reading.on_huge_pages else size, declared, tight_percent)
    return replace(found, limit_of=MEMORY, killed_at=None) if reading.on_huge_pages else found


def _memory_headroom(reading: VmReading, size: VmSize | None, declared: int, tight_percent: int) -> Headroom:
    vmm = vmm_of(reading)
    holders = () if vmm is None else limits_on(reading, vmm.cgroup)
    overhead, source = _overhead(reading, holders, declared)
    vm = size.memory if size is not None else None
    if vmm is None or not vmm.cgroup or not _pod_cgroups(reading):
        return Headroom(Fit.UNKNOWN, None, vm, overhead, source)
    if not holders or (reading.cgroup(Place.POD) is not None and holders[0].place is not Place.POD):
        return Headroom(Fit.OUTSIDE, None, vm, overhead, source)
    limit = min((one.memory_limit for one in holders if one.memory_limit not in (None, UNLIMITED)), default=None)
    if limit is None:
        fit = Fit.UNLIMITED if holders[0].memory_limit == UNLIMITED else Fit.UNKNOWN
        return Headroom(fit, None, vm, overhead, source)
    if vm is None or overhead is None:
        return Headroom(Fit.UNKNOWN, limit, vm, overhead, source)
    left = limit - vm - overhead
    if left < 0 and (source == MEASURED or limit < vm):
        return Headroom(Fit.KILLED, limit, vm, overhead, source, left, max(limit - overhead, 0))
    if holders[0].memory_limit is None:
        return Headroom(Fit.UNKNOWN, limit, vm, overhead, source, left)
    is_tight = left * 100 < limit * tight_percent
    return Headroom(Fit.TIGHT if is_tight else Fit.FITS, limit, vm, overhead, source, left)


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
