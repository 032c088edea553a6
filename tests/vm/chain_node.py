"""A node inside the guest: a real containerd with runc, the API server double and the real daemon, side by side.

containerd's folder is on a tmpfs (its overlay cannot lie on the guest's overlay). The double runs in this process, in a
thread of its own; the daemon is the console script, a process of its own that can be killed.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from nodeward.cli import client
from nodeward.model.view import CgroupRow, NodeView
from nodeward.sim.apiserver import ApiServer, Json
from tests.peers.containerd import IMAGE, Containerd, running_containerd
from tests.peers.cri import Cri, container_config, pod_config
from tests.peers.nriside import Record, text
from tests.vm.guest import patience

CGROUPS: Final = Path("/sys/fs/cgroup")
DEVICE: Final = "/dev/fakemisc"
EPC: Final = "sgx.intel.com/epc"
RESOURCE: Final = "sev"
_RESOURCE_NUMBER: Final = 0
_FOLDER: Final = Path("/run/chain")
_CONTAINERD_FOLDER: Final = Path("/dev/shm/containerd")
_NODEWARD: Final = str(Path(sys.executable).parent / "nodeward")
_WITHIN_S: Final = 5.0
_SETTINGS: Final = """
node_name: guest
state_dir: {folder}/state
run_dir: {folder}/run
limits: {{resources: {{{epc}: {resource}}}}}
nri: {{socket: {nri}}}
kube: {{url: "{url}"}}
"""


def until(true: Callable[[], bool], what: str) -> None:
    """Waits for what another process does, as long as this slow machine may need."""
    end = time.monotonic() + _WITHIN_S * patience()
    while not true():
        if time.monotonic() > end:
            raise AssertionError(f"not within {_WITHIN_S * patience():.0f} s: {what}")
        time.sleep(0.1)


class Api:
    """The API server double, in a thread with a loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._server = ApiServer()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result(60)

    @property
    def url(self) -> str:
        return self._server.url

    def add(self, name: str, limits: Mapping[str, int | None]) -> None:
        """A pod bound to this node; a container with None declares nothing."""
        containers = [
            {"name": container, "resources": {"limits": {EPC: str(amount)}} if amount is not None else {}}
            for container, amount in limits.items()
        ]
        pod: Json = {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {"nodeName": "guest", "containers": containers},
        }

        async def added() -> None:
            self._server.add_pod(pod)

        asyncio.run_coroutine_threadsafe(added(), self._loop).result(60)


