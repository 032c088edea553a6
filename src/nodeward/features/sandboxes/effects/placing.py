"""Performs the steps of `features.sandboxes.plan` on this machine's cgroup trees.

A process or thread is told by its number and its start, which are read before anything is moved, and again right before
and after each move: one that is gone, or whose number another has now, is not moved. Nothing above a sandbox's own
cgroups is made, but what a step names. No asyncio, and few imports: a runtime waits for it.
"""

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from time import sleep
from typing import NamedTuple

from nodeward.core.errors import NodewardError
from nodeward.core.vms import CgroupDriver
from nodeward.features.sandboxes.plan import Act, Step, Trees
from nodeward.host.hostfs import HostFiles

USUAL = "/sys/fs/cgroup"
MAX_FILE = 64 * 1024
MAX_PID = 4_194_304
"""The kernel's own bound."""
_MAX_MOUNTS = 4 * 1024 * 1024
_NEEDED = ("cpu", "cpuacct", "cpuset", "memory")
"""Where one of these is a tree, a sandbox must be in it."""
_CONTROLLERS = (*_NEEDED, "blkio", "devices", "freezer", "hugetlb", "misc", "net_cls", "net_prio", "perf_event", "pids")
_START, _STATE = 19, 0
"""Fields of stat(5) behind the command's name: 22 and 3."""
_QUOTA_OF = {"cpu.cfs_period_us": "cpu.cfs_quota_us"}
"""The file that says whether there is a limit, where it is not the one that is written."""
_NONE_V1 = 1 << 62
_GONE = (errno.ENOENT, errno.ESRCH, errno.ENODEV)
_PATIENCE_S = (0.01, 0.02, 0.05)
"""A cgroup whose last process has just ended is busy for a moment more."""


class PlacementError(NodewardError):
    """A step that could not be performed. What was done before it stays."""


class Machine(NamedTuple):
    """This machine's cgroup trees: by controllers, where each is mounted. v2 has one tree, without a name here."""

    version: int
    trees: Mapping[tuple[str, ...], str]


class Running(NamedTuple):
    """A process (`tid` is its `pid`) or thread, with its start in clock ticks after boot."""

    pid: int
    tid: int
    start: int

    def __str__(self) -> str:
        return f"process {self.pid}" if self.pid == self.tid else f"thread {self.tid} of process {self.pid}"


def machine(files: HostFiles) -> Machine:
    """The trees that count CPU and memory. PlacementError where there is none."""
    try:
        there = files.read(f"{USUAL}/cgroup.controllers", MAX_FILE).decode().split()
        if "memory" in there:
            return Machine(2, {(): USUAL})
    except (FileNotFoundError, NotADirectoryError):
        pass
    from nodeward.neighbours.formats import cgroup_mounts

    legacy = dict[tuple[str, ...], str]()
    unified = ""
    for mount in cgroup_mounts.mounts(files.read("/proc/self/mountinfo", _MAX_MOUNTS)):
        if mount.kind == "cgroup2":
            unified = unified or mount.place
        names = tuple(one for one in mount.options if one in _CONTROLLERS) if mount.kind == "cgroup" else ()
        if names and (names not in legacy or mount.place.startswith(f"{USUAL}/")):
            legacy[names] = mount.place
    if any("memory" in names for names in legacy):
        return Machine(1, legacy)
    if unified:
        return Machine(2, {(): unified})
    raise PlacementError(f"no cgroup tree at {USUAL} nor in /proc/self/mountinfo; mount one, or see nodeward doctor")


def driver_of(cgroups_path: str) -> CgroupDriver:
    """Who makes the cgroups of such a path."""
    return CgroupDriver.CGROUPFS if cgroups_path.startswith("/") else CgroupDriver.SYSTEMD


def running(files: HostFiles, pid: int, tid: int, start: int = 0) -> Running:
    """What has this number now. PlacementError where that is nothing, or not the one of that start."""
    found = Running(pid, tid, _start(files, pid, tid))
    what = str(found)
    if not found.start:
        raise PlacementError(f"{what} is not there (it has ended, or was never one): nothing was moved")
    if start and start != found.start:
        raise PlacementError(_reused(what, start, found.start))
    return found


