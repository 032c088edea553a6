"""A real kubelet beside the containerd of a test: real pods from a real API server, on a machine that stays as it was.

The kubelet lives in containerd's mount and process namespaces and in the caller's network (the API server is on its
loopback), so it ends when containerd's namespaces end. What a kubelet changes on a machine is kept from the machine,
which holds even when the test is killed:

- sysctls: a copy of each file lies over it in the mount namespace; the kubelet reads and writes the copies
- /var/lib and /var/log: an overlay with its changes in memory (some of its paths cannot be configured)
- cgroups: all below the `cgroup_parent` of containerd, which goes with containerd, or stays empty after a kill -9;
  what the root of cgroup v2 passes on is taken back with containerd (`tests.peers.cgroups`), or stays likewise
- mounts: below its folder, in the mount namespace

`configuration`, `kubeconfig`, `command` and `shielded` are pure: a guest can be given what they say.
"""

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from tests.patience import scaled, until
from tests.peers.cgroups import make_cgroup
from tests.peers.containerd import Containerd, children
from tests.peers.find import require
from tests.peers.pki import Certificate
from tests.peers.ports import free_port

START_TIMEOUT_S = scaled(60.0)
SERVER_NAME = "kubernetes"
"""A name in the certificate that a kube-apiserver makes for itself, whatever address it is reached at."""
SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
"""Settings of the whole machine that a kubelet makes as it likes them."""
CONTROLLERS = ("cpu", "cpuset", "hugetlb", "memory", "pids")
"""What a kubelet insists on in its cgroup, where the machine has it."""


class KubeletError(Exception):
    """The kubelet did not do what the test needs; the message ends with its log."""


@dataclass(frozen=True, slots=True)
class Api:
    url: str
    ca_file: Path
    token: str = ""
    shown: Certificate | None = None
    """The certificate to log in with, where there is no token."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a kubelet is told. Every path is one of the machine it runs on."""

    folder: Path
    node: str
    cri_socket: Path
    cgroup_root: str
    """An absolute path below the root of each cgroup hierarchy; it has to be there."""
    port: int = 10250
    health_port: int = 10248
    node_ip: str = ""
    """Empty: the kubelet finds one by itself."""
    api: Api | None = None
    """None: the kubelet has static pods only."""

    @property
    def manifests(self) -> Path:
        return self.folder / "manifests"


def configuration(plan: Plan) -> str:
    said: dict[str, object] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": plan.port,
        "healthzPort": plan.health_port,
        "readOnlyPort": 0,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{plan.cri_socket}",
        "staticPodPath": str(plan.manifests),
        "podLogsDir": str(plan.folder / "logs"),
        "volumePluginDir": str(plan.folder / "volume-plugins"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": plan.cgroup_root,
        "cgroupsPerQOS": True,
        "failCgroupV1": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "localStorageCapacityIsolation": False,
        "resolvConf": "",
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "fileCheckFrequency": "1s",
        "syncFrequency": "2s",
        "nodeStatusUpdateFrequency": "1s",
        "serializeImagePulls": False,
    }
    return json.dumps(said, indent=1)


def kubeconfig(api: Api) -> str:
    cluster = {"server": api.url, "certificate-authority": str(api.ca_file), "tls-server-name": SERVER_NAME}
    user = {"token": api.token}
    if api.shown is not None:
        user = {"client-certificate": str(api.shown.certificate), "client-key": str(api.shown.key)}
    said = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }
    return json.dumps(said, indent=1)


def command(plan: Plan, program: Path) -> list[str]:
    """The kubelet's command line; the two files above lie in the plan's folder."""
    joined = [f"--kubeconfig={plan.folder / 'kubeconfig'}"] if plan.api is not None else []
    return [
        str(program),
        f"--config={plan.folder / 'kubelet.json'}",
        f"--root-dir={plan.folder / 'root'}",
        f"--cert-dir={plan.folder / 'certs'}",
        f"--hostname-override={plan.node}",
        *joined,
        *([f"--node-ip={plan.node_ip}"] if plan.node_ip else []),
    ]


