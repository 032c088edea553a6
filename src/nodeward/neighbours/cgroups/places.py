"""Finds the cgroups of containers by their ids, since CRI has no field for them.

A container's cgroup lies in its pod's and has the container's id in its name, whatever the cgroup driver. Where the
pod's cgroup is not known or not there, kubelet's are searched, then the rest of the tree: a client other than kubelet
may name no cgroup for its pods, and the runtime has a place of its own for them. Synchronous; belongs to one lane.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from nodeward.host.hostfs import HostFiles, is_there
from nodeward.neighbours.formats import cgroup_paths

MOST_FOLDERS = 20_000
"""So many folders are listed by one search at most; a full node has some two thousand."""
_CONTROLLERS = frozenset(
    (
        *("cgroup", "cpu", "cpuset", "cpuacct", "memory", "io", "blkio", "pids", "misc", "rdma", "dmem", "hugetlb"),
        *("irq", "debug", "devices", "freezer", "net_cls", "net_prio", "perf_event"),
        *("tasks", "notify_on_release", "release_agent"),
    )
)
"""The first words of a cgroup's own files."""


def find(files: HostFiles, root: str, kubelet_root: str, wanted: Mapping[str, str]) -> dict[str, str]:
    """The cgroup of each container id of `wanted`, which names its pod's cgroup or has an empty text. Paths are below
    `root`; those that are not found are left out."""
    found, homeless = dict[str, str](), list[str]()
    for container_id, parent in wanted.items():
        if not parent or not is_there(files, f"{root}{parent}"):
            homeless.append(container_id)
        else:
            found.update((one, path) for one, path in _inside(files, root, parent) if one == container_id)
    kubepods = cgroup_paths.kubepods(kubelet_root)
    for begins, others in ((kubepods, False), (("",), True)):
        left = [one for one in homeless if one not in found]
        if left:
            found.update(_below(files, root, begins, others, dict.fromkeys(left)))
    return found


def _below(
    files: HostFiles, root: str, begins: Sequence[str], others: bool, wanted: Mapping[str, None]
) -> Iterable[tuple[str, str]]:
    """The cgroups of these containers below the paths `begins`. `others`: in cgroups of any name."""
    left, listed, missing = deque(begins), 0, len(wanted)
    while left and missing and listed < MOST_FOLDERS:
        path = left.popleft()
        listed += 1
        for name in _folders(files, f"{root}{path}"):
            below = f"{path}/{name}"
            container_id = cgroup_paths.container_id(name)
            if container_id in wanted:
                missing -= 1
                yield container_id, below
            elif not container_id and (others or cgroup_paths.is_qos(name) or cgroup_paths.pod_uid(name)):
                left.append(below)


def _inside(files: HostFiles, root: str, parent: str) -> Iterable[tuple[str, str]]:
    for name in _folders(files, f"{root}{parent}"):
        container_id = cgroup_paths.container_id(name)
        if container_id:
            yield container_id, f"{parent}/{name}"


def _folders(files: HostFiles, place: str) -> list[str]:
    """Names of cgroups in the folder; none where it is gone. Its own files are named after their controllers."""
    try:
        return [name for name in files.listdir(place) if name.partition(".")[0] not in _CONTROLLERS]
    except OSError:
        return []