def perform(files: HostFiles, at: Machine, steps: Sequence[Step], known: Sequence[Running]) -> None:
    """All steps in their order. PlacementError at the first that fails, with its number among them."""
    starts = {(one.pid, one.tid): one for one in known}
    for number, step in enumerate(steps, 1):
        try:
            _perform(files, at, step, starts)
        except PlacementError as error:
            done = f" ({number - 1} of {len(steps)} steps are done)" if number > 1 else ""
            raise PlacementError(f"{error}{done}") from error


def _perform(files: HostFiles, at: Machine, step: Step, known: Mapping[tuple[int, int], Running]) -> None:
    match step.act:
        case Act.MAKE:
            for root, controllers in _trees(at, step.trees):
                _make(files, root, controllers, step.cgroup)
        case Act.PASS_ON:
            _pass_on(files, _cgroup(at.trees[()], step.cgroup), step.value.split())
        case Act.THREADED:
            _write(files, f"{_cgroup(at.trees[()], step.cgroup)}/cgroup.type", "threaded")
        case Act.LIMIT:
            for root, _ in _trees(at, step.trees):
                place = _cgroup(root, step.cgroup)
                if not (step.if_unset and _is_limited(files, place, step.file)):
                    _write(files, f"{place}/{step.file}", step.value)
        case Act.MOVE:
            _move(files, at, step, known[step.pid, step.tid])
        case Act.REMOVE:
            for root, _ in _trees(at, step.trees):
                _remove(files, _cgroup(root, step.cgroup))


