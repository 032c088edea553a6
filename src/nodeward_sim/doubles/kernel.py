"""The kernel of a simulated node: a double of the host's files that answers like a real cgroup v2 kernel.

`SimKernel` is a `HostFiles`: a cgroup tree with the misc controller at /sys/fs/cgroup and ordinary files elsewhere; on
demand the controller is in a hierarchy of cgroup v1 at /sys/fs/cgroup/misc instead. It
raises the kernel's own errno values and reads back what the kernel would print, so production code above cannot tell.
The contract suite (tests/contract/kernel) runs the same cases here and against the real controller in a guest; a
difference is a fault of this double.

It is deterministic (no clock, no randomness, no thread) and not locked: one thread at a time. What drivers and runtimes
do to a kernel (capacity, charges, processes) are methods beside the port, for tests and scenarios.
"""

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from nodeward.core import cpuset
from nodeward.core.cpuset import CpuSet
from nodeward.host.hostfs import FileInfo, checked_path
from nodeward_sim.doubles.cgroup_tree import Cgroup, CgroupFile, CgroupTree
from nodeward_sim.doubles.cpu_controller import CpuState
from nodeward_sim.doubles.cpus import Plan, cpus_of, sysfs
from nodeward_sim.doubles.memory_controller import MemoryState
from nodeward_sim.doubles.misc_controller import MiscController, MiscState, RefusalError
from nodeward_sim.doubles.plain_files import File, PlainFiles

CGROUP_MOUNT: Final = "/sys/fs/cgroup"
V1_MOUNT: Final = f"{CGROUP_MOUNT}/misc"
RESOURCES: Final = ("sev", "sev_es", "sgx_epc", "tdx")
CONTROLLERS: Final = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids", "misc")
_RANDOM: Final = ("/proc", "/proc/sys", "/proc/sys/kernel", "/proc/sys/kernel/random")
_BOOT_ID: Final = f"{_RANDOM[-1]}/boot_id"
_FOLDERS: Final = (
    *_RANDOM,
    "/dev",
    "/etc",
    "/run",
    "/sys",
    "/sys/fs",
    CGROUP_MOUNT,
    "/tmp",
    "/var",
    "/var/lib",
    "/var/log",
)
_FIRST_HANDLE: Final = 3

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Inside:
    """A place in a mounted cgroup tree; the path is relative to its root."""

    tree: CgroupTree
    path: str


@dataclass(slots=True, eq=False)
class _Charge:
    """Something that holds `amount` of a resource, for instance a running VM; it was charged where `state` is."""

    path: str
    state: MiscState
    resource: str
    amount: int


@dataclass(frozen=True, slots=True)
class HeldCharge:
    """A charge held by processes that were in the cgroup `path`. Orphaned: that level's counter is gone."""

    path: str
    resource: str
    amount: int
    orphaned: bool


