"""Hosts for doctor made of plain folders, and what to look at in its findings."""

from collections.abc import Callable
from pathlib import Path

from nodeward.core.finding import Severity
from nodeward.features.settings import KubeSection, Settings
from nodeward.host.clock import SystemClock
from nodeward.host.hostfs import HostFiles, OsFiles
from nodeward.people.client import DaemonError
from nodeward.people.doctor import machine
from nodeward.people.doctor.run import Around, Diagnosis

EPC = "sgx_epc"
SOCKET = "/run/nodeward/nodeward.sock"
NO_API = Settings(kube=KubeSection(enabled=False))
MOUNTS = "30 20 0:26 / {place} rw,nosuid - {kind} {kind} rw,{options}\n"
HOST = {
    "proc/sys/kernel/osrelease": "6.12.0-test\n",
    "proc/self/mountinfo": MOUNTS.format(place="/sys/fs/cgroup", kind="cgroup2", options="nsdelegate"),
    "proc/self/status": "Name:\tx\nUid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n",
    "proc/self/uid_map": "         0          0 4294967295\n",
    "sys/fs/cgroup/cgroup.controllers": "cpu memory misc\n",
    "sys/fs/cgroup/cgroup.subtree_control": "cpu memory misc\n",
    "sys/fs/cgroup/misc.capacity": "sgx_epc 1048576\n",
    "sys/fs/cgroup/misc.current": "sgx_epc 4096\n",
    "sys/fs/cgroup/kubepods.slice/cgroup.controllers": "cpu memory misc\n",
    "sys/fs/cgroup/kubepods.slice/misc.max": "sgx_epc max\n",
    "var/run/nri/nri.sock": "",
    "usr/bin/containerd": "",
    "usr/sbin/runc": "",
}
SAID = {"/usr/bin/containerd": "containerd github.com/containerd/containerd/v2 v2.4.2", "/usr/sbin/runc": "runc 1.2.5"}


def host(folder: Path, **changes: str | None) -> OsFiles:
    """A host's files below `folder`; a change names a file, None leaves it out."""
    for path, text in (HOST | changes).items():
        if text is not None:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
    return OsFiles(str(folder))


def away() -> bytes:
    raise DaemonError("no answer")


def around(
    files: HostFiles,
    status: Callable[[], bytes] = away,
    run: machine.Run = lambda place: SAID.get(place, ""),
    patience_s: float = 30.0,
) -> Around:
    return Around(files, run, lambda: True, {}, SystemClock(), status, SOCKET, patience_s)


def codes(found: Diagnosis) -> dict[str, Severity]:
    return {finding.code: finding.severity for finding in found.findings}


def bad(found: Diagnosis) -> list[str]:
    return [finding.code for finding in found.findings if finding.severity.rank >= Severity.WARNING.rank]
