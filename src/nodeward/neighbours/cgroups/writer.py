"""Writes one cgroup value: reads it, writes only a difference, reads it back. Synchronous; runs on the cgroup lane."""

import errno
from collections.abc import Callable, Mapping

from nodeward.core.cgroup import Hierarchy
from nodeward.core.decision import Goal, Special, Target
from nodeward.core.ports import Perform, Written
from nodeward.host.hostfs import HostFiles, is_there
from nodeward.neighbours.cgroups import writer
from nodeward.neighbours.cgroups.hierarchy import Tree
from nodeward.neighbours.formats import misc_files

Remember = Callable[[str, str], None]
"""Keeps on disk what is about to be changed, and its value before."""


def performers(files: HostFiles, tree: Tree, remember: Remember) -> Mapping[str, Perform]:
    """The performers by kind of goal."""

    def subtree(target: Target, goal: Goal, _: bool) -> Written:
        now, path = tree.now, target.where
        if now.version == 1:
            return Written(wrote=False, old="no such thing in cgroup v1")
        if writer.subtree_has_misc(files, now.root, path):
            return Written(wrote=False, old="present")
        if goal.undo:
            remember(str(target), "absent")
        return writer.enable_misc(files, now.root, path)

    def limit(target: Target, goal: Goal, may_take_back: bool) -> Written:
        _, path, resource = target
        if goal.value is not Special.ABSENT:
            remember(f"limits:/{path.split('/', 2)[1]}", "max")
            return writer.set_limit(files, tree.now, path, resource, str(goal.value))
        if not may_take_back:
            return Written(wrote=False, old="not ours")
        try:
            return writer.set_limit(files, tree.now, path, resource, "max")
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENODEV):
                return Written(wrote=False, old="gone")  # the limit went with its cgroup, or the controller
            raise

    return {"subtree": subtree, "misc.max": limit}


MAX_CONTROL = 4096
_GONE = (errno.ENOENT, errno.ENODEV)


def subtree_has_misc(files: HostFiles, root: str, path: str) -> bool:
    """Whether the cgroup gives its children the misc controller."""
    data = files.read(f"{root}{_tail(path)}/cgroup.subtree_control", MAX_CONTROL)
    return b"misc" in data.split()


def enable_misc(files: HostFiles, root: str, path: str) -> Written:
    """`+misc` in the cgroup's subtree_control. OSError: EBUSY with processes inside, ENOENT without the controller."""
    files.write(f"{root}{_tail(path)}/cgroup.subtree_control", b"+misc")
    return Written(wrote=True, old="absent")


def disable_misc(files: HostFiles, root: str, path: str) -> int:
    """Takes `+misc` back, from the deepest cgroup up, and returns in how many cgroups it was switched off.

    A cgroup whose children pass the controller on refuses (EBUSY), so they go first. Limits below vanish with it.
    """
    try:
        return _disabled(files, root, path)
    except OSError as error:
        if error.errno in _GONE:  # it may end meanwhile, and its limits with it
            return 0
        raise


def _disabled(files: HostFiles, root: str, path: str) -> int:
    if not subtree_has_misc(files, root, path):
        return 0
    base, done = f"{root}{_tail(path)}", 0
    for name in files.listdir(base):
        if _is_folder(files, f"{base}/{name}"):
            done += disable_misc(files, root, f"{path.rstrip('/')}/{name}")
    files.write(f"{base}/cgroup.subtree_control", b"-misc")
    return done + 1


def make_cgroup(files: HostFiles, tree: Hierarchy, path: str) -> None:
    """Makes the cgroup, and those above it, in the v1 misc hierarchy, where its runtime has made it elsewhere only.

    OSError (ENOENT) where it is in no other tree either: it is not there yet, or has ended."""
    files.stat(f"{tree.members}{path}")
    parts = path.strip("/").split("/")
    for depth in range(1, len(parts) + 1):
        try:
            files.mkdir(f"{tree.root}/{'/'.join(parts[:depth])}")
        except FileExistsError:
            continue


def lift_limits(files: HostFiles, tree: Hierarchy, path: str) -> tuple[int, int]:
    """Takes every limit at or below the cgroup back; in the v1 misc hierarchy it also removes what is left there of
    cgroups that have ended. How many cgroups had a limit, and how many were removed."""
    base = f"{tree.root}{path}"
    try:
        names = files.listdir(base)
    except OSError as error:
        if error.errno in _GONE:
            return 0, 0
        raise
    lifted = removed = 0
    for name in names:
        if _is_folder(files, f"{base}/{name}"):
            below = lift_limits(files, tree, f"{path}/{name}")
            lifted, removed = lifted + below[0], removed + below[1]
    return lifted + _lifts(files, f"{base}/misc.max"), removed + (tree.version == 1 and _is_removed(files, tree, path))


def _lifts(files: HostFiles, file: str) -> bool:
    """Takes the limits in this file back. False where there is none, or the cgroup has no such file or is gone."""
    try:
        limits = misc_files.parse_limits(files.read(file, misc_files.MAX_BYTES))
        for resource in limits:
            files.write(file, misc_files.limit_line(resource, "max"))
    except OSError as error:
        if error.errno in _GONE:
            return False
        raise
    return bool(limits)


def _is_folder(files: HostFiles, place: str) -> bool:
    try:
        return files.stat(place).is_dir
    except OSError as error:
        if error.errno in _GONE:
            return False
        raise


def _is_removed(files: HostFiles, tree: Hierarchy, path: str) -> bool:
    """Removes a cgroup that is in no other tree and has neither children nor processes."""
    if is_there(files, f"{tree.members}{path}"):
        return False
    try:
        files.rmdir(f"{tree.root}{path}")
    except OSError:
        return False
    return True


def set_limit(files: HostFiles, tree: Hierarchy | str, path: str, resource: str, value: str) -> Written:
    """`resource`'s limit in the cgroup is `value` (`max` or decimal). EIO where the kernel reads back otherwise.

    In the misc hierarchy of cgroup v1 a cgroup that only another tree has is made. A path as `tree` is a v2 one."""
    root = tree if isinstance(tree, str) else tree.root
    file = f"{root}{_tail(path)}/misc.max"
    value = "max" if value == str(2**64 - 1) else value  # the kernel shows its largest number as max
    try:
        before = _limit(files, file, resource)
    except FileNotFoundError:
        if isinstance(tree, str) or tree.version != 1 or value == "max":
            raise
        make_cgroup(files, tree, path)
        before = _limit(files, file, resource)
    if before == value:
        return Written(wrote=False, old=before)
    files.write(file, misc_files.limit_line(resource, value))
    after = _limit(files, file, resource)
    if after != value:
        raise OSError(errno.EIO, f"{resource} reads back as {after}, not {value}", file)
    return Written(wrote=True, old=before)


def _limit(files: HostFiles, file: str, resource: str) -> str:
    limits = misc_files.parse_limits(files.read(file, misc_files.MAX_BYTES))
    return str(limits[resource]) if resource in limits else "max"


def _tail(path: str) -> str:
    return "" if path == "/" else path
