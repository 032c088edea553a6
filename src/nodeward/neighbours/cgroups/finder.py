"""Finds containers by their cgroups, where no event told of them.

A runtime can lose the events of containers that are created while a plugin registers.

Looks below kubelet's cgroups and beside the pods that are known. A folder is listed again only when the number of
its children has changed, and every tenth time in any case; between, one stat tells. Synchronous; belongs to one lane.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from nodeward.core.events import FoundCgroup
from nodeward.core.workload import ContainerId, PodUid
from nodeward.host.clock import Clock
from nodeward.host.hostfs import FileInfo, HostFiles
from nodeward.neighbours.cgroups.hierarchy import Tree
from nodeward.neighbours.formats import cgroup_paths

LIST_AGAIN = 10
"""A child that comes as another one goes changes no number: it is seen at the latest after so many searches."""

MAX_FOUND = 1024
"""What one search tells of; the rest is told of by the next one."""
RUNTIME_AWAY_S = 30.0
"""After so long without a runtime that tells what there is, the search goes on without it."""


class Turn:
    """Whether a search makes sense now: not while the runtime is about to tell what it has, for then everything would
    be found that it tells anyway."""

    def __init__(self, is_waited_for: Callable[[], bool], clock: Clock) -> None:
        self._is_waited_for, self._clock = is_waited_for, clock
        self._told_ns = clock.now_ns()

    def has_come(self) -> bool:
        """Whether a search may begin; ask it before each."""
        now_ns = self._clock.now_ns()
        if not self._is_waited_for():
            self._told_ns = now_ns
            return True
        return now_ns - self._told_ns >= RUNTIME_AWAY_S * 1e9


@dataclass(slots=True)
class _Folder:
    inode: int
    links: int
    listed: int
    names: tuple[str, ...]

    def is_fresh(self, info: FileInfo, search: int) -> bool:
        """Whether the names are still those of this folder."""
        return (self.inode, self.links) == (info.inode, info.links) and search - self.listed < LIST_AGAIN


class Finder:
    """One search after another, with what the last ones saw."""

    def __init__(self, files: HostFiles, tree: Tree, kubelet_root: str = "/") -> None:
        """`kubelet_root`: the setting `cgroups.kubelet_root`."""
        self._files, self._tree, self._kubelet_root = files, tree, kubelet_root
        self._kubepods = cgroup_paths.kubepods(kubelet_root)
        self._root = self._tree.now.members
        self._folders: dict[str, _Folder] = {}
        self._search = 0
        self._avoided: dict[str, None] = {}
        self.at = ""
        """The cgroup that is being looked at."""

    def anew(self) -> "Finder":
        """Another one, which leaves out the cgroup at which this one hangs until this one has `released` it."""
        other = Finder(self._files, self._tree, self._kubelet_root)
        other._avoided = self._avoided
        self._avoided[self.at] = None
        return other

    def released(self) -> None:
        """The call that hung has come back."""
        self._avoided.pop(self.at, None)

    def find(self, pods: Sequence[str], is_known: Callable[[str], bool]) -> tuple[FoundCgroup, ...]:
        """The container cgroups in and near the cgroups `pods` whose ids are not known."""
        self._search += 1
        if self._root != self._tree.now.members:
            self._root, self._folders = self._tree.now.members, {}
        looked: dict[str, None] = {}
        found: list[FoundCgroup] = []
        for pod in self._pods(pods, looked):
            for name in self._names(pod, looked):
                container_id = cgroup_paths.container_id(name)
                if container_id and not is_known(container_id):
                    uid = PodUid(cgroup_paths.pod_uid(pod.rpartition("/")[2]))
                    found.append(FoundCgroup(f"{pod}/{name}", ContainerId(container_id), uid))
        self._folders = {path: self._folders[path] for path in looked if path in self._folders}
        return tuple(found[:MAX_FOUND])

    def _pods(self, known: Iterable[str], looked: dict[str, None]) -> dict[str, None]:
        roots = dict.fromkeys((*self._kubepods, *(cgroup_paths.pods_root(path) for path in known)))
        pods = dict.fromkeys(known)
        for root in roots:
            names = self._names(root, looked)
            classes = [f"{root}/{name}" for name in names if cgroup_paths.is_qos(name)]
            for folder in (root, *classes):
                below = names if folder == root else self._names(folder, looked)
                pods |= dict.fromkeys(f"{folder}/{name}" for name in below if cgroup_paths.pod_uid(name))
        return pods

    def _names(self, path: str, looked: dict[str, None]) -> tuple[str, ...]:
        """The pods, QoS classes and containers in a cgroup; nothing where it is gone or cannot be read."""
        looked[path] = None
        if path in self._avoided:
            return ()
        self.at = path
        place = f"{self._root}{path}"
        known = self._folders.get(path)
        try:
            info = self._files.stat(place)
            if known is not None and known.is_fresh(info, self._search):
                return known.names
            names = tuple(name for name in self._files.listdir(place) if _matters(name)) if info.links > 2 else ()
        except OSError:
            self._folders.pop(path, None)
            return ()
        self._folders[path] = _Folder(info.inode, info.links, self._search, names)
        return names


def _matters(name: str) -> bool:
    return bool(cgroup_paths.container_id(name) or cgroup_paths.pod_uid(name) or cgroup_paths.is_qos(name))
