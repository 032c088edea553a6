"""What a sandbox costs the host, from two readings of it.

A figure is None where a part of it is not known, and never 0 for that. Counters never fall: each reading adds what was
used since the one before, so what tasks used that have ended stays. A task is the same one only where its id and its
start time are: an id that was given to another task counts as a new task.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from nodeward.core.vms import CgroupReading, Place, Task, TaskRole, VmReading
from nodeward.features.sandboxes.values import Usage

INSIDE_SHIM = "dragonball"
"""This VMM is a part of the shim's process."""
_BESIDE = (TaskRole.SHIM, TaskRole.VIRTIOFSD)
_PROCESSES = (TaskRole.SHIM, TaskRole.VMM, TaskRole.VIRTIOFSD)


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """Memory by process. `guest` is in `vmm` no more. A process that is not there has 0; what cannot be told, None."""

    guest: int | None
    vmm: int | None
    shim: int | None
    virtiofsd: int | None

    @property
    def overhead(self) -> int | None:
        """Without guest RAM."""
        return added((self.vmm, self.shim, self.virtiofsd))


def usage(before: VmReading | None, now: VmReading, known: Usage | None = None) -> Usage:
    """What the sandbox costs now. `known`: what was said of `before`; a reading that is no newer changes nothing."""
    if before is not None and known is not None and now.at_ns <= before.at_ns:
        return known
    period = 0 if before is None else now.at_ns - before.at_ns
    apart, then = _apart(now), _by_id(before)
    found, outside = parts(now), _outside_memory(now, apart)
    spent, vcpu = _spent(before, then, now, apart), _vcpu(then, now)
    cpu_m, vcpu_m = _rate(spent.all, period), _rate(vcpu, period)
    all_ns, all_vcpu_ns = (known.cpu_ns, known.vcpu_ns) if known is not None else (None, None)
    return Usage(
        memory=_all_memory(apart[0], outside, found.guest, now.on_huge_pages),
        guest=found.guest,
        vmm=found.vmm,
        shim=found.shim if now.of(TaskRole.SHIM) else None,
        virtiofsd=found.virtiofsd if now.of(TaskRole.VIRTIOFSD) else None,
        outside=outside,
        cpu_m=cpu_m,
        vcpu_m=vcpu_m,
        overhead_cpu_m=None if cpu_m is None or vcpu_m is None else max(cpu_m - vcpu_m, 0),
        cpu_ns=_more(all_ns, spent.known if all_ns is not None else _spent(None, {}, now, apart).known),
        vcpu_ns=_more(all_vcpu_ns, vcpu if all_vcpu_ns is not None else _vcpu({}, now)),
        outside_cpu_m=_rate(spent.outside, period),
    )


def parts(reading: VmReading, counts: Callable[[Task], bool] | None = None) -> MemoryParts:
    """The memory of the sandbox's processes; with `counts` of those for which that is true."""
    vmm, guest = vmm_of(reading), reading.guest_ram
    bare, shims, virtiofsd = None, list[int | None](), list[int | None]()
    for task in reading.tasks:
        role = task.role
        if task is vmm:
            if counts is not None and not counts(task):
                bare = 0
            elif task.rss is not None and guest is not None and task.rss >= guest:
                bare = task.rss - guest
        elif role in _BESIDE and (counts is None or counts(task)):
            (shims if role is TaskRole.SHIM else virtiofsd).append(task.rss)
    return MemoryParts(guest, bare, added(shims), added(virtiofsd))


def vmm_of(reading: VmReading) -> Task | None:
    """The process in whose cgroup the VM's memory is charged; None where it is not seen."""
    for task in reading.tasks:
        if task.role is TaskRole.VMM:
            return task
    shims = reading.of(TaskRole.SHIM) if reading.vmm == INSIDE_SHIM else ()
    return shims[0] if shims else None


def below(path: str, above: str) -> bool:
    """Whether a cgroup is that other one or lies in it."""
    return bool(path and above) and (path == above or path.startswith(above.rstrip("/") + "/"))


def added(amounts: Iterable[int | None]) -> int | None:
    """The sum; None where an amount is not known."""
    total = 0
    for amount in amounts:
        if amount is None:
            return None
        total += amount
    return total


# ---- memory


_Apart = tuple[CgroupReading | None, ...]
"""The sandbox's cgroup that holds the others, and those that are not in it."""
_Tasks = Mapping[int, Task]
"""By their ids, which are one of a kind on a host at one time."""


def _outside_memory(now: VmReading, apart: _Apart) -> int | None:
    """What cgroups outside the pod are charged for this sandbox: those read, and the processes in none of them."""
    own, *others = apart
    if own is None or not now.tasks:
        return None
    counted = [one for one in others if one is not None and one.memory is not None]
    amounts = [one.memory for one in counted]
    paths = [own.path, *(one.path for one in counted)]
    for task in _processes(now):
        if not any(below(task.cgroup, path) for path in paths):
            amounts.append(_charged(now, task) if task.cgroup else None)
    return added(amounts)