class Daemon:
    """`nodeward node`, started as a user starts it."""

    def __init__(self, nri_socket: Path, url: str) -> None:
        _FOLDER.mkdir()
        self.record, self.killed_record = _FOLDER / "node.record", _FOLDER / "killed.record"
        self._config = _FOLDER / "nodeward.yaml"
        self._config.write_text(
            _SETTINGS.format(folder=_FOLDER, epc=EPC, resource=RESOURCE, nri=nri_socket, url=url).lstrip()
        )
        self._socket = f"{_FOLDER}/run/nodeward.sock"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Starts it and returns when it is connected to both runtime and API server."""
        with (_FOLDER / "daemon.log").open("ab") as log:
            command = [_NODEWARD, "node", "--config", str(self._config), "--record", str(self.record)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        until(self._connected, "the daemon is connected")

    def end(self, how: signal.Signals) -> int:
        """Ends it; its status as `subprocess` counts it."""
        if self._process is None:
            return 0
        self._process.send_signal(how)
        return self._process.wait(60)

    def view(self) -> NodeView | None:
        """What its socket says now; None where nobody answers."""
        try:
            return msgspec.json.decode(client.get("/v1/status", self._socket), type=NodeView)
        except client.DaemonError:
            return None

    def ask(self, *arguments: str) -> str:
        """What a user's command prints; it has to end well."""
        environ = {**os.environ, "NODEWARD_SOCKET": self._socket}
        done = subprocess.run(
            [_NODEWARD, *arguments], capture_output=True, text=True, timeout=120, env=environ, check=False
        )
        if done.returncode:
            raise AssertionError(f"nodeward {' '.join(arguments)}: status {done.returncode}: {done.stderr}")
        return done.stdout

    def log(self) -> str:
        """The end of what it logged."""
        path = _FOLDER / "daemon.log"
        return path.read_text(errors="replace")[-3000:] if path.exists() else ""

    def _connected(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            raise AssertionError(f"the daemon ended with {self._process.returncode}: {self.log()}")
        view = self.view()
        return view is not None and view.runtime.startswith("containerd") and view.api == "answers"


@dataclass(slots=True)
class Pod:
    """A pod that runs: its cgroup, its sandbox's, and its containers' by name."""

    name: str
    cgroup: Path
    sandbox: Path
    containers: dict[str, Path] = field(default_factory=dict)


@dataclass(slots=True)
class Node:
    """All of it, and the hands of kubelet and of virtual machines."""

    containerd: Containerd
    cri: Cri
    api: Api
    daemon: Daemon
    pods: dict[str, Pod] = field(default_factory=dict)

    def run_pod(self, name: str, containers: tuple[str, ...], annotations: Mapping[str, str] | None = None) -> Pod:
        """A pod and its containers by CRI, as the kubelet does; its limits are in no field of the requests."""
        config = pod_config(name, self.containerd.cgroup_parent, self.containerd.folder / "logs")
        config["annotations"] = dict(annotations or {})
        sandbox = text(self.cri.call("RunPodSandbox", {"config": config}), "pod_sandbox_id")
        cgroup = CGROUPS / self.containerd.cgroup_parent.lstrip("/") / f"pod{name}"
        pod = self.pods[name] = Pod(name, cgroup, cgroup / sandbox)
        for container in containers:
            request: Record = {
                "pod_sandbox_id": sandbox,
                "config": container_config(container, IMAGE),
                "sandbox_config": config,
            }
            created = text(self.cri.call("CreateContainer", request), "container_id")
            self.cri.call("StartContainer", {"container_id": created})
            pod.containers[container] = cgroup / created
        return pod

    def row(self, pod: str, container: str = "", view: NodeView | None = None) -> CgroupRow | None:
        """The daemon's row of a container, or of a pod."""
        shown = view or self.daemon.view()
        rows = shown.rows if shown is not None else ()
        level = "container" if container else "pod"
        return next((row for row in rows if (row.level, row.pod, row.container) == (level, pod, container)), None)

    def state(self, pod: str, container: str = "") -> str:
        """How the daemon says that it stands; empty while it says nothing."""
        row = self.row(pod, container)
        return row.state if row is not None else ""


def limit(cgroup: Path) -> str:
    """What the kernel's limit of the resource is in this cgroup; empty where there is no misc controller."""
    path = cgroup / "misc.max"
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.split()[1] for line in lines if line.split()[0] == RESOURCE), "")


def charge(cgroup: Path, amount: int) -> int:
    """Takes so much as a process of that cgroup; an open file that holds it. OSError if the kernel refuses.

    The device is opened outside, since a container's device filter would forbid it.
    """
    fd = os.open(DEVICE, os.O_WRONLY | os.O_CLOEXEC)
    (cgroup / "cgroup.procs").write_text(str(os.getpid()))
    try:
        os.write(fd, f"take {_RESOURCE_NUMBER} {amount}".encode())
    except OSError:
        os.close(fd)
        raise
    finally:
        (CGROUPS / "cgroup.procs").write_text(str(os.getpid()))
    return fd


@contextmanager
def running_node() -> Iterator[Node]:
    """The node, with a daemon that is connected."""
    _CONTAINERD_FOLDER.mkdir()
    with running_containerd(_CONTAINERD_FOLDER) as containerd, containerd.cri() as cri:
        api = Api()
        daemon = Daemon(containerd.nri_socket, api.url)
        daemon.start()
        try:
            yield Node(containerd, cri, api, daemon)
        finally:
            daemon.end(signal.SIGKILL)
