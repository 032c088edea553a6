"""Whether a pod's memory limit has room for its VM: `limit - vm - overhead = left`.

A VM uses all the memory that it was given sooner or later, since its guest keeps files in it. Where the limit is below
that and what the VMM, shim and virtiofsd need, the kernel ends the VMM one day. It is said here before it happens.
"""

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
MEASURED = "measured"
"""Only with such an overhead is a pod said to be too small that has room for the VM alone."""


def headroom(reading: VmReading, size: VmSize | None, declared: int, tight_percent: int) -> Headroom:
    """The verdict. `declared`: the RuntimeClass's overhead in bytes, 0 for none."""
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
