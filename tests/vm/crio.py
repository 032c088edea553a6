"""CRI-O in the guest: as root, with NRI where that is wanted, above the distribution's runc and a newer one. Its driver
and its folders of hooks are what it has by itself.

Its containers' files are on a tmpfs, and it pulls its images from a registry in this process. conmon is the one that
comes with podman. Pods have the node's network, so that no CNI is needed.
"""

import json
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Final

import grpc

from tests.patience import scaled
from tests.peers.cri import Cri, container_config, pod_config
from tests.peers.find import require
from tests.peers.nriside import Record, text
from tests.peers.registry import handler, images
from tests.vm.inside import CGROUPS, until

HOME: Final = Path("/dev/shm/crio")
RUN: Final = Path("/run/crio")
SOCKET: Final = RUN / "crio.sock"
REGISTRY: Final = "127.0.0.1:5000"
IMAGE: Final = f"{REGISTRY}/busybox:1"
OLD, NEW = "old", "new"
"""The runtime handlers: the distribution's runc, and the one that comes with containerd."""
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_SETTINGS: Final = """\
[crio]
root = "{home}/root"
runroot = "{run}/storage"
storage_driver = "vfs"
log_dir = "{home}/logs"
version_file = "{run}/version"
version_file_persist = ""
clean_shutdown_file = ""
[crio.api]
listen = "{socket}"
stream_address = "127.0.0.1"
[crio.runtime]
default_runtime = "old"
{hooks}
pinns_path = "{peer}/bin/pinns"
namespaces_dir = "{run}/namespaces"
container_exits_dir = "{run}/exits"
container_attach_socket_dir = "{run}"
seccomp_profile = ""
apparmor_profile = "unconfined"
disable_hostport_mapping = true
irqbalance_config_restore_file = "disable"
{runtimes}
[crio.image]
pause_image = "{registry}/pause:1"
pause_command = "/pause"
signature_policy = "{home}/policy.json"
insecure_registries = ["{registry}"]
[crio.network]
network_dir = "{home}/cni"
plugin_dirs = ["{home}/cni"]
[crio.nri]
enable_nri = {nri}
"""
_RUNTIME: Final = """\
[crio.runtime.runtimes.{name}]
runtime_path = "{path}"
runtime_type = "oci"
runtime_root = "/run/crio-{name}"
monitor_path = "/usr/bin/conmon"
"""


@dataclass(frozen=True, slots=True)
class Made:
    pod: Path
    cgroup: Path
    first: str = ""
    error: str = ""


