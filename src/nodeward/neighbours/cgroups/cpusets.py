"""Writes cpusets and memory nodes of cgroups, and reads which CPUs cgroups may use. Synchronous; runs on the cgroup
lane.

Promises: a set is written only where another one is there; what the kernel makes of it is read back, since cgroup v2
refuses nothing and runs a cgroup on its parent's CPUs where its own are not to be had; an empty set, which means "all
CPUs", is never written. A cgroup that is not there runs nothing: that is no failure.

In a hierarchy of cgroup v1 the same values are in `cpuset.effective_cpus`; a set must lie within the parent's there.
"""

import errno
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from nodeward.core import cpuset
from nodeward.core.cpuset import CpuSet
from nodeward.core.decision import Goal, Special, Target
from nodeward.core.ports import Perform, Written
from nodeward.host.hostfs import HostFiles, is_there
from nodeward.neighbours.cgroups import hierarchy

SET = "cpuset.cpus"
MEMS = "cpuset.mems"
MAX_CONTROL = 4096
_GONE = (errno.ENOENT, errno.ENODEV)
_REFUSED = {
    errno.ERANGE: "it names a CPU that this kernel cannot have",
    errno.EACCES: "the cgroup above it does not have all of these (cgroup v1)",
    errno.EBUSY: "a cgroup below it has others (cgroup v1)",
}
"""What the kernel says of a set that it does not take."""
_REFUSED_MEMS = {
    errno.EINVAL: "none of these nodes has memory",
    errno.EACCES: "the cgroup above it does not have all of these (cgroup v1)",
}
_NOT_GIVEN = {
    errno.ENOENT: "the cgroup does not get the cpuset controller from above",
    errno.EBUSY: "there are processes in the cgroup itself; move them into one below it",
}
"""What it says where a cgroup cannot give the controller on."""
_NO_CONTROLLER = "the kernel has no cpuset controller here: it is off (cgroup_disable=), or mounted elsewhere"


@dataclass(frozen=True, slots=True)
class _Hierarchy:
    """The tree with the cpuset controller."""

    root: str
    version: int

    def set_of(self, path: str) -> str:
        """The file that is written."""
        return f"{self.folder(path)}/{SET}"

    def effective_of(self, path: str) -> str:
        """The file that says what holds."""
        return f"{self.folder(path)}/{'cpuset.effective_cpus' if self.version == 1 else 'cpuset.cpus.effective'}"

    def effective_mems_of(self, path: str) -> str:
        """The file that says which memory nodes hold."""
        return f"{self.folder(path)}/{'cpuset.effective_mems' if self.version == 1 else 'cpuset.mems.effective'}"

    def folder(self, path: str) -> str:
        return self.root if path == "/" else f"{self.root}{path}"


def performers(files: HostFiles, root: str) -> Mapping[str, Perform]:
    """The performer of goals of the kind `cpuset`. `root`: the setting `cgroups.root`."""

    known: _Hierarchy | None = None

    def cpus(target: Target, goal: Goal, _: bool) -> Written:
        nonlocal known
        if goal.value is Special.ABSENT:
            return Written(wrote=False, old="left as it is")
        place, known = known or _place(files, root), None  # looked for anew after a failure
        written = _set_cpus(files, place, target.where, str(goal.value))
        known = place
        return written

    def mems(target: Target, goal: Goal, _: bool) -> Written:
        if goal.value is Special.ABSENT:
            return Written(wrote=False, old="left as it is")
        return _widen_mems(files, _place(files, root), target.where, str(goal.value))

    return {"cpuset": cpus, "cpuset.mems": mems}


def _set_cpus(files: HostFiles, place: _Hierarchy, path: str, value: str) -> Written:
    """The cgroup runs on the CPUs of `value`, less those that are offline. OSError where it does not; a cgroup that is
    not there is `gone`."""
    try:
        wanted = cpuset.parse(value)
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error), path) from error
    if not wanted:
        raise OSError(errno.EINVAL, "an empty set of CPUs would mean all of them; give at least one", path)
    try:
        return _set(files, place, path, wanted)
    except OSError as error:
        if error.errno in _GONE and not is_there(files, place.folder(path)):
            return Written(wrote=False, old="gone")
        raise


def _widen_mems(files: HostFiles, place: _Hierarchy, path: str, value: str) -> Written:
    """The cgroup has the memory nodes of `value` at least. Nothing is taken away: the kernel would move its pages. One
    that has none of its own any more has lost them, with the controller or to somebody else, and gets them again.
    OSError where it does not have them then."""
    file = f"{place.folder(path)}/{MEMS}"
    try:
        before, wanted = _read(files, file), cpuset.parse(value)
        if not wanted & ~before:
            return Written(wrote=False, old=cpuset.text(before))
        _write(files, file, cpuset.text(before | wanted), _REFUSED_MEMS)
        has = _read(files, place.effective_mems_of(path))
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error), path) from error
    except OSError as error:
        if error.errno in _GONE and not is_there(files, place.folder(path)):
            return Written(wrote=False, old="gone")
        raise
    if wanted & ~has:
        why = f"it may use memory nodes {cpuset.text(has) or 'of nobody'}, not {cpuset.text(wanted & ~has)}"
        raise OSError(errno.EIO, f"{why}: a cgroup above it has fewer ({MEMS}), or they have no memory", file)
    return Written(wrote=True, old=cpuset.text(before))


