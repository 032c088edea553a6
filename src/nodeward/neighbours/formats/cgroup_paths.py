"""Where a pod's and a container's cgroup lies, from what kubelet and the runtime call it.

Two forms. cgroupfs: `/kubepods/burstable/pod<uid>` and below it the container's id. systemd: the slice
`kubepods-burstable-pod<uid>.slice`, whose parents are spelled in its name (systemd.slice(5)), and below it the scope
`<prefix>-<id>.scope`, which a runtime writes as `<slice>:<prefix>:<id>`.
"""

import re
from functools import lru_cache

from nodeward.core.cgroup_names import slice_levels
from nodeward.core.errors import WireError

MAX_PATH = 4096
_NOT_A_NAME = frozenset(("", ".", ".."))

_QOS = ("burstable", "besteffort")
_ID = re.compile(r"[0-9a-f]{64}")
_OF_A_UID = frozenset("0123456789abcdef-")


def kubepods(kubelet_root: str = "/") -> tuple[str, str]:
    """Kubelet's cgroup of pods for its `--cgroup-root`, by the cgroupfs driver and by systemd. Systemd's names have a
    dash between two levels, so kubelet writes one within a name as `_`."""
    names = [name for name in kubelet_root.split("/") if name]
    slices = [name.replace("-", "_") for name in names]
    return _checked("/" + "/".join((*names, "kubepods"))), parent_path("-".join((*slices, "kubepods")) + ".slice")


@lru_cache(1024)  # a pod is named with each of its containers and events
def parent_path(cgroup_parent: str) -> str:
    """The path below the cgroup root of a sandbox's `cgroup_parent`; empty for an empty one."""
    if not cgroup_parent:
        return ""
    last = cgroup_parent.rsplit("/", 1)[-1]
    if last.endswith(".slice"):
        return _checked("/" + "/".join(_slice_chain(last)))
    return _checked("/" + cgroup_parent.strip("/"))


def container_path(cgroups_path: str) -> str:
    """The path of a container's cgroup; empty where the runtime does not tell (`cgroups_path` empty)."""
    if not cgroups_path:
        return ""
    if not cgroups_path.startswith("/"):
        parts = cgroups_path.split(":")
        if len(parts) == 3 and parts[2]:
            scope = f"{parts[1]}-{parts[2]}.scope" if parts[1] else f"{parts[2]}.scope"
            return _checked(f"{parent_path(parts[0])}/{scope}")
    return _checked("/" + cgroups_path.strip("/"))


def of_process(data: bytes) -> tuple[str, str]:
    """A process's cgroups by its `/proc/PID/cgroup`: in the v2 tree, and in the v1 hierarchy of the misc controller.
    Empty where there is none. Source: cgroups(7)."""
    unified = legacy = ""
    for line in filter(None, data.decode(errors="surrogateescape").split("\n")):
        number, _, rest = line.partition(":")
        controllers, mark, path = rest.partition(":")
        if not mark:
            raise WireError("cgroup path", f"line {line[:200]!r} of /proc/PID/cgroup is not 'number:controllers:path'")
        if number == "0" and not controllers:
            unified = path if path == "/" else _checked(path)
        elif "misc" in controllers.split(","):
            legacy = path if path == "/" else _checked(path)
    return unified, legacy


def by_controller(data: bytes) -> dict[str, str]:
    """A process's cgroup in each tree, by its `/proc/PID/cgroup`: by controller of v1, under "" that of v2. A line cut
    off at the end is left out. WireError for a path that climbs out of what this process sees, or is not UTF-8."""
    found: dict[str, str] = {}
    try:
        text = data[: data.rfind(b"\n")].decode() if b"\n" in data else ""
    except UnicodeDecodeError as error:
        raise WireError("cgroup path", f"/proc/PID/cgroup names a cgroup that is not UTF-8: {data[:200]!r}") from error
    for line in filter(None, text.split("\n")):
        _, _, rest = line.partition(":")
        controllers, mark, path = rest.partition(":")
        if not mark:
            raise WireError("cgroup path", f"line {line[:200]!r} of /proc/PID/cgroup is not 'number:controllers:path'")
        plain = path if path == "/" else _checked(path)
        found |= dict.fromkeys(controllers.split(","), plain)
    return found