@dataclass(slots=True)
class Crio:
    old: Path
    """The distribution's runc."""
    process: subprocess.Popen[bytes] | None = None
    made: dict[str, Made] = field(default_factory=dict)
    """By pod."""

    def start(self) -> None:
        _serve()
        for folder in (HOME / "cni", HOME / "logs", RUN / "namespaces"):
            folder.mkdir(parents=True)
        (HOME / "policy.json").write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
        self.begin()
        with self._cri() as cri:
            cri.call("PullImage", {"image": {"image": IMAGE}}, service="ImageService")

    def begin(self, hooks: str = "", *, nri: bool = False) -> None:
        """Starts it with this line of settings for hooks, and with or without NRI, in the place of the one that runs.
        The containers run on."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(scaled(60))
        SOCKET.unlink(missing_ok=True)
        _configure(self._runcs(), hooks, nri=nri)
        command = [str(require("crio") / "bin/crio"), "--config", f"{HOME}/crio.conf", "--config-dir", ""]
        with (HOME / "crio.log").open("ab") as log:
            self.process = process = subprocess.Popen(command, stdout=log, stderr=log)
        until(lambda: SOCKET.exists() or process.poll() is not None, "CRI-O's socket", 60)
        assert process.poll() is None, self.log()

    def log(self) -> str:
        path = HOME / "crio.log"
        return path.read_text(errors="replace")[-3000:] if path.exists() else ""

    def end(self) -> None:
        """Ends it and all that it has made; their cgroups stay."""
        if self.process is None:
            return
        self.process.kill()
        self.process.wait(60)
        pods = [made.pod for made in self.made.values() if made.pod.is_dir()]
        for pod in pods:
            (pod / "cgroup.kill").write_text("1")
        ended = [pod / "cgroup.events" for pod in pods]
        until(lambda: all("populated 0" in one.read_text() for one in ended), "CRI-O's pods have ended", 30)
        self.process = None

    def make(self, pod: str, runtime: str, annotations: Mapping[str, str] = _NOTHING, cpus: int = 0) -> Made:
        """Container `app` of a new pod; it prints what it sees as its own limit before it does anything else. With
        `cpus` the pod is Guaranteed and asks for so many."""
        made = self.made[pod] = self._make(pod, runtime, annotations, cpus)
        return made

    def _make(self, pod: str, runtime: str, annotations: Mapping[str, str], cpus: int) -> Made:
        above = "/kubepods.slice/kubepods" if cpus else "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable"
        parent, logs = f"{above}-poduid_{pod.replace('-', '_')}.slice", HOME / "logs" / pod
        cgroup = CGROUPS / parent.lstrip("/")
        labels: dict[str, str] = {
            "io.kubernetes.pod.name": pod,
            "io.kubernetes.pod.namespace": "default",
            "io.kubernetes.pod.uid": f"uid-{pod}",
        }
        config: Record = {**pod_config(pod, "", logs), "labels": {**labels}, "annotations": {**annotations}}
        options: Record = {"network": "NODE"}
        config["linux"] = {"cgroup_parent": parent, "security_context": {"namespace_options": options}}
        container = container_config("app", IMAGE) | {"labels": {**labels, "io.kubernetes.container.name": "app"}}
        container["image"] = {"image": IMAGE, "user_specified_image": IMAGE}
        if cpus:
            amounts: Record = {"cpu_shares": 1024 * cpus, "cpu_period": 100_000, "cpu_quota": 100_000 * cpus}
            container["linux"] = {"resources": {**amounts, "memory_limit_in_bytes": 64 << 20}}
        program = "busybox cat /sys/fs/cgroup/misc.max; echo started; busybox sleep 1000"
        container["command"] = ["/bin/busybox", "sh", "-c", program]
        with self._cri() as cri:
            asked: Record = {"config": config, "runtime_handler": runtime}
            sandbox = text(cri.call("RunPodSandbox", asked), "pod_sandbox_id")
            request: Record = {"pod_sandbox_id": sandbox, "config": container, "sandbox_config": config}
            try:
                made = text(cri.call("CreateContainer", request), "container_id")
            except grpc.RpcError as refused:
                return Made(cgroup, cgroup, error=str(refused.details()).strip())
            cri.call("StartContainer", {"container_id": made})
        log = logs / "app.log"
        until(lambda: log.exists() and "started" in log.read_text(), "CRI-O's container runs", 20)
        lines = [line.split(" ", 3) for line in log.read_text().splitlines()]
        first = next(said for _, stream, _, said in lines if stream == "stdout")  # runc may warn before, on stderr
        return Made(cgroup, cgroup / f"crio-{made}.scope", first)

    def _cri(self) -> Cri:
        return Cri(SOCKET, require("containerd") / "proto/cri.proto")

    def _runcs(self) -> Mapping[str, Path]:
        return {OLD: self.old, NEW: require("containerd") / "bin/runc"}


def _configure(runtimes: Mapping[str, Path], hooks: str, *, nri: bool) -> None:
    told = {"home": HOME, "run": RUN, "socket": SOCKET, "registry": REGISTRY, "peer": require("crio")}
    tables = "".join(_RUNTIME.format(name=name, path=path) for name, path in runtimes.items())
    (HOME / "crio.conf").write_text(_SETTINGS.format(**told, hooks=hooks, runtimes=tables, nri=str(nri).lower()))


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """CRI-O tries TLS first, and goes away."""


def _serve() -> None:
    """The registry, for as long as this process lives."""
    host, _, port = REGISTRY.partition(":")
    server = _Quiet((host, int(port)), handler(images(require("containerd") / "bin/pause")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