class Sets(NamedTuple):
    """What cgroups were given."""

    found: Mapping[str, CpuSet]
    """By path; 0 for none of its own."""
    lost: Mapping[str, str]
    """Cgroups that are there and whose set cannot be read, with the reason: they may run on any CPU."""


def read_sets(files: HostFiles, root: str, paths: Iterable[str]) -> Sets:
    """The CPUs that each of these cgroups was given. A cgroup that is not there is in neither table."""
    found, lost = dict[str, CpuSet](), dict[str, str]()
    try:
        place = _place(files, root)
    except OSError as error:
        place, why = _Hierarchy(root, 2), error.strerror or str(error)
        return Sets({}, {path: why for path in paths if _may_be_there(files, place.folder(path))})
    for path in paths:
        try:
            found[path] = _read(files, place.set_of(path))
        except OSError as error:
            if _may_be_there(files, place.folder(path)):
                lost[path] = _said(error)
    return Sets(found, lost)


def _may_be_there(files: HostFiles, folder: str) -> bool:
    try:
        return is_there(files, folder)
    except OSError:
        return True


def _said(error: OSError) -> str:
    """Why a set cannot be read."""
    if error.errno in _GONE:
        return f"{SET} is gone: the cpuset controller was taken away from its cgroup"
    return f"{SET}: {error.strerror or error}"


def tree_of(files: HostFiles, root: str) -> str:
    """The folder of the tree that has the cpuset controller; `root` where there is none."""
    try:
        return _place(files, root).root
    except OSError:
        return root


def _set(files: HostFiles, place: _Hierarchy, path: str, wanted: CpuSet) -> Written:
    file = place.set_of(path)
    try:
        before = _read(files, file)
    except FileNotFoundError:
        files.stat(place.folder(path))
        _enable(files, place, path)
        before = _read(files, file)
    if before == wanted and _missed(files, place, path, wanted) is None:
        return Written(wrote=False, old=cpuset.text(before))
    _write(files, file, cpuset.text(wanted), _REFUSED)
    why = _missed(files, place, path, wanted)
    if why is not None:
        raise OSError(errno.EIO, why, file)
    return Written(wrote=True, old=cpuset.text(before))


def _missed(files: HostFiles, place: _Hierarchy, path: str, wanted: CpuSet) -> str | None:
    """Why the cgroup does not run on the CPUs that are wanted, but for those that are offline; None where it does."""
    has = _read(files, place.effective_of(path))
    if has == wanted:
        return None
    try:
        online = _read(files, place.effective_of("/"))
    except FileNotFoundError:  # `root` is no real root: what is offline cannot be told there
        online = wanted
    if has == wanted & online:
        return None
    runs = f"it runs on {cpuset.text(has) or 'no CPU'}, not on {cpuset.text(wanted)}"
    if not wanted & online:
        return f"{runs}: none of these is online"
    if has & ~wanted:
        return f"{runs}: the kernel gives it its parent's CPUs, since the parent has none of these"
    return f"{runs}: a cgroup above it has fewer CPUs ({SET}); give that one more, or leave it empty"


def _enable(files: HostFiles, place: _Hierarchy, path: str) -> None:
    """`+cpuset` in the cgroups above, from the root down, where it is missing."""
    if place.version == 1:
        raise OSError(errno.ENOENT, _NO_CONTROLLER, place.set_of(path))
    parts = [part for part in path.split("/") if part]
    for depth in range(len(parts)):
        above = "/" + "/".join(parts[:depth])
        file = f"{place.folder(above)}/cgroup.subtree_control"
        if b"cpuset" not in files.read(file, MAX_CONTROL).split():
            _write(files, file, "+cpuset", _NOT_GIVEN)


def _place(files: HostFiles, root: str) -> _Hierarchy:
    """Where the controller is: in the v2 tree at `root`, or in a v1 hierarchy below it."""
    found = hierarchy.place_of(files, root, "cpuset", SET)
    if found is None:
        raise OSError(errno.ENOENT, _NO_CONTROLLER, root)
    return _Hierarchy(*found)


def _write(files: HostFiles, file: str, text: str, refusals: Mapping[int, str]) -> None:
    try:
        files.write(file, text.encode())
    except OSError as error:
        why = refusals.get(error.errno or 0)
        if why is None:
            raise
        raise OSError(error.errno, f"{text} is refused: {why}", file) from error


def _read(files: HostFiles, file: str) -> CpuSet:
    try:
        return cpuset.parse(files.read(file, cpuset.MAX_TEXT).decode("ascii", "replace"))
    except ValueError as error:
        raise OSError(errno.EIO, str(error), file) from error
