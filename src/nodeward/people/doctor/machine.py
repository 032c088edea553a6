"""Finds out what `people.doctor.findings` judges: of kernel, runtime, this process, and who else is on the machine.

Each probe reads within bounds and may raise; `people.doctor.run` runs it with a deadline. Files are the host's
(HostFiles); programs are run by `Run`, which a test replaces.
"""

import ctypes
import json
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from nodeward.core.finding import Neighbour
from nodeward.core.modes import Mode
from nodeward.features.keys.settings import Attestation
from nodeward.features.limits.findings import CgroupFacts, Layout
from nodeward.features.settings import Settings
from nodeward.host.hostfs import HostFiles, is_there
from nodeward.neighbours.cgroups.hierarchy import find
from nodeward.neighbours.formats import cgroup_mounts, misc_files
from nodeward.neighbours.formats.cgroup_paths import kubepods
from nodeward.neighbours.kata import handlers
from nodeward.people.doctor.facts import ProcessFacts, RuntimeFacts

Run = Callable[[str], str]
"""What the program at this path answers to `--version`."""

SMALL = 64 * 1024
LARGE = 1024 * 1024
RUN_S = 4.0
RUN_BYTES = 4096
MOST_PROCESSES = 100_000
OCI = ("runc", "crun")
"""The OCI runtimes that are known."""
_PROGRAMS = ("containerd", "crio", *OCI)
_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/libexec/crio")
_USUAL = ("/", "/kubelet")
"""Kubelet's `--cgroup-root`, where the settings do not name another."""
_PROCESSES = {
    "nri-sgx-epc": "sgx-epc",
    "cri-resmgr": "cri-rm",
    "intel_sgx_devic": "intel-sgx-plugin",
    "nri-resource-po": "nri-policy",
    "dracpu": "dra-driver-cpu",
}
"""The kernel's names of processes, cut to 15 letters, and whose they are."""
_SOCKETS = {
    "/var/lib/kubelet/device-plugins/sgx.intel.com-enclave.sock": "intel-sgx-plugin",
    "/run/cri-resmgr/cri-resmgr.sock": "cri-rm",
    "/run/cri-relay.sock": "cri-rm",
}
_LEFT = {
    "/var/lib/cri-resmgr/cache": "cri-rm-state",
    "/var/lib/nri-resource-policy/cache": "nri-policy-state",
    "/var/lib/nri-resource-policy/state.json": "nri-policy-state",
}
"""What others leave on disk."""
_LAUNCHED = "/opt/nri/plugins"
_PLUGINS = {"sgx-epc": "sgx-epc", "resource-policy": "nri-policy"}
"""Parts of the names of launched plugins, and whose they are."""
_HIDING = "/sys/module/kvm_amd/parameters/ciphertext_hiding_asids"
_TIME_ERROR = 5
"""adjtimex(2): the clock is not synchronised."""


def kernel(files: HostFiles) -> str:
    """The kernel's release."""
    return _line(files, "/proc/sys/kernel/osrelease")


def cgroups(files: HostFiles, root: str, kubelet_root: str = "/") -> CgroupFacts:
    """The tree at `root`, in which kubelet's cgroups lie below `kubelet_root`."""
    try:
        mounts = list(cgroup_mounts.mounts(files.read("/proc/self/mountinfo", LARGE)))
    except FileNotFoundError:
        mounts = []
    here = next((one.kind for one in reversed(mounts) if one.place == root), "")
    v1 = [one.place for one in mounts if one.kind == "cgroup"]
    v2 = [one.place for one in mounts if one.kind == "cgroup2"]
    tree = find(files, root)
    layout = Layout.UNKNOWN
    if tree.fault and not any((place + "/").startswith(root.rstrip("/") + "/") for place in (*v1, *v2)):
        layout = Layout.NONE
    elif v1 or v2:
        layout = Layout.V2 if here == "cgroup2" else Layout.HYBRID if v1 and v2 else Layout.V1 if v1 else Layout.NONE
    found = [f"{tree.root}{path}" for one in dict.fromkeys((kubelet_root, *_USUAL)) for path in reversed(kubepods(one))]
    pods = next((path for path in found if is_there(files, path)), "")
    return CgroupFacts(
        root=root,
        layout=layout,
        v2_at=next(iter(v2), ""),
        tree=tree,
        read_only=any(one.place == tree.root and "ro" in one.how for one in mounts),
        is_real_root=not is_there(files, f"{root}/cgroup.type"),
        controllers=_words(files, f"{root}/cgroup.controllers"),
        handed_down=_words(files, f"{root}/cgroup.subtree_control"),
        kubepods=pods,
        kubepods_controllers=_words(files, f"{pods}/cgroup.controllers") if pods else None,
        capacity=_capacity(files, tree.root),
    )