class SimKernel:
    """An in-memory kernel. `capacity` is what drivers have registered; `resources` the names that it was built with;
    `machine` the CPUs, which sysfs then shows. Without, there is one CPU and nothing in sysfs."""

    def __init__(
        self,
        capacity: Mapping[str, int],
        resources: tuple[str, ...] = RESOURCES,
        controllers: tuple[str, ...] = CONTROLLERS,
        machine: Plan | None = None,
    ) -> None:
        self._misc = MiscController(resources, capacity)
        self._tree = CgroupTree(controllers, self._misc)
        self._machine, self._sysfs = machine, dict[str, str]()
        self._v1: CgroupTree | None = None
        self._plain = PlainFiles()
        for folder in _FOLDERS:
            self._plain.mkdir(folder)
        self._plain.replace(_BOOT_ID, b"00000000-0000-4000-8000-000000000001\n")
        self._handles: dict[int, File | CgroupFile | None] = {}
        self._versions: dict[int, int | None] = {}
        self._charges: list[_Charge] = []
        if machine is not None:
            self._show_cpus(machine)
        self.on_refusal: Callable[[], None] = lambda: None
        """Called after a refused charge: now a `wait` elsewhere may have to end."""

    # The host's files.

    def open(self, path: str) -> int:
        def look(place: str, inside: Inside | None) -> File | CgroupFile | None:
            found = self._plain.node(place) if inside is None else inside.tree.find(inside.path)
            return found if isinstance(found, File | CgroupFile) else None

        node = self._at(path, look)
        handle = _FIRST_HANDLE
        while handle in self._handles:
            handle += 1
        self._handles[handle] = node
        return handle

    def pread(self, handle: int, max_bytes: int) -> bytes:
        if handle not in self._handles:
            raise _os_error(errno.EBADF, f"handle {handle}")
        node = self._handles[handle]
        if node is None:
            raise _os_error(errno.EISDIR, f"handle {handle}")
        try:
            if isinstance(node, File):
                return node.now()[:max_bytes]
            data = self._tree_of(node).read(node)[:max_bytes]
            self._versions[handle] = self._tree.version(node)
            return data
        except RefusalError as refusal:
            raise _os_error(refusal.number, "" if isinstance(node, File) else node.name) from refusal

    def close(self, handle: int) -> None:
        if handle not in self._handles:
            raise _os_error(errno.EBADF, f"handle {handle}")
        del self._handles[handle]
        self._versions.pop(handle, None)

    def wait(self, handles: Sequence[int], timeout_s: float) -> list[int]:
        """What has changed by now: time stands still here, so nothing is waited for."""
        return [handle for handle in handles if self._has_changed(handle)]

    def _has_changed(self, handle: int) -> bool:
        node = self._handles.get(handle)
        if isinstance(node, File):
            return False
        if node is None or handle not in self._versions:
            return True
        version = self._tree.version(node)
        return version is None or version != self._versions[handle]

    def read(self, path: str, max_bytes: int, *, own: bool = False) -> bytes:
        def content(place: str, inside: Inside | None) -> bytes:
            if inside is None:
                return self._plain.file(place).now()
            return inside.tree.read(self._cgroup_file(inside))

        data = self._at(path, content)
        if len(data) > max_bytes:
            raise OSError(errno.EFBIG, f"larger than the {max_bytes} bytes allowed here", path)
        return data

    def write(self, path: str, data: bytes) -> None:
        def put(place: str, inside: Inside | None) -> None:
            if inside is None:
                self._plain.write(place, data)
            else:
                inside.tree.write(self._cgroup_file(inside), data)

        self._at(path, put)

    def append(self, path: str, data: bytes, sync: bool) -> None:
        def put(place: str, inside: Inside | None) -> None:
            if inside is None:
                self._plain.append(place, data)
            else:
                inside.tree.write(self._cgroup_file(inside, missing=errno.EACCES), data)

        self._at(path, put)

    def replace(self, path: str, data: bytes) -> None:
        def put(place: str, inside: Inside | None) -> None:
            if inside is not None:
                raise RefusalError(errno.EACCES)
            self._plain.replace(place, data)

        self._at(path, put)

    def listdir(self, path: str) -> list[str]:
        def names(place: str, inside: Inside | None) -> list[str]:
            if inside is None:
                return self._plain.listdir(place)
            cgroup = inside.tree.cgroup(inside.path)
            return sorted([*cgroup.children, *inside.tree.files_in(cgroup)])

        return self._at(path, names)

    def stat(self, path: str) -> FileInfo:
        def info(place: str, inside: Inside | None) -> FileInfo:
            return self._plain.stat(place) if inside is None else inside.tree.stat(inside.tree.find(inside.path))

        return self._at(path, info)

    def real(self, path: str) -> str:
        return self._at(path, lambda place, inside: self._plain.real(place) if inside is None else place)

    def mkdir(self, path: str) -> None:
        def make(place: str, inside: Inside | None) -> None:
            if inside is None:
                self._plain.mkdir(place)
            else:
                inside.tree.make(inside.path)

        self._at(path, make)

    def rmdir(self, path: str) -> None:
        def remove(place: str, inside: Inside | None) -> None:
            if inside is None:
                self._plain.rmdir(place)
            else:
                inside.tree.remove(inside.path)

        self._at(path, remove)

    def unlink(self, path: str) -> None:
        def remove(place: str, inside: Inside | None) -> None:
            if inside is None:
                self._plain.unlink(place)
            else:
                raise RefusalError(errno.EISDIR if isinstance(inside.tree.find(inside.path), Cgroup) else errno.EPERM)

        self._at(path, remove)

    # What drivers, runtimes and virtual machines do to a kernel.

    def make_cgroup(self, path: str) -> None:
        """Makes this cgroup and its missing parents (controllers are enabled by `write` only)."""
        inside = self._inside(checked_path(path))
        if inside is None:
            raise ValueError(f"{path!r} is not beneath {CGROUP_MOUNT}")
        here = CGROUP_MOUNT if inside.tree is self._tree else V1_MOUNT
        for name in [part for part in inside.path.split("/") if part]:
            here = f"{here}/{name}"
            try:
                self.mkdir(here)
            except FileExistsError:
                continue

    def remove_cgroup(self, path: str) -> None:
        """Removes the cgroup, as a runtime does at the end of a container."""
        self.rmdir(path)

    def set_capacity(self, name: str, value: int) -> None:
        """Sets the capacity, as a driver does when it loads (n), is reconfigured (m) or unloads (0)."""
        try:
            self._misc.set_capacity(name, value)
        except RefusalError as refusal:
            raise _os_error(refusal.number, name) from refusal

    def charge(self, cgroup: str, resource: str, amount: int) -> None:
        """A process in `cgroup` takes `amount`. EBUSY: a limit or the capacity is reached. EINVAL: nothing to be
        had.
        """

        def take(place: str, inside: Inside | None) -> None:
            state = _required(inside).tree.effective_misc(self._host_of_processes(inside))
            try:
                self._misc.charge(state, resource, amount)
            except RefusalError:
                self.on_refusal()
                raise
            self._charges.append(_Charge(place, state, resource, amount))

        self._at(cgroup, take)

    def uncharge(self, cgroup: str, resource: str, amount: int) -> None:
        """What a process in `cgroup` took is given back, oldest first, also after the cgroup is gone. ERANGE: not
        held.
        """
        place = checked_path(cgroup)
        held = [one for one in self._charges if one.path == place and one.resource == resource]
        if sum(one.amount for one in held) < amount:
            raise _os_error(errno.ERANGE, cgroup)
        for one in held:
            given = min(amount, one.amount)
            self._misc.uncharge(one.state, resource, given)
            one.amount -= given
            amount -= given
        self._charges = [one for one in self._charges if one.amount]

    def underflow(self, cgroup: str, resource: str, amount: int) -> None:
        """A driver's mistake: gives back at `cgroup` what nobody took. Counters wrap below zero, as with TDX on
        6.16.
        """

        def take(place: str, inside: Inside | None) -> None:
            state = _required(inside).tree.effective_misc(self._host_of_processes(inside))
            self._misc.uncharge(state, resource, amount)

        self._at(cgroup, take)

    def take_offline(self, offline: CpuSet) -> None:
        """These CPUs are offline from now on, and no others: in sysfs, and in each cgroup's effective set."""
        if self._machine is None:
            raise ValueError("this kernel was made without a machine; give SimKernel one")
        self._show_cpus(replace(self._machine, offline=offline))

    def lay(self, files: Mapping[str, str]) -> None:
        """Ordinary files with these texts, with the folders that they need."""
        made = dict[str, None]()
        for path, text in files.items():
            folder = path.rpartition("/")[0]
            if folder not in made:
                made[folder] = None
                self._make_folders(folder)
            self._plain.replace(path, text.encode())

    def link(self, path: str, to: str) -> None:
        """A symbolic link."""
        self._plain.links[path] = to

    def _make_folders(self, folder: str) -> None:
        try:
            self._plain.listdir(folder)
        except RefusalError:
            self._make_folders(folder.rpartition("/")[0])
            self._plain.mkdir(folder)

    def _show_cpus(self, machine: Plan) -> None:
        files = sysfs(machine)
        for path in self._sysfs.keys() - files.keys():
            self._plain.unlink(path)
        self.lay(files)
        self._machine, self._sysfs = machine, files
        every = cpus_of(machine)
        count = machine.sockets * machine.nodes
        nodes = tuple(cpuset.of(cpu.id for cpu in every if cpu.node == node) for node in range(count))
        self._tree.set_cpus(cpuset.of(cpu.id for cpu in every), machine.offline, nodes)

    @property
    def open_handles(self) -> int:
        """Handles that were opened and not closed."""
        return len(self._handles)

    def charges(self) -> tuple[HeldCharge, ...]:
        """Everything charged at present, oldest first: what the counters should add up to."""
        return tuple(HeldCharge(c.path, c.resource, c.amount, not c.state.alive) for c in self._charges)

    def add_process(self, cgroup: str, pid: int) -> None:
        """A process `pid` is in this cgroup from now on, and in the root of the other tree if it is new. EBUSY where
        controllers are handed to children."""

        def add(place: str, inside: Inside | None) -> None:
            here = _required(inside)
            here.tree.add_process(here.path, pid)
            for tree in self._trees():
                if not tree.has_process(pid):
                    tree.add_process("", pid)

        self._at(cgroup, add)

    def end_process(self, pid: int) -> None:
        """The process has ended. Its charges stay until `uncharge`."""
        for tree in self._trees():
            tree.end_process(pid)

    def cgroup_of(self, pid: int) -> str:
        """The cgroup of the process, from the root of the v2 tree."""
        return self._tree.path(self._home(pid))

    def memory_of(self, pid: int) -> MemoryState:
        """The cgroup that is charged for memory that the process takes now."""
        return self._tree.effective_memory(self._home(pid))

    def time_of(self, pid: int) -> CpuState:
        """The cgroup that counts the process's CPU time now."""
        return self._tree.effective_cpu(self._home(pid))

    def _home(self, pid: int) -> Cgroup:
        try:
            return self._tree.home(pid)
        except RefusalError as refusal:
            raise _os_error(refusal.number, f"process {pid}") from refusal

    def tell(self, path: str, tell: Callable[[], bytes]) -> None:
        """An ordinary file, made whenever it is read, with the folders that it needs."""
        self._make_folders(path.rpartition("/")[0])
        self._plain.tell(path, tell)

    def untell(self, path: str) -> None:
        """An ordinary file or folder goes, with all that is in it."""
        self._plain.drop(path)

    def mount_misc_v1(self) -> None:
        """Mounts misc as `mount -t cgroup -o misc none /sys/fs/cgroup/misc` does: an empty hierarchy with the
        controller, which the v2 tree then lacks. EBUSY while a cgroup there still has it."""
        if self._v1 is not None:
            raise _os_error(errno.EBUSY, V1_MOUNT)
        try:
            self._tree.take_misc()
            if "misc" not in self._tree.root.children:
                self._tree.make("misc")
        except RefusalError as refusal:
            raise _os_error(refusal.number, V1_MOUNT) from refusal
        self._v1 = CgroupTree(("misc",), self._misc, version=1)
        for pid in self._tree.processes():
            self._v1.add_process("", pid)

    def unmount_misc_v1(self) -> None:
        """The v2 tree has the controller again. EBUSY while the hierarchy has a cgroup below its root: the kernel would
        keep it, without a place."""
        if self._v1 is None or self._v1.root.children:
            raise _os_error(errno.EBUSY, V1_MOUNT)
        self._v1 = None
        self._tree.give_misc()

    def _trees(self) -> list[CgroupTree]:
        return [self._tree] if self._v1 is None else [self._tree, self._v1]

    def _tree_of(self, file: CgroupFile) -> CgroupTree:
        *_, root = file.cgroup.upwards()
        return next((tree for tree in self._trees() if tree.root is root), self._tree)

    def _host_of_processes(self, inside: Inside | None) -> Cgroup:
        here = _required(inside)
        cgroup = here.tree.cgroup(here.path)
        if cgroup is not here.tree.root and cgroup.subtree_control:
            raise RefusalError(errno.EBUSY)
        return cgroup

    def _cgroup_file(self, inside: Inside, missing: int = errno.ENOENT) -> CgroupFile:
        try:
            found = inside.tree.find(inside.path)
        except RefusalError as refusal:
            raise RefusalError(missing if refusal.number == errno.ENOENT else refusal.number) from refusal
        if isinstance(found, Cgroup):
            raise RefusalError(errno.EISDIR)
        return found

    def _at(self, path: str, act: Callable[[str, Inside | None], T]) -> T:
        place = checked_path(path)
        try:
            return act(place, self._inside(place))
        except RefusalError as refusal:
            raise _os_error(refusal.number, path) from refusal

    def _inside(self, place: str) -> Inside | None:
        """Where in a cgroup mount, or None for an ordinary place."""
        for tree, mount in ((self._v1, V1_MOUNT), (self._tree, CGROUP_MOUNT)):
            if tree is not None and (place == mount or place.startswith(mount + "/")):
                return Inside(tree, place[len(mount) + 1 :])
        return None


def _required(inside: Inside | None) -> Inside:
    if inside is None:
        raise RefusalError(errno.ENOENT)
    return inside


def _os_error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
