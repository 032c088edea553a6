"""The limits of a pod's cgroup: the sum of its containers' limits and the overhead, as kubelet would set them.

Kubelet sets them for its own pods. A CRI runtime without kubelet sets none: there, and only there, the mode enforce
sets them. A limit that somebody else has set is left alone, and so is a cgroup that others share. Docker tells of no
pod: its containers get no limit.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from nodeward.core.decision import Goal, Special, Target
from nodeward.core.refusal import Reason
from nodeward.core.vms import UNLIMITED, CgroupReading, Place, VmReading
from nodeward.core.workload import NO_WHOLE, Container, ContainerSpec, PodSpec, Role, Sandbox
from nodeward.features.pods.budget import containers_need
from nodeward.features.sandboxes.headroom import USUAL, memory_headroom
from nodeward.features.sandboxes.size import cpu_limit_m
from nodeward.features.sandboxes.state import Limited, Vm
from nodeward.features.sandboxes.values import Fit, Recommended

KIND = "pod.limit"
"""A pod's memory or CPU limit (`Target.resource` is MEMORY, in bytes, or CPU, in thousandths)."""
MEMORY, CPU = "memory", "cpu"
KUBELETS = "kubepods"
"""Kubelet's own cgroups have this in the name of one above them, by either driver and below any root."""

LARGEST_PAGE = 1 << 16
LEAST_UID = 8
"""A shorter UID, as a client without kubelet may give, is found in too many names."""

Amounts = tuple[int | None, int | None]
"""Memory in bytes and CPU in thousandths; None where there is none."""

USUAL_CPU_M = 250
"""What the RuntimeClasses of Kata declare for all VMMs but confidential ones."""


@dataclass(frozen=True, slots=True)
class Overhead:
    """What a pod needs besides its containers. 0 where nobody says."""

    memory: int = 0
    cpu_m: int = 0


NOTHING_DECLARED = Overhead()


def declared(spec: PodSpec | None, sandbox: Sandbox | None) -> Overhead:
    """The overhead of the pod's spec, else the one that kubelet passed to the runtime."""
    if spec is not None and (spec.overhead_memory or spec.overhead_cpu_m):
        return Overhead(spec.overhead_memory, spec.overhead_cpu_m)
    if sandbox is None:
        return Overhead()
    return Overhead(sandbox.overhead.memory, cpu_limit_m(sandbox.overhead.cpu) or 0)


def assumed(reading: VmReading, recommended: Recommended) -> Overhead:
    """The overhead to assume for a pod that declares none: the recommended one, else what is usual for its VMM."""
    memory, cpu_m = recommended.memory, recommended.cpu_m
    return Overhead(
        USUAL.get(reading.vmm, 0) if memory is None else memory,
        USUAL_CPU_M if cpu_m is None else cpu_m,
    )


def is_kubelets(reading: VmReading, sandbox: Sandbox | None) -> bool:
    """Whether kubelet manages the cgroups of this sandbox."""
    told = sandbox is not None and KUBELETS in sandbox.cgroup_parent
    return told or any(KUBELETS in one.path for one in reading.cgroups)


def limits(spec: PodSpec | None, containers: Iterable[Container], overhead: Overhead) -> Amounts:
    """What the pod's limits should be. `containers`: those that have not ended; the spec counts before them."""
    if spec is not None and spec.pod_level and (spec.whole is None or spec.whole.faults):
        return None, None  # the pod's own limits are not known
    if spec is not None:
        counting, whole = [one for one in spec.containers if one.role is not Role.EPHEMERAL], spec.whole or NO_WHOLE
        memory = whole.memory_limit or _need(counting, [one.memory_limit for one in counting])
        cpu_m = whole.cpu_limit_m or _need(counting, [one.cpu_limit_m for one in counting])
    else:
        there = list(containers)
        memory = _sum([one.memory for one in there])
        cpu_m = _sum([cpu_limit_m(one.cpu) or 0 for one in there])
    return (
        None if memory is None else memory + overhead.memory,
        None if cpu_m is None else cpu_m + overhead.cpu_m,
    )


def own_cgroup(vm: Vm, sandbox: Sandbox | None) -> CgroupReading | None:
    """The cgroup that may be limited: the pod's where its name says whose it is, else the sandbox's. None for a pod of
    kubelet's, and where neither is this sandbox's alone."""
    reading = vm.reading
    if sandbox is None or is_kubelets(reading, sandbox):
        return None
    names = [str(reading.sandbox)]
    if len(sandbox.pod_uid) >= LEAST_UID:
        names += [sandbox.pod_uid, sandbox.pod_uid.replace("-", "_")]
    both = (reading.cgroup(Place.POD), reading.cgroup(Place.SANDBOX))
    mine = (one for one in both if one is not None and any(name in one.path.rpartition("/")[2] for name in names))
    return next(mine, None)


