"""A cgroup tree of the simulated kernel: folders, controllers, processes, and the files in each cgroup.

The rules are those of Documentation/admin-guide/cgroup-v2.rst ("Organizing Processes", "Controlling Controllers") and
kernel/cgroup/cgroup.c for domain cgroups: controllers come top down, a cgroup with processes hands none to its children
(the root excepted), a cgroup with children or processes cannot be removed. Threaded cgroups, freezing and delegation
are left out, of cpuset what concerns memory nodes and partitions, and the files of controllers beside misc, cpuset,
memory and cpu; of the last two there are a few.

A tree of version 1 is a hierarchy of one controller (Documentation/admin-guide/cgroup-v1/cgroups.rst): every cgroup has
it, none is handed down, and processes may be anywhere.
"""

import errno
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from nodeward.core.cpuset import CpuSet
from nodeward.host.hostfs import FileInfo
from nodeward_sim.doubles import cpu_controller, memory_controller
from nodeward_sim.doubles.cpu_controller import CpuState
from nodeward_sim.doubles.cpuset_controller import CpusetController, CpusetState
from nodeward_sim.doubles.memory_controller import MemoryState
from nodeward_sim.doubles.misc_controller import MiscController, MiscState, RefusalError, c_string

CGROUP_DEVICE: Final = 2
_KNOWN: Final = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids", "rdma", "misc")
_CORE_FILES: Final = ("cgroup.controllers", "cgroup.procs", "cgroup.subtree_control")
_ROOT_MISC: Final = ("misc.capacity", "misc.current", "misc.peak")
_CHILD_MISC: Final = ("misc.current", "misc.events", "misc.events.local", "misc.max", "misc.peak")
_EFFECTIVE: Final = "cpuset.cpus.effective"
_CHILD_CPUSET: Final = ("cpuset.cpus", _EFFECTIVE)
_WRITABLE: Final = ("cgroup.procs", "cgroup.subtree_control", "cpu.max", "cpuset.cpus", "memory.max", "misc.max")
_LONGEST_WRITE: Final = 4096
_V1_TEXTS: Final = {
    "cgroup.clone_children": b"0\n",
    "cgroup.sane_behavior": b"0\n",
    "notify_on_release": b"0\n",
    "release_agent": b"\n",
}
_V1_FILES: Final = ("cgroup.clone_children", "cgroup.procs", "notify_on_release", "tasks")
_V1_ROOT_FILES: Final = (*_V1_FILES, "cgroup.sane_behavior", "release_agent")


@dataclass(slots=True, eq=False)
class Cgroup:
    """One cgroup. `misc` is there while the parent has misc in its subtree_control (always at the root), and likewise
    `cpuset`, `memory` and `cpu`."""

    inode: int
    parent: "Cgroup | None"
    misc: MiscState | None = None
    cpuset: CpusetState | None = None
    memory: MemoryState | None = None
    cpu: CpuState | None = None
    alive: bool = True
    subtree_control: tuple[str, ...] = ()
    children: "dict[str, Cgroup]" = field(default_factory=dict)
    pids: set[int] = field(default_factory=set)

    def upwards(self) -> "Iterator[Cgroup]":
        """This cgroup, then each above it, the root last."""
        here: Cgroup | None = self
        while here is not None:
            yield here
            here = here.parent


@dataclass(frozen=True, slots=True, eq=False)
class CgroupFile:
    """One file of one cgroup as an open handle holds it: it dies with the cgroup, or when its controller goes."""

    cgroup: Cgroup
    name: str
    misc: MiscState | None
    cpuset: CpusetState | None = None
    memory: MemoryState | None = None
    cpu: CpuState | None = None

    @property
    def gone(self) -> bool:
        """Whether reading the handle gives ENODEV."""
        state = self.misc or self.cpuset or self.memory or self.cpu
        return not self.cgroup.alive or (state is not None and not state.alive)