def nri(files: HostFiles, settings: Settings) -> RuntimeFacts:
    """Whether NRI is there, and whether the runtime's settings switch it off. Connects to nothing."""
    socket = settings.nri.socket
    there = is_there(files, socket) if settings.nri.enabled else None
    tells = settings.nri.enabled or settings.relay.limits
    return RuntimeFacts(
        socket, there, _nri_off(files), _wants_cdi(settings), _cdi(files), tells and settings.nri.multi_line
    )


def _wants_cdi(settings: Settings) -> bool:
    keys, limits = settings.keys, settings.limits
    gives = [row.devices or row.attestation is not Attestation.OFF for row in keys.kinds.values()]
    by_key = Mode.ENFORCE is keys.mode is keys.dra.mode and any(gives)
    return by_key or (limits.dra.mode is Mode.ENFORCE and bool(limits.dra.devices))


def _cdi(files: HostFiles) -> bool | None:
    found: bool | None = None
    for _, settings in handlers.containerd(files):
        plugins = settings.get("plugins")
        for section in plugins.values() if isinstance(plugins, dict) else ():
            if isinstance(section, dict) and isinstance(section.get("enable_cdi"), bool):
                found = section["enable_cdi"]
    return found


def programs(files: HostFiles, run: Run, wanted: Sequence[str] = _PROGRAMS) -> Mapping[str, str]:
    """What the `wanted` programs in the usual folders say of themselves, by name; and by path the OCI runtimes
    elsewhere that the runtime's settings name."""
    places = {program: place for program in wanted if (place := _place(files, program))}
    named = dict.fromkeys(_place(files, program) for program in _handlers(files) if program)
    places |= {place: place for place in named if place and place not in places.values()}
    if not places:
        return {}
    with ThreadPoolExecutor(len(places)) as at_once:
        return dict(zip(places, at_once.map(run, places.values()), strict=True))


def _place(files: HostFiles, program: str) -> str:
    """The program's path; empty where it is not there. One with a path is there or nowhere else."""
    tried = [program] if program.startswith("/") else [f"{folder}/{program}" for folder in _FOLDERS]
    return next((path for path in tried if is_there(files, path)), "")


def _handlers(files: HostFiles) -> Iterator[str]:
    """The OCI runtimes that are handlers of RuntimeClasses, by name or path, as far as settings name them."""
    for plugin in (one for _, tree in handlers.containerd(files) for one in _tables(tree.get("plugins"))):
        containerd = plugin.get("containerd")
        for handler in _tables(containerd.get("runtimes") if isinstance(containerd, dict) else None):
            options = handler.get("options")
            if isinstance(options, dict):
                yield str(options.get("BinaryName", ""))
    for _, settings in handlers.crio(files):
        runtime = settings.get("runtime")
        for handler in _tables(runtime.get("runtimes") if isinstance(runtime, dict) else None):
            yield str(handler.get("runtime_path", ""))


def _tables(section: object) -> Iterator[dict[str, object]]:
    """The tables in a table of them."""
    yield from (one for one in (section.values() if isinstance(section, dict) else ()) if isinstance(one, dict))


def process(files: HostFiles) -> ProcessFacts:
    """Who this process is."""
    status = files.read("/proc/self/status", SMALL).decode("ascii", "replace")
    lines = dict(line.partition(":")[::2] for line in status.splitlines())
    mapped = [line.split() for line in _line(files, "/proc/self/uid_map").splitlines()]
    host_root = any(len(row) == 3 and row[0] == row[1] == "0" for row in mapped) if mapped else None
    return ProcessFacts(int(lines["Uid"].split()[1]), host_root, int(lines["CapEff"].strip(), 16))


