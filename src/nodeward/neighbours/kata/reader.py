"""Reads every VM sandbox of the host: its tasks, cgroups and guest memory, once a period, on kept descriptors.

Cheap by not doing everything each time: /proc is searched each SEARCH_S, when a process has ended, or when a sandbox is
expected that is not known or has no VMM yet; limits and what rarely changes are read every other time. Synchronous:
belongs to one lane.

Nothing is guessed: what cannot be read is None, and said in the reading's `faults`.
"""

import resource
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from nodeward.core.vms import OVERHEADS, CgroupDriver, CgroupReading, Place, Task, TaskRole, VmReading
from nodeward.core.workload import SandboxId
from nodeward.host.hostfs import HostFiles
from nodeward.neighbours.formats import cgroup_paths
from nodeward.neighbours.kata import finder, guest_memory, tasks
from nodeward.neighbours.kata.cgroups import CgroupFiles, Trees, with_child
from nodeward.neighbours.kata.finder import Found
from nodeward.neighbours.kata.guest_memory import GuestMemory
from nodeward.neighbours.kata.kept import MOST, Kept
from nodeward.neighbours.kata.tasks import SeenTask, Tasks

SEARCH_S = 10.0
DEEP_EVERY = 2
"""In which cgroups tasks are is read at each so many readings of a sandbox, so a move is seen within two periods; in
between it is as it was."""
LIMITS_EVERY = 5
"""Limits change more rarely still."""
_SECOND_NS = 1_000_000_000
_KVM = "/sys/kernel/debug/kvm"


@dataclass(frozen=True, slots=True)
class Round:
    """All sandboxes that are there, read once."""

    readings: tuple[VmReading, ...]
    version: int
    driver: CgroupDriver | None


@dataclass(slots=True)
class _Vm:
    """One sandbox from one reading to the next."""

    found: Found
    shim: SeenTask | None
    vmm: SeenTask | None
    others: list[SeenTask]
    """virtiofsd and vhost threads of the kernel."""
    since_ns: int
    """When it was found."""
    is_dragonball: bool = False
    """The VM runs within the shim."""
    threads: dict[int, SeenTask] = field(default_factory=dict)
    kvm: tuple[int, ...] = ()
    """vCPU threads by KVM's debugfs."""
    guest: GuestMemory = field(default_factory=GuestMemory)
    turn: int = 0
    places: dict[Place, str] = field(default_factory=dict)

    @property
    def is_short(self) -> bool:
        """Whether a process of it was not read once, and is left out since; a search that finds it begins anew."""
        found = self.found
        gone = (found.shim is not None and self.shim is None) or (found.vmm is not None and self.vmm is None)
        return gone or len(self.others) < len(found.virtiofsd) + len(found.vhost)

    def seen(self) -> Iterator[SeenTask]:
        return chain((one for one in (self.shim, self.vmm) if one is not None), self.others, self.threads.values())


