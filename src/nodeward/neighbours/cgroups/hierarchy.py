"""Finds where the misc controller's files are: in the cgroup v2 tree, or in a hierarchy of cgroup v1.

Everybody who touches cgroups asks one `Tree`. It is looked for at the start, and again whenever the root's
`misc.capacity` cannot be read: mounting misc as v1 takes it out of the v2 tree, and unmounting puts it back.
"""

import logging

from nodeward.core.cgroup import Hierarchy
from nodeward.core.errors import WireError
from nodeward.core.events import CapacityRead
from nodeward.host.hostfs import HostFiles, is_there
from nodeward.neighbours.formats import cgroup_mounts, misc_files

log = logging.getLogger(__name__)
_MEMBERS = ("pids", "cpu", "cpu,cpuacct", "memory", "systemd")
"""Trees of a host with cgroup v1 that every runtime uses; processes inside a container cannot leave the first ones."""
_MOUNTS = "/proc/self/mountinfo"
_CONTROLLERS = "/proc/cgroups"


class Tree:
    """The hierarchy as it was found last. Any thread may read `now`; who finds that it is wrong calls `look`."""

    def __init__(self, files: HostFiles, root: str) -> None:
        """`root`: the setting `cgroups.root`. Before the first look it is taken for a cgroup v2 tree."""
        self._files, self.root = files, root
        self.now = Hierarchy(2, root, root)

    def look(self) -> Hierarchy:
        """Finds the tree again. What cannot be looked at changes nothing."""
        try:
            found = find(self._files, self.root)
        except (OSError, ValueError) as error:
            log.warning("cgroups=not-looked-at root=%s error=%s", self.root, error)
            return self.now
        if found != self.now:
            say = log.error if found.fault else log.info
            say("cgroups=found version=%d root=%s fault=%r", found.version, found.root, found.fault)
            self.now = found
        return found


def read_capacity(files: HostFiles, tree: Tree) -> CapacityRead:
    """What the node has of each misc resource. Where that cannot be read the tree is looked for again; no controller
    where it is nowhere."""
    found = _capacity(files, tree.now) or _capacity(files, tree.look())
    return found or CapacityRead(controller=False, tree=tree.now)


def _capacity(files: HostFiles, tree: Hierarchy) -> CapacityRead | None:
    try:
        capacity = misc_files.parse(files.read(f"{tree.root}/misc.capacity", misc_files.MAX_BYTES))
    except (OSError, WireError):
        return None
    try:
        usage = misc_files.parse(files.read(f"{tree.root}/misc.current", misc_files.MAX_BYTES))
    except (OSError, WireError):
        usage = {}  # the root has misc.current since Linux 6.6
    return CapacityRead(controller=True, capacity=capacity, usage=usage, tree=tree)


def find(files: HostFiles, root: str) -> Hierarchy:
    """The tree with the misc controller, of a node whose cgroups are mounted at or below `root`. OSError where that
    cannot be told."""
    if not is_there(files, root):
        return Hierarchy(2, root, root, f"{root} does not exist: correct cgroups.root")
    is_v2 = is_there(files, f"{root}/cgroup.controllers")
    if is_there(files, f"{root}/misc.capacity"):
        is_v1 = not is_v2 and is_there(files, f"{root}/tasks")
        return Hierarchy(1, root, _members(files, root.rpartition("/")[0]) or root) if is_v1 else _v2(root)
    trees = mounted(files, root)
    v1 = [mount.place for mount in trees if mount.kind == "cgroup" and "misc" in mount.options]
    for place in dict.fromkeys((f"{root}/misc", *v1)):
        if is_there(files, f"{place}/misc.capacity"):
            return Hierarchy(1, place, root if is_v2 else _members(files, root) or place)
    if is_v2:
        return _v2(root)
    if not trees:
        return Hierarchy(2, root, root, f"no cgroup tree is mounted at {root}: correct cgroups.root")
    if not _kernel_has_misc(files):
        return _v2(root)
    return Hierarchy(2, root, root, f"misc is mounted nowhere below {root}: mount -t cgroup -o misc none {root}/misc")


def _v2(root: str) -> Hierarchy:
    return Hierarchy(2, root, root)


def _members(files: HostFiles, root: str) -> str:
    """The first tree below `root` that is there; empty for none."""
    return next((f"{root}/{name}" for name in _MEMBERS if is_there(files, f"{root}/{name}/cgroup.procs")), "")


def mounted(files: HostFiles, root: str) -> list[cgroup_mounts.Mount]:
    """The cgroup trees mounted at `root` or below it; none on a host that does not tell."""
    if not is_there(files, _MOUNTS):
        return []
    return [
        mount
        for mount in cgroup_mounts.mounts(files.read(_MOUNTS, cgroup_mounts.MAX_BYTES))
        if mount.kind in ("cgroup", "cgroup2") and (mount.place + "/").startswith(root.rstrip("/") + "/")
    ]


def place_of(files: HostFiles, root: str, controller: str, file_v1: str) -> tuple[str, int] | None:
    """The tree with this controller and its version: the v2 tree at `root`, or a v1 hierarchy below it, whose root has
    `file_v1`. None where there is none."""
    given = f"{root}/cgroup.controllers"
    if is_there(files, given) and controller.encode() in files.read(given, cgroup_mounts.MAX_BYTES).split():
        return root, 2
    v1 = [one.place for one in mounted(files, root) if one.kind == "cgroup" and controller in one.options]
    found = (place for place in (f"{root}/{controller}", *v1) if is_there(files, f"{place}/{file_v1}"))
    return next(((place, 1) for place in found), None)


def _kernel_has_misc(files: HostFiles) -> bool:
    if not is_there(files, _CONTROLLERS):
        return False
    return cgroup_mounts.knows(files.read(_CONTROLLERS, cgroup_mounts.MAX_BYTES), "misc")