@dataclass(frozen=True, slots=True)
class Wish:
    """What a sandbox's cgroup is to have."""

    path: str
    values: Mapping[str, int | None]
    """By resource; None: what we have set is taken back."""
    why_not: str = ""
    """Why the memory limit is not set although it is missing."""


def wish(vm: Vm, cgroup: CgroupReading, ours: Limited | None) -> Wish:
    """The limits to set. `ours`: what we have wanted there, which follows what the containers ask for."""
    ours = ours if ours is not None and ours.path == cgroup.path else Limited(cgroup.path)
    memory, cpu_m = vm.limits
    values = dict[str, int | None]()
    why = ""
    if _is_due(cgroup.cpu_limit_m, cpu_m, ours.cpu, 1):
        values[CPU] = cpu_m
    has = cgroup.memory_limit
    if _is_due(has, memory, ours.memory, LARGEST_PAGE):
        why = "" if memory is None else _unknown(vm) or _kills(vm, cgroup, memory)
        if not why:
            values[MEMORY] = memory
    elif has is not None and has != UNLIMITED and any(_alike(has, one, LARGEST_PAGE) for one in ours.memory):
        why = _kills(vm, cgroup, has)
        if why:  # the VM has become larger than what it was limited by
            values[MEMORY] = None
    return Wish(cgroup.path, values, why)


def noted(ours: Limited | None, one: Wish, cgroup: CgroupReading) -> Limited:
    """The entry with what is wanted now."""
    known = ours if ours is not None and ours.path == one.path else Limited(one.path)
    memory = _with(known.memory, one.values.get(MEMORY), cgroup.memory_limit, LARGEST_PAGE)
    return Limited(one.path, memory, _with(known.cpu, one.values.get(CPU), cgroup.cpu_limit_m, 1))


def _with(before: tuple[int, ...], value: int | None, has: int | None, step: int) -> tuple[int, ...]:
    """What the kernel has stays known, however many later values it refused."""
    if value is None or value in before[-1:]:
        return before
    there = [one for one in before[:-1] if has is not None and _alike(has, one, step)]
    return (*there[:1], *before[-1:], value)


def goals(one: Wish, sandbox: str, perform: bool) -> tuple[Goal, ...]:
    """A goal for each limit."""
    return tuple(
        Goal(
            Target(KIND, one.path, resource),
            Special.ABSENT if value is None else str(value),
            Reason("pod-limit", (sandbox,)),
            perform=perform,
            ours=value is None,
        )
        for resource, value in one.values.items()
    )


def targets(path: str) -> tuple[Target, ...]:
    """All that may be set of a cgroup."""
    return Target(KIND, path, MEMORY), Target(KIND, path, CPU)


def _is_due(has: int | None, should: int | None, ours: tuple[int, ...], step: int) -> bool:
    """Whether a limit is missing, or is one that we have set and is to be another one now, or cannot be read any more.
    The kernel rounds down to less than `step`: memory to whole pages."""
    if has is None:
        return bool(ours) and should is not None
    if has == UNLIMITED:
        return should is not None
    return any(_alike(has, one, step) for one in ours) and not _alike(has, should, step)


def _alike(has: int, other: int | None, step: int) -> bool:
    return other is not None and 0 <= other - has < step


def _unknown(vm: Vm) -> str:
    """Why no memory limit can be judged; empty where it can."""
    found = memory_headroom(vm.reading, vm.size, 0, 0, vm.beside)
    if found.fit is not Fit.OUTSIDE and (found.vm is None or found.overhead is None):
        return "no memory limit is set: how much the VM and its processes take is not known"
    return ""


def _kills(vm: Vm, cgroup: CgroupReading, limit: int) -> str:
    """Why this limit would end the VM, now or once its guest has used its memory; empty where it does not."""
    told = f"a memory limit of {limit} bytes would end the VM"
    remedy = "Give the containers a higher limit, or the VM less memory"
    if cgroup.memory is not None and cgroup.memory > limit:
        return f"{told}: {cgroup.memory} are in use. {remedy}"
    cgroups = tuple(replace(one, memory_limit=limit) if one is cgroup else one for one in vm.reading.cgroups)
    found = memory_headroom(replace(vm.reading, cgroups=cgroups), vm.size, 0, 0, vm.beside)
    if found.left is None or found.left >= 0 or found.limit != limit:
        return ""
    others = f"; the pod's other VMs take {found.beside}" if found.beside else ""
    return f"{told}: it has {found.vm}, and its processes take {found.overhead} more{others}. {remedy}"


def _need(containers: Iterable[ContainerSpec], amounts: list[int]) -> int | None:
    if _sum(amounts) is None:
        return None
    return containers_need((one.role, amount) for one, amount in zip(containers, amounts, strict=True))


def _sum(amounts: list[int]) -> int | None:
    return sum(amounts) if amounts and all(amount > 0 for amount in amounts) else None