class Reader:
    """`now_ns` reads CLOCK_BOOTTIME; `where` are the cgroup trees."""

    def __init__(self, files: HostFiles, where: Trees, now_ns: Callable[[], int]) -> None:
        self._files, self._now_ns = files, now_ns
        self._kept = Kept(files, min(MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
        self._tasks, self._cgroups = Tasks(self._kept), CgroupFiles(self._kept, where)
        self._smaps = guest_memory.Smaps(files, now_ns)
        self._vms: dict[SandboxId, _Vm] = {}
        self._searched_ns: int | None = None
        self._missed: dict[SandboxId, None] = {}
        self._ended = False
        self.at = ""
        """The sandbox under way; empty while none is, `search` in a search."""

    @property
    def open_files(self) -> int:
        """Descriptors held."""
        return self._kept.open_files

    def read(self, expected: Mapping[SandboxId, str]) -> Round:
        """`expected`: the sandboxes with VMs that the runtime has told of, and the cgroups of their pods; empty for one
        that it does not tell. OSError where /proc cannot be listed."""
        if self._is_due(expected):
            self.at = "search"
            self._search(expected)
        self._smaps.begin()
        readings = list[VmReading]()
        for sandbox, vm in sorted(self._vms.items(), key=_since_smaps):  # the oldest first has its turn for smaps
            self.at = sandbox
            reading = self._one(vm, expected.get(sandbox, ""))
            if reading is None:
                self._forget(self._vms.pop(sandbox))
            else:
                readings.append(reading)
        self.at = ""
        return Round(tuple(readings), self._cgroups.where.version, _driver(readings))

    def close(self) -> None:
        """Gives every descriptor back."""
        self._kept.close()

    def _is_due(self, expected: Iterable[SandboxId]) -> bool:
        if self._searched_ns is None or self._ended or self._now_ns() - self._searched_ns >= SEARCH_S * _SECOND_NS:
            return True
        if any(one not in self._vms and one not in self._missed for one in expected):
            return True
        return any(self._is_starting(vm) for vm in self._vms.values())

    def _is_starting(self, vm: _Vm) -> bool:
        """A shim that was found before it has started its VMM."""
        is_bare = vm.found.vmm is None and not vm.is_dragonball
        return is_bare and self._now_ns() - vm.since_ns < SEARCH_S * _SECOND_NS

    def _search(self, expected: Iterable[SandboxId]) -> None:
        found = finder.find(self._files, expected)
        self._searched_ns, self._ended = self._now_ns(), False
        before, self._vms = self._vms, {}
        for sandbox, one in found.items():
            known = before.get(sandbox)
            if known is not None and _same(known.found, one) and not known.is_short:
                known.found = one
                self._vms[sandbox] = before.pop(sandbox)
            else:
                self._vms[sandbox] = self._new(one, len(self._vms))
        for gone in before.values():
            self._forget(gone)
        self._missed = {one: None for one in expected if one not in self._vms}
        unknown = {vm.vmm.pid: vm for vm in self._vms.values() if vm.vmm is not None and not _tells(vm)}
        for pid, tids in self._kvm(unknown).items():
            unknown[pid].kvm = tids

    def _new(self, one: Found, turn: int) -> _Vm:
        shim = tasks.process(TaskRole.SHIM, one.shim) if one.shim is not None else None
        vmm = tasks.process(TaskRole.VMM, one.vmm) if one.vmm is not None else None
        others = [tasks.process(TaskRole.VIRTIOFSD, each) for each in one.virtiofsd]
        others += [tasks.process(TaskRole.VHOST, each) for each in one.vhost]
        vm = _Vm(one, shim, vmm, others, self._now_ns(), turn=turn % DEEP_EVERY)
        for seen in vm.seen():  # the first reading has everything, whichever turn it is
            self._tasks.read(seen, [], places=True, memory=True)
        return vm

    def _forget(self, vm: _Vm) -> None:
        for seen in vm.seen():
            self._tasks.drop(seen)
        for path in vm.places.values():
            self._cgroups.drop(path)

    def _kvm(self, wanted: Mapping[int, _Vm]) -> dict[int, tuple[int, ...]]:
        """vCPU threads by VMM, where KVM's debugfs is there: `PID-FD/vcpuN/pid`."""
        found: dict[int, tuple[int, ...]] = {}
        try:
            names = self._files.listdir(_KVM) if wanted else []
        except OSError:
            return found
        for name in names:
            pid = name.partition("-")[0]
            if not pid.isdecimal() or int(pid) not in wanted:
                continue
            try:
                below = [one for one in self._files.listdir(f"{_KVM}/{name}") if one.startswith("vcpu")]
                numbers = [self._kept.once(f"{_KVM}/{name}/{one}/pid", 32).strip() for one in below]
            except OSError:
                continue
            found[int(pid)] = tuple(int(number) for number in numbers if number.isdigit())
        return found

    def _one(self, vm: _Vm, pod: str) -> VmReading | None:
        """None where nothing of it is left."""
        vm.turn += 1
        deep, faults = vm.turn % DEEP_EVERY == 0, list(vm.found.faults)
        at_ns = self._now_ns()
        if vm.shim is not None and not self._is_there(vm.shim, faults, deep):
            vm.shim = None
        vm.others = [one for one in vm.others if self._is_there(one, faults, deep)]
        said = vm.found.vmm.claim if vm.found.vmm is not None else None
        if vm.vmm is None and vm.found.vmm is None and vm.shim is not None:
            self._within_shim(vm, faults, deep)
        elif vm.vmm is not None:
            self._read_threads(vm, vm.vmm, faults, deep)
            if not self._is_there(vm.vmm, faults, deep):
                self._drop_threads(vm)
                vm.vmm = None
        if vm.shim is None and vm.vmm is None:
            return None
        guest_ram, rss = None, None
        if vm.vmm is not None and said is not None:
            rss, guest_ram = self._smaps.read(vm.guest, vm.vmm, self._kept, said, faults)
        listed = tuple(self._listed(vm, rss, faults))
        kind = "dragonball" if vm.is_dragonball else said.vmm if said is not None and vm.vmm is not None else ""
        namespace = vm.found.shim.claim.namespace if vm.found.shim is not None else ""
        return VmReading(
            vm.found.sandbox,
            at_ns,
            listed,
            self._read_cgroups(vm, listed, pod, faults, deep),
            namespace,
            kind,
            said.memory if said is not None else None,
            said.vcpus if said is not None else None,
            guest_ram,
            faults=tuple(dict.fromkeys(faults)),
            on_huge_pages=vm.guest.on_huge_pages and not self._cgroups.where.memory_has_huge,
        )

    def _is_there(self, one: SeenTask, faults: list[str], deep: bool) -> bool:
        role = one.role
        memory = role is TaskRole.VMM or (deep and role is not TaskRole.VHOST)
        said = len(faults)
        if self._tasks.read(one, faults, places=deep, memory=memory):
            return True
        self._tasks.drop(one)
        self._ended = True
        unread = len(faults) > said  # why is said already
        why = "is not read in this round" if unread else "has ended, or its number is another's by now"
        faults.append(f"{role.value} process {one.pid} {why}; it is not counted")
        return False

    def _within_shim(self, vm: _Vm, faults: list[str], deep: bool) -> None:
        """Dragonball has no process of its own: its vCPUs are threads of the shim."""
        shim = vm.shim
        if shim is None or not (deep or vm.is_dragonball):
            return
        self._read_threads(vm, shim, faults, deep)
        vcpus = {tid: one for tid, one in vm.threads.items() if tasks.is_vcpu(one.name)}
        for tid, one in vm.threads.items():
            if tid not in vcpus:
                self._tasks.drop(one)
        vm.threads, vm.is_dragonball = vcpus, bool(vcpus)

    def _read_threads(self, vm: _Vm, of: SeenTask, faults: list[str], deep: bool) -> None:
        """Before the process itself, whose time then has all of theirs in it."""
        if not vm.threads or len(vm.threads) + 1 != of.threads:  # one that has ended is left out when it is read
            listed = self._tasks.threads(of.pid, vm.threads)
            for tid in [one for one in vm.threads if one not in listed]:
                self._tasks.drop(vm.threads[tid])
            vm.threads = listed
        for tid, one in list(vm.threads.items()):
            if not self._tasks.read(one, faults, places=deep or one.start < 0, memory=False):
                self._tasks.drop(one)
                del vm.threads[tid]  # threads come and go
        _give_roles(vm, of)

    def _drop_threads(self, vm: _Vm) -> None:
        for one in vm.threads.values():
            self._tasks.drop(one)
        vm.threads = {}

    def _listed(self, vm: _Vm, rss: int | None, faults: list[str]) -> Iterator[Task]:
        if vm.shim is not None:
            mine = _rest(vm.shim, vm.threads) if vm.is_dragonball else vm.shim.ticks
            yield vm.shim.task(TaskRole.SHIM, mine, vm.shim.rss)
        if vm.vmm is not None:
            yield vm.vmm.task(TaskRole.VMM, _rest(vm.vmm, vm.threads), vm.vmm.rss if rss is None else rss)
            if not _tells(vm):
                why = "neither their names nor KVM's debugfs nor their cgroups tell"
                faults.append(f"which threads of VMM {vm.vmm.pid} are vCPUs is not known: {why}")
        for one in vm.threads.values():
            yield one.task(one.role, one.ticks, None)
        for one in vm.others:
            yield one.task(one.role, one.ticks, one.rss if one.role is TaskRole.VIRTIOFSD else None)

    def _read_cgroups(
        self, vm: _Vm, listed: tuple[Task, ...], pod: str, faults: list[str], deep: bool
    ) -> tuple[CgroupReading, ...]:
        if deep or not vm.places:
            places = _places(vm.found.sandbox, listed, pod)
            for path in vm.places.values():
                if path not in places.values():
                    self._cgroups.drop(path)
            vm.places = places
        limits = vm.turn % LIMITS_EVERY == 0
        huge = vm.guest.on_huge_pages
        found = {
            place: self._cgroups.read(place, path, faults, limits=limits, huge=huge)
            for place, path in vm.places.items()
        }
        of_pod, inside = found.get(Place.POD), found.get(Place.SANDBOX)
        if of_pod is not None and self._cgroups.where.version == 1:
            found[Place.POD] = with_child(of_pod, inside)
        return tuple(one for one in found.values() if one is not None)


def _since_smaps(one: tuple[SandboxId, _Vm]) -> int:
    """When smaps of its VMM was read last."""
    return one[1].guest.at_ns or 0


def _same(one: Found, other: Found) -> bool:
    """Whether both have the same processes."""
    return _ids(one) == _ids(other)


def _ids(one: Found) -> list[tuple[int, int]]:
    every = (*(each for each in (one.shim, one.vmm) if each is not None), *one.virtiofsd, *one.vhost)
    return [(each.pid, each.start) for each in every]


def _tells(vm: _Vm) -> bool:
    """Whether it is known which threads are vCPUs."""
    return any(one.role is TaskRole.VCPU for one in vm.threads.values())


def _rest(of: SeenTask, threads: Mapping[int, SeenTask]) -> int | None:
    """The process' time without what its listed threads have: the leader's own, and that of threads which ended."""
    if of.ticks is None:
        return None
    return max(0, of.ticks - sum(one.ticks for one in threads.values() if one.ticks is not None))


def _give_roles(vm: _Vm, of: SeenTask) -> None:
    """By names, else by KVM, else by the cgroup: a runtime moves no other thread away from the VMM than vCPUs."""
    threads = vm.threads.values()
    by_name = [one for one in threads if tasks.is_vcpu(one.name)]
    vcpus = by_name or [one for one in threads if one.tid in vm.kvm]
    if not vcpus and of.paths[1]:
        vcpus = [one for one in threads if one.paths[1] and one.paths[1] != of.paths[1]]
    chosen = {one.tid: None for one in vcpus}
    for one in threads:
        vhost = one.name.startswith("vhost-")
        one.role = TaskRole.VCPU if one.tid in chosen else TaskRole.VHOST if vhost else TaskRole.IO


def _places(sandbox: SandboxId, listed: tuple[Task, ...], pod: str) -> dict[Place, str]:
    """Which cgroups to read: the pod's, the sandbox's (with vCPUs, else the VMM, else the shim in it), and one of its
    own outside the pod."""
    order = (TaskRole.VCPU, TaskRole.VMM, TaskRole.SHIM, TaskRole.VIRTIOFSD)
    ranked = sorted((one for one in listed if one.role in order), key=lambda one: order.index(one.role))
    paths = dict.fromkeys(path for one in ranked for path in (one.cpu_cgroup, one.cgroup) if path not in ("", "/"))
    own = [path for path in paths if sandbox in path.rpartition("/")[2]]
    outside = [path for path in own if path.startswith(OVERHEADS)]
    inside = [path for path in own if path not in outside]
    if not pod:
        above = [path.rpartition("/")[0] for path in inside]
        pod = next((path for path in (*above, *paths) if cgroup_paths.pod_uid(path.rpartition("/")[2])), "")
    found = {Place.POD: pod, Place.SANDBOX: inside[0] if inside else "", Place.OVERHEAD: outside[0] if outside else ""}
    return {place: path for place, path in found.items() if path}


def _driver(readings: Iterable[VmReading]) -> CgroupDriver | None:
    """By the form of the first pod's cgroup."""
    for reading in readings:
        pod = reading.cgroup(Place.POD)
        if pod is not None:
            return CgroupDriver.SYSTEMD if pod.path.endswith(".slice") else CgroupDriver.CGROUPFS
    return None