def _trees(at: Machine, wanted: Trees) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Where these trees are mounted, with their controllers. PlacementError for one that is needed and not there."""
    if at.version == 2:
        yield at.trees[()], ()
        return
    found = [(root, names) for names, root in sorted(at.trees.items()) if _is_of(names, wanted)]
    if not found:
        raise PlacementError(f"no tree of cgroup v1 is mounted for {wanted.value}: mount it (mount -t cgroup)")
    yield from found


def _is_of(names: tuple[str, ...], wanted: Trees) -> bool:
    match wanted:
        case Trees.MEMORY:
            return "memory" in names
        case Trees.CPU:
            return "cpu" in names
        case Trees.BUT_MEMORY:
            return "memory" not in names
    return True


def _cgroup(root: str, path: str) -> str:
    return root + path.rstrip("/")


def _make(files: HostFiles, root: str, controllers: tuple[str, ...], path: str) -> None:
    """The cgroup, where the one above it is there. In a tree that no sandbox needs that one may be missing."""
    place = _cgroup(root, path)
    try:
        files.mkdir(place)
    except FileExistsError:
        pass
    except FileNotFoundError as error:
        if not controllers or any(one in _NEEDED for one in controllers):
            above = path.rpartition("/")[0]
            raise PlacementError(
                f"cgroup {path} cannot be made in {root}: {above} is not there. Who has the pod makes it first "
                "(kubelet); without a pod give --no-pod"
            ) from error
        return
    except OSError as error:
        raise _failed(f"make cgroup {place}", error) from error
    if "cpuset" in controllers:
        for file in ("cpuset.cpus", "cpuset.mems"):  # a new one has none, and takes no process
            if not _text(files, f"{place}/{file}"):
                _write(files, f"{place}/{file}", _text(files, f"{place.rpartition('/')[0]}/{file}"))


def _pass_on(files: HostFiles, place: str, wanted: Sequence[str]) -> None:
    try:
        has, passed = (
            _text(files, f"{place}/{file}").split() for file in ("cgroup.controllers", "cgroup.subtree_control")
        )
    except FileNotFoundError as error:
        raise PlacementError(f"cgroup {place} is not there; who has the pod makes it first (kubelet)") from error
    for one in wanted:
        if one in has and one not in passed:
            _write(files, f"{place}/cgroup.subtree_control", f"+{one}")


def _is_limited(files: HostFiles, place: str, file: str) -> bool:
    """Whether a limit is set there. cgroup v1 has a number near 2^63 for no memory limit, and -1 for no quota."""
    try:
        value = _text(files, f"{place}/{_QUOTA_OF.get(file, file)}").partition(" ")[0]
    except OSError:
        return False  # the write says why
    return value.isdecimal() and int(value) < _NONE_V1


def _move(files: HostFiles, at: Machine, step: Step, task: Running) -> None:
    for root, controllers in _trees(at, step.trees):
        place = _cgroup(root, step.cgroup)
        if not _is_there(files, place):
            if controllers and not any(one in _NEEDED for one in controllers):
                continue
            raise PlacementError(f"cgroup {place} for {task} is not there; run nodeward vms cgroup create first")
        _same(files, task, f"it was not moved to {place}")
        try:
            files.write(f"{place}/{step.file}", step.value.encode())
        except OSError as error:
            if error.errno in _GONE:
                raise PlacementError(f"{task} has ended, and was not moved to {place}") from error
            raise _failed(f"move {task} to {place}", error) from error
        _same(files, task, f"it ended, or another process was moved to {place}: take that one back")


def _same(files: HostFiles, task: Running, so: str) -> None:
    now = _start(files, task.pid, task.tid)
    if now != task.start:
        raise PlacementError(_reused(str(task), task.start, now, so))


def _reused(what: str, start: int, now: int, so: str = "it was not moved") -> str:
    if not now:
        return f"{what} has ended: {so}"
    return f"{what} is another one than was meant (started at tick {now} after boot, not {start}): {so}"


def _start(files: HostFiles, pid: int, tid: int) -> int:
    """In clock ticks after boot; 0 for one that is not there, or has ended and is only waited for."""
    try:
        data = files.read(f"/proc/{pid}/task/{tid}/stat", MAX_FILE)
    except OSError as error:
        if error.errno in _GONE:
            return 0
        raise
    fields = data.rpartition(b")")[2].split()
    return 0 if len(fields) <= _START or fields[_STATE] in (b"Z", b"X", b"x") else int(fields[_START])


def _remove(files: HostFiles, place: str) -> None:
    for pause in (*_PATIENCE_S, 0.0):
        try:
            files.rmdir(place)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise _failed(f"remove cgroup {place}", error) from error
            kind, held = _held(files, place)
            if held or not pause:
                shown = ", ".join(held[:5]) + (" ..." if len(held) > 5 else "")
                who = f"{len(held)} {kind} in it: {shown}" if held else "a cgroup below it"
                raise PlacementError(f"cgroup {place} is still used ({who}); end them, then delete again") from error
            sleep(pause)
        else:
            return


def _held(files: HostFiles, place: str) -> tuple[str, list[str]]:
    """What is in a cgroup that is busy. A threaded one has no list of processes (EOPNOTSUPP), only of threads."""
    for kind, name in (("process(es)", "cgroup.procs"), ("thread(s)", "cgroup.threads")):
        try:
            return kind, _text(files, f"{place}/{name}").split()
        except OSError:
            continue
    return "process(es)", []


def _is_there(files: HostFiles, place: str) -> bool:
    try:
        return files.stat(place).is_dir
    except OSError:
        return False


def _text(files: HostFiles, path: str) -> str:
    return files.read(path, MAX_FILE).decode(errors="replace").strip()


def _write(files: HostFiles, path: str, value: str) -> None:
    try:
        files.write(path, value.encode())
    except OSError as error:
        raise _failed(f"write {value!r} to {path}", error) from error


def _failed(what: str, error: OSError) -> PlacementError:
    remedies = {
        errno.EBUSY: "on cgroup v2 a cgroup with processes passes no controller on, and one that does takes no process",
        errno.EINVAL: "the kernel does not take the value, or memory in use is above the limit",
        errno.ENOENT: "the controller is not switched on above it, or the cgroup is gone",
        errno.EACCES: "run it as root, with the cgroup tree writable",
        errno.EPERM: "run it as root, with the cgroup tree writable",
        errno.EROFS: "run it as root, with the cgroup tree writable",
        errno.EOPNOTSUPP: "threads move only within a threaded subtree (--threaded)",
    }
    why = os.strerror(error.errno or 0)
    return PlacementError(f"cannot {what}: {why}; {remedies.get(error.errno or 0, 'see nodeward doctor')}")
