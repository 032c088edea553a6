"""The cgroup in which each process of a VM sandbox belongs, by Kata's page and by what Kata really does.

Paths are from the root of a cgroup tree. `version` is that of the trees that count CPU and memory: on a hybrid host the
one in which these two controllers are.
"""

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass

from nodeward.core.cgroup_names import of_systemd, scope_path
from nodeward.core.vms import CgroupDriver, Profile, VmReading
from nodeward.core.workload import Container, Sandbox
from nodeward.features.sandboxes.values import Expected

OVERHEAD = "/kata_overhead"
"""Of both Kata runtimes, where they use no systemd for it."""
UNLIMITED_MEMORY = "/kata"
"""The document's memory cgroup without a limit, one for all sandboxes."""
SANDBOXED_POD = "/kata_sandboxed_pod"
"""Where runtime-rs puts a sandbox for which it finds no OCI spec: outside every pod."""
_RELATIVE = "/vc"
_MAX_PATH = 4096


@dataclass(frozen=True, slots=True)
class Paths:
    """What the cgroups of a sandbox are named after."""

    sandbox: str
    """Its id."""
    cgroups_path: str | None = None
    """`linux.cgroupsPath` in the OCI spec of its sandbox container (without a pod, as with Docker, of the container);
    empty for a spec without one. None where it is not known: then containerd's or CRI-O's, by the pod's cgroup."""
    pod: str = ""
    """The pod's cgroup; empty: the one above `cgroups_path`."""
    containers: tuple[tuple[str, str], ...] = ()
    """The other containers: id and `linux.cgroupsPath`."""
    _: KW_ONLY
    is_crio: bool = False
    """By CRI-O's names where `cgroups_path` is not known."""
    no_pod: bool = False
    """Docker, podman and nerdctl: the container's cgroup takes the place of the sandbox's."""


@dataclass(frozen=True, slots=True)
class Threaded:
    """What threads apart would take on cgroup v2: memory counts in `domain`, CPU in its two threaded children."""

    domain: str
    vcpu: str
    overhead: str


def expected(profile: Profile, only: bool, version: int, driver: CgroupDriver, paths: Paths) -> Expected:
    """The cgroup of each part of the sandbox, as its rules want it. A path that is not known, or cannot be read, leaves
    every place open, with a note."""
    path = _usual(paths, driver) if paths.cgroups_path is None else paths.cgroups_path
    if path is None:
        return Expected("", note="neither the sandbox's cgroupsPath nor its pod's cgroup is known")
    try:
        match profile:
            case Profile.KATA_GO:
                return _kata_go(only, version, path, paths.sandbox)
            case Profile.KATA_RS:
                return _kata_rs(only, version, path, paths.sandbox)
        return _document(only, version, path, paths)
    except ValueError as error:
        return Expected("", note=f"cgroupsPath {path[:200]!r} of the sandbox cannot be read: {error}")


def of_pod(sandbox: Sandbox, containers: Iterable[Container]) -> Paths:
    """The names of a known pod's cgroups. Its sandbox container has its cgroup beside the others: the runtime's prefix
    is taken from one of these."""
    mine = [(str(one.id), oci_form(one.cgroups_path)) for one in containers if one.sandbox_id == sandbox.id]
    named = [(one, path) for one, path in mine if one and path.endswith(one)]
    own = named[0][1].removesuffix(named[0][0]) + sandbox.id if named else None
    return Paths(sandbox.id, own, sandbox.cgroup_parent, tuple((one, path) for one, path in mine if path))


def is_crios(reading: VmReading) -> bool:
    """Whether a cgroup of the sandbox has a name of CRI-O's, the only sign while no container runs."""
    name = f"crio-{reading.sandbox}"
    names = (name, f"kata_{name}", f"{name}.scope")
    lasts = (one.path.rpartition("/")[2] for one in reading.cgroups)
    return any(last in names or last.endswith(f":crio:{reading.sandbox}") for last in lasts)


def oci_form(path: str) -> str:
    """A scope's path as a `cgroupsPath` of systemd's form; any other path as it is."""
    above, _, name = path.rpartition("/")
    slice_name = above.rpartition("/")[2]
    if not name.endswith(".scope") or not slice_name.endswith(".slice"):
        return path
    prefix, _, last = name.removesuffix(".scope").rpartition("-")
    return f"{slice_name}:{prefix}:{last}"


def container_path(cgroups_path: str) -> str:
    """The cgroup that an OCI runtime makes of a `cgroupsPath`. ValueError for one that cannot be."""
    named = of_systemd(cgroups_path)
    return _scope(*named) if named is not None else _clean(cgroups_path)


def renamed(path: str) -> str:
    """The cgroup's path with `kata_` before its last name, so that cAdvisor does not take it for a container's."""
    above, _, name = path.rpartition("/")
    return f"{above}/kata_{name}"


def threaded(place: Expected) -> Threaded:
    """The threaded subtree below the sandbox's cgroup."""
    return Threaded(place.sandbox, f"{place.sandbox}/vcpu", f"{place.sandbox}/overhead")