def neighbours(files: HostFiles) -> tuple[Neighbour, ...]:
    """Others that are seen on this machine: their processes, sockets and plugins."""
    running = [(pid, name) for pid, name in processes(files) if name in _PROCESSES]
    ours = [pid for pid, name in running if name == "cri-resmgr" and _is_same_program(files, pid)]
    seen = {path: name for path, name in (_SOCKETS | _LEFT).items() if not ours or name != "cri-rm"}
    found = [Neighbour(name, path) for path, name in seen.items() if is_there(files, path)]
    with suppress(FileNotFoundError):
        names = files.listdir(_LAUNCHED)
        found += [Neighbour(_PLUGINS[p], f"{_LAUNCHED}/{name}") for name in names for p in _PLUGINS if p in name]
    found += [Neighbour(_PROCESSES[name], f"process {pid}") for pid, name in running if pid not in ours]
    return tuple(found)


def _is_same_program(files: HostFiles, pid: str) -> bool:
    """Whether a process is of the file that runs here: Nodeward's relay is called `cri-resmgr` too."""
    with suppress(OSError):  # it has ended, or is another user's
        here, there = files.stat("/proc/self/exe"), files.stat(f"/proc/{pid}/exe")
        return (here.device, here.inode) == (there.device, there.inode)
    return False


def processes(files: HostFiles) -> Iterator[tuple[str, str]]:
    """The ids of all processes that are seen, with their names as the kernel has them."""
    with suppress(FileNotFoundError):
        for pid in [name for name in files.listdir("/proc") if name.isdigit()][:MOST_PROCESSES]:
            with suppress(OSError):  # it has ended
                yield pid, _line(files, f"/proc/{pid}/comm")


def cpu_manager(files: HostFiles, path: str) -> str:
    """The policy in kubelet's CPU manager state; empty where there is none."""
    try:
        state: object = json.loads(files.read(path, LARGE))
    except FileNotFoundError:
        return ""
    return str(state.get("policyName", ""))[:64] if isinstance(state, dict) else ""


def hiding(files: HostFiles) -> int:
    """How many ids kvm_amd reserves for guests with hidden ciphertext; 0 where it is not there, or knows no such
    thing."""
    try:
        return int(_line(files, _HIDING))
    except FileNotFoundError:
        return 0


def synchronised() -> bool | None:
    """Whether the kernel holds its clock for synchronised; None where it does not say."""
    answer = int(
        ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(1024))
    )  # reads only: modes is 0
    return None if answer < 0 else answer != _TIME_ERROR


def said_by(place: str) -> str:
    """What the program answers to `--version`, cut to RUN_BYTES; empty for one that takes longer than RUN_S."""
    said, end = b"", time.monotonic() + RUN_S
    try:
        started = subprocess.Popen(
            [place, "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}
        )
    except OSError:
        return ""
    with started:
        pipe = started.stdout.fileno() if started.stdout else -1
        while len(said) < RUN_BYTES and (left := end - time.monotonic()) > 0:
            if not select.select([pipe], [], [], left)[0]:
                break
            piece = os.read(pipe, RUN_BYTES - len(said))
            if not piece:
                break
            said += piece
        started.kill()
    return said.decode("utf-8", "replace").strip()


def _capacity(files: HostFiles, root: str) -> Mapping[str, int] | None:
    try:
        return misc_files.parse(files.read(f"{root}/misc.capacity", misc_files.MAX_BYTES))
    except FileNotFoundError:
        return None


def _nri_off(files: HostFiles) -> str:
    """The file of a runtime's settings that switches NRI off; empty for none that is seen to."""
    last, off = "", False
    for path, settings in handlers.containerd(files):
        plugins = settings.get("plugins")
        for name, section in plugins.items() if isinstance(plugins, dict) else ():
            if name.endswith("nri.v1.nri") and isinstance(section, dict) and "disable" in section:
                last, off = path, section["disable"] is True
    if off:
        return last
    last, off = "", False
    for path, settings in handlers.crio(files):
        section = settings.get("nri")
        if isinstance(section, dict) and "enable_nri" in section:
            last, off = path, section["enable_nri"] is False
    return last if off else ""


def _line(files: HostFiles, path: str) -> str:
    return files.read(path, SMALL).decode("utf-8", "replace").strip()


def _words(files: HostFiles, path: str) -> tuple[str, ...] | None:
    try:
        return tuple(_line(files, path).split())
    except FileNotFoundError:
        return None
