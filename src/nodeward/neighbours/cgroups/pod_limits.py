"""Sets a pod's memory and CPU limit where nobody else has set one. Synchronous; runs on the cgroup lane.

Promises: nothing is written but `memory.max` and `cpu.max` (on cgroup v1 `memory.limit_in_bytes`, `cpu.cfs_quota_us`
and its period) of the cgroup that the goal names, which lies below the root and is not kubelet's; a limit that somebody
else has set stays; what is written is read back. A cgroup that is not there runs nothing: that is no failure.
"""

import errno
from collections.abc import Mapping
from dataclasses import dataclass

from nodeward.core.decision import Goal, Special, Target
from nodeward.core.ports import Perform, Written
from nodeward.host.hostfs import HostFiles, is_there
from nodeward.neighbours.cgroups import hierarchy

KIND = "pod.limit"
MEMORY, CPU = "memory", "cpu"
_PERIOD_US, _LONG_PERIOD_US, _LEAST_QUOTA_US = 100_000, 1_000_000, 1000
_NONE_V1 = 1 << 62
"""cgroup v1 shows a number near 2^63 where there is no memory limit."""
_LARGEST_PAGE = 1 << 16
_MOST = 2**63 - 1
_MAX_FILE = 4096
_MAX_PATH = 4096
_GONE = (errno.ENOENT, errno.ENODEV)
_REFUSED = {errno.EBUSY: "more is in use, and the kernel cannot take it back (cgroup v1)"}
_PROBES = {MEMORY: "memory.limit_in_bytes", CPU: "cpu.cfs_quota_us"}
"""A file by which a hierarchy of cgroup v1 is known."""


@dataclass(frozen=True, slots=True)
class _Cgroup:
    """A cgroup's folder in the tree that has the controller."""

    files: HostFiles
    folder: str
    version: int

    def read(self, name: str) -> str:
        return self.files.read(f"{self.folder}/{name}", _MAX_FILE).decode("ascii", "replace").strip()

    def write(self, name: str, text: str) -> None:
        file = f"{self.folder}/{name}"
        try:
            self.files.write(file, text.encode())
        except OSError as error:
            why = _REFUSED.get(error.errno or 0)
            if why is None:
                raise
            raise OSError(error.errno, f"{text} is refused: {why}", file) from error

    def memory(self) -> int | None:
        """The limit in bytes; None for no limit."""
        text = self.read("memory.max" if self.version == 2 else _PROBES[MEMORY])
        value = None if text == "max" else int(text)
        return None if value is None or value >= _NONE_V1 or value < 0 else value

    def set_memory(self, value: int | None) -> None:
        name, none = ("memory.max", "max") if self.version == 2 else (_PROBES[MEMORY], "-1")
        self.write(name, none if value is None else str(value))

    def cpu(self) -> int | None:
        """The limit in thousandths, rounded down; None for no limit."""
        if self.version == 2:
            quota, _, period = self.read("cpu.max").partition(" ")
        else:
            quota, period = self.read(_PROBES[CPU]), self.read("cpu.cfs_period_us")
        return None if quota == "max" or int(quota) < 0 else int(quota) * 1000 // max(int(period), 1)

    def set_cpu(self, value: int | None) -> None:
        period = _PERIOD_US
        quota = None if value is None else value * period // 1000
        if quota is not None and quota < _LEAST_QUOTA_US:
            period = _LONG_PERIOD_US
            quota = quota * (_LONG_PERIOD_US // _PERIOD_US)
        if self.version == 2:
            self.write("cpu.max", f"{'max' if quota is None else quota} {period}")
            return
        if quota is not None:
            self.write("cpu.cfs_period_us", str(period))
        self.write(_PROBES[CPU], str(-1 if quota is None else quota))


def performers(files: HostFiles, root: str) -> Mapping[str, Perform]:
    """The performer of goals of the kind `pod.limit`. `root`: the setting `cgroups.root`."""

    def limit(target: Target, goal: Goal, may_take_back: bool) -> Written:
        wanted = None if goal.value is Special.ABSENT else _amount(str(goal.value), target)
        if wanted is None and not may_take_back:
            return Written(wrote=False, old="not ours")
        cgroup = _cgroup(files, root, target)
        try:
            return _set(cgroup, target.resource, wanted, may_take_back)
        except ValueError as error:
            raise OSError(errno.EIO, f"the limit cannot be read: {error}", cgroup.folder) from error
        except OSError as error:
            if error.errno not in _GONE:
                raise
            if not is_there(files, cgroup.folder):
                return Written(wrote=False, old="gone")
            why = f"the cgroup does not get the controller {target.resource} from above (cgroup.subtree_control)"
            raise OSError(error.errno, why, cgroup.folder) from error

    return {KIND: limit}


def _set(cgroup: _Cgroup, resource: str, wanted: int | None, ours: bool) -> Written:
    has, put = (cgroup.memory, cgroup.set_memory) if resource == MEMORY else (cgroup.cpu, cgroup.set_cpu)
    before = has()
    old = "max" if before is None else str(before)
    if _is_so(resource, before, wanted):
        return Written(wrote=False, old=old)
    if before is not None and not ours:
        return Written(wrote=False, old=f"{old}, which somebody else has set")
    put(wanted)
    after = has()
    if not _is_so(resource, after, wanted):
        has_now = "no limit" if after is None else after
        raise OSError(errno.EIO, f"{resource} was limited to {wanted}, and the kernel has {has_now}", cgroup.folder)
    return Written(wrote=True, old=old)


def _is_so(resource: str, has: int | None, wanted: int | None) -> bool:
    """The kernel rounds memory down to whole pages."""
    if has is None or wanted is None or resource != MEMORY:
        return has == wanted
    return 0 <= wanted - has < _LARGEST_PAGE


def _amount(text: str, target: Target) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:20]) <= _MOST):
        raise OSError(errno.EINVAL, f"{text[:40]!r} is no limit: a whole number above 0 is", target.where)
    return int(text)


def _cgroup(files: HostFiles, root: str, target: Target) -> _Cgroup:
    path = target.where
    if target.resource not in _PROBES:
        raise OSError(errno.EINVAL, f"{target.resource!r} is no limit of a pod: memory and cpu are", path)
    parts = path.split("/")[1:]
    is_plain = path.startswith("/") and len(path) <= _MAX_PATH and not any(bad in path for bad in "\0\n")
    if not is_plain or any(part in ("", ".", "..") for part in parts):
        raise OSError(errno.EINVAL, "this is no path of a cgroup below the root, so it is not limited", path[:200])
    if "kubepods" in path:
        raise OSError(errno.EPERM, "kubelet sets the limits of its own cgroups", path)
    place = hierarchy.place_of(files, root, target.resource, _PROBES[target.resource])
    if place is None:
        why = f"the kernel has no {target.resource} controller here: it is off (cgroup_disable=), or mounted elsewhere"
        raise OSError(errno.ENODEV, why, root)
    folder, version = place
    return _Cgroup(files, f"{folder}{path}", version)