def shims(paths: Paths) -> dict[str, str]:
    """The document's cgroup for the shim of each container: of the sandbox container, and of each other one."""
    own = ((paths.sandbox, paths.cgroups_path), *paths.containers)
    return {one: renamed(container_path(path)) for one, path in own if path}


def _document(only: bool, version: int, path: str, paths: Paths) -> Expected:
    """Kata's page. Enabled: all in `<podCgroup>/kata-sandbox-<PodSandboxID>`. Disabled: its seven steps."""
    container = container_path(path)
    if only:
        pod = paths.pod or container.rpartition("/")[0]
        inside = container if paths.no_pod else f"{pod}/kata-sandbox-{paths.sandbox}"
        return _together(inside)
    sandbox = renamed(container)
    if version == 2:
        return Expected(sandbox, UNLIMITED_MEMORY, sandbox, UNLIMITED_MEMORY, sandbox, sandbox, _whole(sandbox))
    vmm = UNLIMITED_MEMORY
    return Expected(sandbox, UNLIMITED_MEMORY, shim=sandbox, virtiofsd=vmm, vmm=vmm, vcpu=sandbox)


def _kata_go(only: bool, version: int, path: str, sandbox_id: str) -> Expected:
    """virtcontainers. With systemd's form and mode false it makes one folder of that very name at the root."""
    named = of_systemd(path)
    if named is not None:
        slice_name, prefix, name = named
        inside = scope_path(slice_name, f"{prefix}-", name) if only else "/" + path.lstrip("/")
    else:
        inside = _go_path(path)
    if only:
        return _together(inside)
    outside = f"{OVERHEAD}/{sandbox_id}"
    return _split(inside, outside) if version == 1 else _moved(inside, outside, _whole(inside))


def _kata_rs(only: bool, version: int, path: str, sandbox_id: str) -> Expected:
    """runtime-rs. Threads apart only on v1 without systemd."""
    named = of_systemd(path.lstrip("/"))
    inside = _scope(*named) if named is not None else _clean(path)
    if only:
        return _together(inside)
    if named is None:
        outside = f"{OVERHEAD}/{sandbox_id}"
        return _split(inside, outside) if version == 1 else _moved(inside, outside, _whole(inside))
    outside = _scope("kata-overhead.slice", "runtime-rs", sandbox_id)
    why = _whole(inside) if version == 2 else f"With systemd runtime-rs moves the whole VMM to {inside}"
    return _moved(inside, outside, why)


def _scope(slice_name: str, prefix: str, name: str) -> str:
    """As runc and runtime-rs name it. Kata Go keeps the dash of an empty prefix."""
    return scope_path(slice_name, f"{prefix}-" if prefix else "", name)


def _together(place: str) -> Expected:
    return Expected(place, shim=place, virtiofsd=place, vmm=place, vcpu=place)


def _split(inside: str, outside: str) -> Expected:
    """vCPU threads inside, everything else outside."""
    return Expected(inside, outside, shim=outside, virtiofsd=outside, vmm=outside, vcpu=inside)


def _moved(inside: str, outside: str, note: str) -> Expected:
    """The whole VMM inside, after it has started outside."""
    return Expected(inside, outside, shim=outside, virtiofsd=outside, vmm=inside, vcpu=inside, note=note)


def _whole(place: str) -> str:
    return (
        f"cgroup v2 cannot split a VMM's threads over cgroups that count memory: the whole VMM is in {place}. Threads "
        f"apart would take a threaded subtree, {place}/vcpu and {place}/overhead, with CPU only"
    )


def _go_path(path: str) -> str:
    """RenameCgroupPath and ValidCgroupPath of Kata Go, to the letter: a slash at the end names the cgroup twice, and a
    relative path lands under `/vc`."""
    path = path or _RELATIVE
    above = path.rpartition("/")[0]
    name = path.rstrip("/").rpartition("/")[2]
    return _clean(f"{'' if path.startswith('/') else _RELATIVE}/{above}/kata_{name}")


def _clean(path: str) -> str:
    """The path without empty and `.` parts, from the root. ValueError for one that climbs out."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if len(path) > _MAX_PATH or ".." in parts or "\0" in path or "\n" in path:
        raise ValueError("it is too long, climbs out with '..', or has a NUL or a line's end")
    return "/" + "/".join(parts)


def _usual(paths: Paths, driver: CgroupDriver) -> str | None:
    """The sandbox container's `cgroupsPath` as its runtime makes it of the pod's cgroup, where that is known."""
    if not paths.pod:
        return None
    name = paths.pod.rpartition("/")[2]
    if driver is CgroupDriver.SYSTEMD or name.endswith(".slice"):
        return f"{name}:{'crio' if paths.is_crio else 'cri-containerd'}:{paths.sandbox}"
    return f"{paths.pod}/{'crio-' if paths.is_crio else ''}{paths.sandbox}"