def _charged(now: VmReading, task: Task) -> int | None:
    """What the process has in memory; of a VMM without its guest on huge pages, which is counted with the guest."""
    is_apart = now.on_huge_pages and task.role is TaskRole.VMM
    return None if task.rss is None else task.rss - (now.guest_ram or 0) if is_apart else task.rss


def _all_memory(own: CgroupReading | None, outside: int | None, guest: int | None, is_huge: bool) -> int | None:
    """What all cgroups are charged for the sandbox; a guest on huge pages is charged beside memory. None also where
    that is less than its guest RAM: a process that moves leaves what it was charged with behind, in a cgroup that is
    not known any more."""
    total = added((own.memory if own is not None else None, outside, *((guest,) if is_huge else ())))
    return None if total is not None and guest is not None and total < guest else total


def _apart(now: VmReading) -> _Apart:
    """The pod's cgroup (or the sandbox's, where there is no pod), and those that are not in it. One that several
    sandboxes share, as Kata's `/kata`, is none of this one's: its name does not have the sandbox's id."""
    pod, sandbox = now.cgroup(Place.POD), now.cgroup(Place.SANDBOX)
    own = pod or sandbox
    others = [one for one in now.cgroups if one is not own and now.sandbox in one.path.rpartition("/")[2]]
    return own, *(one for one in others if own is None or not below(one.path, own.path))


def _processes(now: VmReading) -> list[Task]:
    """Each process once, also where the VMM is a part of the shim."""
    return list({task.pid: task for task in now.of(*_PROCESSES)}.values())


# ---- CPU time


@dataclass(frozen=True, slots=True)
class _Spent:
    """CPU time between two readings; with the first one all so far."""

    all: int | None
    """None where a part of it is not known."""
    known: int | None
    """What of it is known; None where nothing is."""
    outside: int | None


def _spent(before: VmReading | None, then: _Tasks, now: VmReading, apart: _Apart) -> _Spent:
    """By the cgroups' own counters, which have what ended tasks used, and by tasks that are in none of these."""
    own, *others = apart
    counted = {one.path: delta for one in (own, *others) if one and (delta := _cgroup_delta(before, one)) is not None}
    inside: list[int | None] = [delta for path, delta in counted.items() if own is not None and path == own.path]
    outside: list[int | None] = [delta for path, delta in counted.items() if own is None or path != own.path]
    has_counter = dict[str, bool]()
    for task in now.tasks:
        where = task.cpu_cgroup or task.cgroup
        if not where:
            outside.append(None)  # whether a counter has it is not known
            continue
        if where not in has_counter:
            has_counter[where] = any(below(where, path) for path in counted)
        if not has_counter[where]:
            is_own = own is not None and below(where, own.path)
            (inside if is_own else outside).append(_task_delta(then, task, now))
    every = [*inside, *outside]
    known = [amount for amount in every if amount is not None]
    return _Spent(
        added(every) if every else None,
        sum(known) if known else None,
        added(outside) if own is not None and now.tasks else None,
    )


def _vcpu(then: _Tasks, now: VmReading) -> int | None:
    deltas = [_task_delta(then, task) for task in now.tasks if task.role is TaskRole.VCPU]
    return added(deltas) if deltas else None


def _by_id(reading: VmReading | None) -> _Tasks:
    return {} if reading is None else {task.tid: task for task in reading.tasks}


def _cgroup_delta(before: VmReading | None, cgroup: CgroupReading) -> int | None:
    """What was used in the cgroup since. None where its counter was not read before: until the next reading its tasks
    are counted, which were counted so far."""
    if before is None or cgroup.cpu_ns is None:
        return cgroup.cpu_ns
    then = before.cgroup(cgroup.place)
    if then is None or then.path != cgroup.path or then.cpu_ns is None:
        return None
    return cgroup.cpu_ns - then.cpu_ns if cgroup.cpu_ns >= then.cpu_ns else cgroup.cpu_ns  # made anew by the same name


def _task_delta(then: _Tasks, task: Task, now: VmReading | None = None) -> int | None:
    """What the task used since; all that it ever used where it is new. None where its start is not known: it may be
    any. A process' time has from now on what its threads used that have ended; with `now` they are looked for."""
    old = then.get(task.tid)
    if task.cpu_ns is None or task.start <= 0:
        return None
    if old is None or (old.pid, old.start) != (task.pid, task.start):
        return task.cpu_ns
    if old.cpu_ns is None:
        return None
    ended = 0 if now is None or task.tid != task.pid else _ended(then, task.pid, now)
    return max(task.cpu_ns - old.cpu_ns - ended, 0)


def _ended(then: _Tasks, pid: int, now: VmReading) -> int:
    """What those threads of a process had used that have ended since."""
    there = {(one.tid, one.start): None for one in now.tasks if one.pid == pid}
    mine = (one for one in then.values() if one.pid == pid != one.tid and (one.tid, one.start) not in there)
    return sum(one.cpu_ns or 0 for one in mine)


def _rate(spent: int | None, period_ns: int) -> int | None:
    """Thousandths of a CPU."""
    return None if spent is None or period_ns <= 0 else (spent * 1000 + period_ns // 2) // period_ns


def _more(known: int | None, spent: int | None) -> int | None:
    return spent if known is None else known + (spent or 0)