def holds(cgroup: str, path: str, container: str) -> bool:
    """Whether a container's process at `path` is in that cgroup of its own: right there, or further down where the
    cgroup's name has the container's id. crun puts it into a cgroup `container` or another one there, below a systemd
    scope; what lies below a cgroup without the id may be anybody's."""
    return path == cgroup or (path.startswith(f"{cgroup}/") and _has_id(cgroup, container))


def joined(data: bytes, cgroup: str, container: str) -> bool:
    """Whether that cgroup holds a container's process in any hierarchy, by its `/proc/PID/cgroup`."""
    lines = data.decode(errors="surrogateescape").split("\n")
    return any(holds(cgroup, line.split(":", 2)[-1], container) for line in lines)


def is_shared(cgroup: str, container: str) -> bool:
    """Whether a cgroup's name says that others besides this container use it: a pod's, that of a QoS class or of all
    pods, or any slice of systemd's. One whose name has the container's id is not."""
    name = cgroup.rpartition("/")[2]
    of_several = name.endswith(".slice") or name == "kubepods" or is_qos(name) or pod_uid(name) != ""
    return of_several and not _has_id(cgroup, container)


def uid_above(path: str) -> str:
    """The UID of the pod whose cgroup contains a path; empty where no name in it has one as the API server, or a
    kubelet for its static pods, makes them."""
    for name in reversed(path.split("/")[:-1]):
        uid = pod_uid(name)
        if len(uid) in (32, 36) and _OF_A_UID.issuperset(uid):
            return uid
    return ""


def is_qos(name: str) -> bool:
    """Whether a cgroup's name is that of a QoS class, below which kubelet puts that class's pods."""
    return name.removesuffix(".slice").rpartition("-")[2] in _QOS if name.endswith(".slice") else name in _QOS


def pods_root(pod_path: str) -> str:
    """The cgroup below which this pod and its neighbours of every QoS class lie."""
    folder = pod_path.rpartition("/")[0]
    above, _, name = folder.rpartition("/")
    return above if is_qos(name) else folder


def pod_uid(name: str) -> str:
    """The pod's UID in a pod cgroup's own name, as the runtime knows it; empty for a cgroup that is no pod's."""
    if name.endswith(".slice"):
        _, mark, uid = name.removesuffix(".slice").rpartition("-pod")
        return uid.replace("_", "-") if mark else ""
    return name.removeprefix("pod") if name.startswith("pod") else ""


def pod_of(path: str, kubelet_root: str = "/") -> str:
    """The UID of the pod whose cgroup contains this one or is this one, below kubelet's own cgroups; empty for a cgroup
    of no pod."""
    for root in kubepods(kubelet_root):
        if path.startswith(f"{root}/"):
            return next((uid for name in path.removeprefix(f"{root}/").split("/") if (uid := pod_uid(name))), "")
    return ""


def container_id(name: str) -> str:
    """The container's id in a container cgroup's own name; empty for others, such as CRI-O's `crio-conmon-<id>`."""
    stem = name.removesuffix(".scope")
    prefix, found = stem[:-64], stem[-64:]
    if _ID.fullmatch(found) is None or prefix[-1:] not in ("", "-") or "conmon" in prefix:
        return ""
    return found


def _has_id(cgroup: str, container: str) -> bool:
    """Whether the cgroup's own name is the container's id, or ends with it after a runtime's prefix."""
    name = cgroup.rpartition("/")[2].removesuffix(".scope")
    return name == container or name.endswith(f"-{container}")


def _slice_chain(name: str) -> list[str]:
    """`a-b-c.slice` lies in `a.slice/a-b.slice/a-b-c.slice`."""
    try:
        return slice_levels(name)
    except ValueError as error:
        raise WireError("cgroup path", f"cgroup parent {error}") from error


def _checked(path: str) -> str:
    if len(path) > MAX_PATH:
        raise WireError("cgroup path", f"cgroup path of {len(path)} characters, more than {MAX_PATH}")
    if "\0" in path or "\n" in path or not _NOT_A_NAME.isdisjoint(path[1:].split("/")):
        raise WireError("cgroup path", f"cgroup path {path[:200]!r} is not a plain absolute path")
    return path
