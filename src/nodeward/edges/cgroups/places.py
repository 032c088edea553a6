"""Finds the cgroups of containers by their ids, for a transport that does not tell them: CRI has no field for one.

A container's cgroup lies in its pod's and has the container's id in its name, whatever the cgroup driver. Where the
pod's cgroup is not known either, kubelet's are searched. Synchronous; belongs to one lane.
"""

from collections.abc import Iterable, Mapping

from nodeward.aio.hostfs import HostFiles
from nodeward.wire import cgroup_paths

MOST_FOLDERS = 20_000
"""So many folders are listed by one search at most; a full node has some two thousand."""


def find(files: HostFiles, root: str, kubelet_root: str, wanted: Mapping[str, str]) -> dict[str, str]:
    """The cgroup of each container id of `wanted`, which names its pod's cgroup or has an empty text. Paths are below
    `root`; those that are not found are left out."""
    found = dict[str, str]()
    for container_id, parent in wanted.items():
        if parent:
            found.update((one, path) for one, path in _inside(files, root, parent) if one == container_id)
    if len(found) < len(wanted):
        found.update((one, path) for one, path in _everywhere(files, root, kubelet_root) if one in wanted)
    return found


def _everywhere(files: HostFiles, root: str, kubelet_root: str) -> Iterable[tuple[str, str]]:
    left, listed = list(cgroup_paths.kubepods(kubelet_root)), 0
    while left and listed < MOST_FOLDERS:
        path = left.pop()
        listed += 1
        for name in _folders(files, f"{root}{path}"):
            below = f"{path}/{name}"
            container_id = cgroup_paths.container_id(name)
            if container_id:
                yield container_id, below
            elif cgroup_paths.is_qos(name) or cgroup_paths.pod_uid(name):
                left.append(below)


def _inside(files: HostFiles, root: str, parent: str) -> Iterable[tuple[str, str]]:
    for name in _folders(files, f"{root}{parent}"):
        container_id = cgroup_paths.container_id(name)
        if container_id:
            yield container_id, f"{parent}/{name}"


def _folders(files: HostFiles, place: str) -> list[str]:
    """Names in the folder; none where it is gone. A cgroup's own files have names that no container's has."""
    try:
        return files.listdir(place)
    except OSError:
        return []