def shielded(inner: Sequence[str], folder: Path) -> list[str]:
    """A command, run where it cannot change the machine; for a mount namespace of its own with a /proc of its own.

    The copies of the sysctls are in `folder`/sysctl afterwards, as the command left them.
    """
    lines = ["set -e"]
    for sysctl in SYSCTLS:
        copy = quote(str(folder / "sysctl" / sysctl))
        lines.append(f"mkdir -p $(dirname {copy}); cat /proc/sys/{sysctl} > {copy}")
        lines.append(f"mount --bind {copy} /proc/sys/{sysctl}")
    for place in ("/var/lib", "/var/log"):
        upper = f"/run/shield{place}"
        lines.append(f"mkdir -p {upper}/upper {upper}/work")
        lines.append(
            f"mount -t overlay overlay -o lowerdir={place},upperdir={upper}/upper,workdir={upper}/work {place}"
        )
    lines.append("exec " + " ".join(quote(word) for word in inner))
    return ["sh", "-c", "\n".join(lines)]


def prepare(plan: Plan) -> None:
    for name in ("manifests", "logs", "volume-plugins", "root", "certs"):
        (plan.folder / name).mkdir(parents=True)
    (plan.folder / "kubelet.json").write_text(configuration(plan))
    if plan.api is not None:
        (plan.folder / "kubeconfig").write_text(kubeconfig(plan.api))


@dataclass(slots=True)
class Kubelet:
    plan: Plan
    _process: subprocess.Popen[bytes]
    _again: Sequence[str] = ()

    @property
    def pid(self) -> int:
        return next(iter(children(self._process.pid)), 0)

    def log(self) -> str:
        return (self.plan.folder / "kubelet.log").read_text(errors="replace")[-4000:]

    def sysctl(self, name: str) -> str:
        return (self.plan.folder / "sysctl" / name).read_text().strip()

    def add_static(self, name: str, manifest: str) -> None:
        path = self.plan.folder / f"{name}.json"
        path.write_text(manifest)
        path.rename(self.plan.manifests / path.name)

    def remove_static(self, name: str) -> None:
        (self.plan.manifests / f"{name}.json").unlink()

    def _healthy(self) -> bool:
        if self._process.poll() is not None:
            raise KubeletError(f"the kubelet ended with status {self._process.returncode}\n{self.log()}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.plan.health_port}/healthz", timeout=5) as answer:
                return bool(answer.read() == b"ok")
        except (OSError, urllib.error.URLError):
            return False

    def wait_healthy(self) -> None:
        until(self._healthy, "the kubelet is well", told=self.log)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait(START_TIMEOUT_S)

    def configure(self, **said: object) -> None:
        path = self.plan.folder / "kubelet.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **said}, indent=1))

    def start_again(self) -> None:
        """Start one in the place of one that has ended, where the first has made everything ready."""
        self._process = started(self._again, self.plan)

    def stop(self) -> None:
        if self._process.poll() is None and self.pid:
            os.kill(self.pid, signal.SIGTERM)
        self._process.wait(START_TIMEOUT_S)


def started(line: Sequence[str], plan: Plan) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    with (plan.folder / "kubelet.log").open("ab") as log:
        return subprocess.Popen(line, stdout=log, stderr=log, env=environment)


@contextmanager
def running_kubelet(
    containerd: Containerd,
    folder: Path,
    node: str,
    api: Api | None = None,
    node_ip: str = "",
    cgroup_root: str = "",
    relay: Path | None = None,
) -> Iterator[Kubelet]:
    """A kubelet on this containerd, for as long as the block; the test skips where the peer is not built.

    Its pods go below the `cgroup_parent` of containerd unless a root is given: a guest has the whole tree to itself.
    With a relay it asks that socket for everything, images too. Whoever reaches our loopback may ask it for logs,
    commands and metrics, as the API server does without a key.
    """
    program = require("kubernetes") / "bin" / "kubelet"
    parent = cgroup_root or containerd.cgroup_parent
    plan = Plan(folder, node, relay or containerd.cri_socket, parent, free_port(), free_port(), node_ip, api)
    prepare(plan)
    make_cgroup(parent, CONTROLLERS)
    line = containerd.inside(*shielded(command(plan, program), folder), network=False)
    process = started(line, plan)
    kubelet = Kubelet(plan, process, containerd.inside(*command(plan, program), network=False))
    try:
        until(lambda: process.poll() is not None or kubelet.pid != 0, "kubelet process")
        kubelet.wait_healthy()
        yield kubelet
    finally:
        kubelet.stop()