class CgroupTree:
    """The mounted hierarchy. Paths are relative to the mount, without a leading slash; "" is the root."""

    def __init__(self, controllers: tuple[str, ...], misc: MiscController, version: int = 2) -> None:
        strangers = sorted(set(controllers) - set(_KNOWN))
        if strangers:
            raise ValueError(f"controllers {strangers} are none of the kernel's: {list(_KNOWN)}")
        self._controllers = tuple(name for name in _KNOWN if name in controllers)
        self._misc, self._version = misc, version
        self._cpus = CpusetController()
        self._nodes: tuple[CpuSet, ...] = ()
        self._inodes = itertools.count(1)
        self.root = Cgroup(
            next(self._inodes),
            None,
            MiscState(None) if "misc" in controllers else None,
            CpusetState(None) if "cpuset" in controllers else None,
            MemoryState(None) if "memory" in controllers else None,
            CpuState(None) if "cpu" in controllers else None,
        )
        self._home: dict[int, Cgroup] = {}

    def cgroup(self, path: str) -> Cgroup:
        """The cgroup at `path`; ENOTDIR for one of its files."""
        found = self.find(path)
        if isinstance(found, CgroupFile):
            raise RefusalError(errno.ENOTDIR)
        return found

    def find(self, path: str) -> Cgroup | CgroupFile:
        """A cgroup or a file in one; ENOENT."""
        here = self.root
        parts = [part for part in path.split("/") if part]
        for index, name in enumerate(parts):
            if name in here.children:
                here = here.children[name]
            elif name not in self.files_in(here):
                raise RefusalError(errno.ENOENT)
            elif index < len(parts) - 1:
                raise RefusalError(errno.ENOTDIR)
            else:
                return self._file(here, name)
        return here

    def _file(self, cgroup: Cgroup, name: str) -> CgroupFile:
        controller = name.partition(".")[0]
        return CgroupFile(
            cgroup,
            name,
            cgroup.misc if controller == "misc" else None,
            cgroup.cpuset if controller == "cpuset" else None,
            cgroup.memory if controller == "memory" else None,
            cgroup.cpu if controller == "cpu" else None,
        )

    def set_cpus(self, possible: CpuSet, offline: CpuSet, nodes: tuple[CpuSet, ...] = ()) -> None:
        """The machine's CPUs, those of them that are offline, and those of each NUMA node."""
        self._cpus.possible, self._cpus.online, self._nodes = possible, possible & ~offline, nodes

    def files_in(self, cgroup: Cgroup) -> tuple[str, ...]:
        """Names of the files that this cgroup has now."""
        is_root = cgroup is self.root
        if self._version == 1:
            return (*_V1_ROOT_FILES, *_ROOT_MISC) if is_root else (*_V1_FILES, *_CHILD_MISC)
        misc = () if cgroup.misc is None else _ROOT_MISC if is_root else _CHILD_MISC
        cpus = () if cgroup.cpuset is None else (_EFFECTIVE,) if is_root else _CHILD_CPUSET
        if is_root:
            return (*_CORE_FILES, *cpus, *misc)
        numa = (memory_controller.NUMA_STAT,) if self._nodes else ()
        memory = () if cgroup.memory is None else (*memory_controller.FILES, *numa)
        time = () if cgroup.cpu is None else cpu_controller.FILES
        return (*_CORE_FILES, "cgroup.events", *cpus, *misc, *memory, *time)

    def read(self, file: CgroupFile) -> bytes:
        """The file's content at this moment; ENODEV once it is gone."""
        if file.gone:
            raise RefusalError(errno.ENODEV)
        cgroup = file.cgroup
        if file.misc is not None:
            return self._misc.show(file.misc, file.name.removeprefix("misc."))
        if file.cpuset is not None:
            return self._cpus.show(file.cpuset, effective=file.name == _EFFECTIVE)
        if file.memory is not None and file.name == memory_controller.NUMA_STAT:
            return file.memory.by_node(len(self._nodes), self._memory_node(cgroup))
        if file.memory is not None:
            return file.memory.show(file.name)
        if file.cpu is not None:
            return file.cpu.show(file.name)
        if file.name == "cgroup.controllers":
            return _line(self._available(cgroup))
        if file.name == "cgroup.subtree_control":
            return _line(cgroup.subtree_control)
        if file.name in _V1_TEXTS:
            return _V1_TEXTS[file.name]
        if file.name == "cgroup.events":
            return f"populated {int(_populated(cgroup))}\nfrozen 0\n".encode()
        return "".join(f"{pid}\n" for pid in sorted(cgroup.pids)).encode()

    def version(self, file: CgroupFile) -> int | None:
        """Counts what the kernel tells those of who poll this file; None once it is gone."""
        if file.gone:
            return None
        if file.misc is not None and file.name == "misc.events":
            return sum(file.misc.events.values())
        if file.misc is not None and file.name == "misc.events.local":
            return sum(file.misc.events_local.values())
        return 0

    def write(self, file: CgroupFile, data: bytes) -> None:
        """One write(2). Files without a writer are EINVAL even for root; no bytes at all are accepted anywhere."""
        if not data:
            return
        if file.name not in _WRITABLE:
            raise RefusalError(errno.EINVAL)
        if file.gone:
            raise RefusalError(errno.ENODEV)
        if len(data) > _LONGEST_WRITE:
            raise RefusalError(errno.E2BIG)
        if file.misc is not None:
            self._misc.write_max(file.misc, data)
        elif file.cpuset is not None:
            self._cpus.write(file.cpuset, c_string(data))
        elif file.memory is not None:
            file.memory.write_max(c_string(data))
        elif file.cpu is not None:
            file.cpu.write_max(c_string(data))
        elif file.name == "cgroup.subtree_control":
            self._control(file.cgroup, c_string(data))
        else:
            self._move_written(file.cgroup, c_string(data))

    def stat(self, found: Cgroup | CgroupFile) -> FileInfo:
        """A cgroup has a number of its own that no later cgroup gets again; its files share it here."""
        if isinstance(found, Cgroup):
            links = 2 + len(found.children)
            return FileInfo(
                is_dir=True, inode=found.inode, device=CGROUP_DEVICE + (self._version == 1), size=0, links=links
            )
        return FileInfo(is_dir=False, inode=found.cgroup.inode, device=CGROUP_DEVICE + (self._version == 1), size=0)

    def make(self, path: str) -> Cgroup:
        """One cgroup more, with the controllers that its parent hands down."""
        parent, name = self._place(path)
        if "\n" in name:
            raise RefusalError(errno.EINVAL)
        if name in parent.children or name in self.files_in(parent):
            raise RefusalError(errno.EEXIST)
        made = parent.children[name] = Cgroup(next(self._inodes), parent)
        self._refresh(made)
        return made

    def remove(self, path: str) -> None:
        """One cgroup less. Charges made in it stay with its ancestors."""
        found = self.cgroup(path)
        if found is self.root or found.children or found.pids:
            raise RefusalError(errno.EBUSY)
        parent, name = self._place(path)
        del parent.children[name]
        found.alive = False
        if found.misc is not None:
            found.misc.alive = False
        for state in (found.cpuset, found.memory, found.cpu):
            if state is not None:
                state.alive = False

    def add_process(self, path: str, pid: int) -> None:
        """A process `pid` exists from now on (if it did not) and is in this cgroup."""
        cgroup = self.cgroup(path)
        if cgroup is not self.root and cgroup.subtree_control:
            raise RefusalError(errno.EBUSY)
        self.end_process(pid)
        cgroup.pids.add(pid)
        self._home[pid] = cgroup

    def end_process(self, pid: int) -> None:
        """The process is gone."""
        home = self._home.pop(pid, None)
        if home is not None:
            home.pids.discard(pid)

    def home(self, pid: int) -> Cgroup:
        """The cgroup that the process is in; ESRCH."""
        if pid not in self._home:
            raise RefusalError(errno.ESRCH)
        return self._home[pid]

    def path(self, cgroup: Cgroup) -> str:
        """From the root, with a leading slash; `/` is the root."""
        names = [
            next(name for name, one in level.parent.children.items() if one is level)
            for level in cgroup.upwards()
            if level.parent is not None
        ]
        return "/" + "/".join(reversed(names))

    def has_process(self, pid: int) -> bool:
        """Whether the process is somewhere in this tree."""
        return pid in self._home

    def processes(self) -> tuple[int, ...]:
        """All of this tree."""
        return tuple(self._home)

    def effective_memory(self, cgroup: Cgroup) -> MemoryState:
        """Where a process of this cgroup is charged: the nearest level that has memory. EINVAL if none has."""
        for level in cgroup.upwards():
            if level.memory is not None:
                return level.memory
        raise RefusalError(errno.EINVAL)

    def _memory_node(self, cgroup: Cgroup) -> int:
        """Where its memory is said to be: on the first node with CPUs of it. Nobody says where each page is."""
        cpus = next((self._cpus.effective(one.cpuset) for one in cgroup.upwards() if one.cpuset is not None), 1)
        return next((node for node, of_node in enumerate(self._nodes) if of_node & cpus), 0)

    def effective_cpu(self, cgroup: Cgroup) -> CpuState:
        """Where its time is counted, likewise."""
        for level in cgroup.upwards():
            if level.cpu is not None:
                return level.cpu
        raise RefusalError(errno.EINVAL)

    def effective_misc(self, cgroup: Cgroup) -> MiscState:
        """Where a process of this cgroup is charged: the nearest level that has misc. EINVAL if the kernel has none."""
        for level in cgroup.upwards():
            if level.misc is not None:
                return level.misc
        raise RefusalError(errno.EINVAL)

    def _available(self, cgroup: Cgroup) -> tuple[str, ...]:
        return self._controllers if cgroup.parent is None else cgroup.parent.subtree_control

    def _control(self, cgroup: Cgroup, text: str) -> None:
        wanted: dict[str, bool] = {}
        for token in text.strip().split(" "):
            if not token:
                continue
            if token[1:] not in _KNOWN or token[0] not in "+-":
                raise RefusalError(errno.EINVAL)
            wanted[token[1:]] = token[0] == "+"
        enable = [name for name in _KNOWN if wanted.get(name) is True and name not in cgroup.subtree_control]
        disable = [name for name in _KNOWN if wanted.get(name) is False and name in cgroup.subtree_control]
        if any(name not in self._available(cgroup) for name in enable):
            raise RefusalError(errno.ENOENT)
        if any(name in child.subtree_control for name in disable for child in cgroup.children.values()):
            raise RefusalError(errno.EBUSY)
        if enable and cgroup is not self.root and cgroup.pids:
            raise RefusalError(errno.EBUSY)
        kept = set(cgroup.subtree_control).difference(disable).union(enable)
        cgroup.subtree_control = tuple(name for name in _KNOWN if name in kept)
        for child in cgroup.children.values():
            self._refresh(child)

    def take_misc(self) -> None:
        """Another hierarchy takes the controller away from this one. EBUSY while a cgroup below the root has it."""
        if any(child.misc is not None for child in self.root.children.values()):
            raise RefusalError(errno.EBUSY)
        self._controllers = tuple(name for name in self._controllers if name != "misc")
        self.root.subtree_control = tuple(name for name in self.root.subtree_control if name != "misc")
        if self.root.misc is not None:
            self.root.misc.alive = False
            self.root.misc = None

    def give_misc(self) -> None:
        """The controller is back."""
        self._controllers = tuple(name for name in _KNOWN if name in self._controllers or name == "misc")
        self.root.misc = MiscState(None)

    def _refresh(self, cgroup: Cgroup) -> None:
        has_cpuset = self._version == 2 and "cpuset" in self._available(cgroup)
        if has_cpuset and cgroup.cpuset is None and cgroup.parent is not None:
            cgroup.cpuset = CpusetState(cgroup.parent.cpuset)
        elif not has_cpuset and cgroup.cpuset is not None:
            cgroup.cpuset.alive = False
            cgroup.cpuset = None
        self._refresh_tasks(cgroup)
        is_on = self._version == 1 or "misc" in self._available(cgroup)
        if is_on and cgroup.misc is None and cgroup.parent is not None:
            cgroup.misc = MiscState(cgroup.parent.misc)
        elif not is_on and cgroup.misc is not None:
            cgroup.misc.alive = False
            cgroup.misc = None

    def _refresh_tasks(self, cgroup: Cgroup) -> None:
        """Memory and cpu, which count what processes have and use."""
        available = self._available(cgroup) if self._version == 2 else ()
        if "memory" in available and cgroup.memory is None and cgroup.parent is not None:
            cgroup.memory = MemoryState(cgroup.parent.memory)
        elif "memory" not in available and cgroup.memory is not None:
            cgroup.memory.alive = False
            cgroup.memory = None
        if "cpu" in available and cgroup.cpu is None and cgroup.parent is not None:
            cgroup.cpu = CpuState(cgroup.parent.cpu)
        elif "cpu" not in available and cgroup.cpu is not None:
            cgroup.cpu.alive = False
            cgroup.cpu = None

    def _move_written(self, cgroup: Cgroup, text: str) -> None:
        digits = text.strip()
        if not re.fullmatch(r"\+?[0-9]+", digits):
            raise RefusalError(errno.EINVAL)
        home = self._home.get(int(digits))
        if home is None:
            raise RefusalError(errno.ESRCH)
        if cgroup is not self.root and cgroup.subtree_control:
            raise RefusalError(errno.EBUSY)
        home.pids.discard(int(digits))
        cgroup.pids.add(int(digits))
        self._home[int(digits)] = cgroup

    def _place(self, path: str) -> tuple[Cgroup, str]:
        parent, _, name = path.rpartition("/")
        if not name:
            raise RefusalError(errno.EEXIST)
        return self.cgroup(parent), name


def _populated(cgroup: Cgroup) -> bool:
    return bool(cgroup.pids) or any(_populated(child) for child in cgroup.children.values())


def _line(names: tuple[str, ...]) -> bytes:
    return (" ".join(names) + "\n").encode() if names else b""
