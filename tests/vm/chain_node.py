"""A node inside the guest: a real containerd with runc, the API server double and the real daemon, side by side.

containerd's folder is on a tmpfs (its overlay cannot lie on the guest's overlay). The double runs in this process, in a
thread of its own, and the kubelet's part is played by CRI calls.
"""

import asyncio
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from nodeward_sim.doubles.apiserver import ApiServer
from nodeward_sim.doubles.kube_refusals import Json
from tests.peers.containerd import IMAGE, Containerd, running_containerd
from tests.peers.cri import Cri, container_config, pod_config
from tests.peers.nriside import Record, text
from tests.vm.inside import CGROUPS, EPC, RESOURCE, Daemon, until

CONTAINERD_FOLDER: Final = Path("/dev/shm/containerd")
ANNOTATION: Final = "epc-limit.nri.io/container.app"
KEYS: Final = "example.com/tdx-keys"
"""Declared by a pod, and known to the settings, but no resource of this kernel."""
READS: Final = "/busybox cat /sys/fs/cgroup/misc.max; echo read"
"""What a container does first that tells its own limits."""
_MOUNTS: Final[Record] = {
    "mounts": [
        {"container_path": "/busybox", "host_path": shutil.which("busybox") or "/bin/busybox", "readonly": True},
        {"container_path": "/host", "host_path": str(CGROUPS), "readonly": True},
    ]
}
_SETTINGS: Final = """
limits: {{resources: {{{epc}: {resource}, {keys}: tdx}}}}
kube: {{url: "{url}"}}
metrics: {{enabled: true}}
"""


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

    def add(
        self,
        name: str,
        containers: Mapping[str, Mapping[str, str]],
        ids: Mapping[str, str] = MappingProxyType({}),
        overhead: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """A pod bound to this node, by its containers' limits; its status names the containers with `ids`. One of that
        name that is there is changed."""
        pod: Json = {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {
                "nodeName": "guest",
                "containers": [
                    {"name": container, "resources": {"limits": dict(limits)}}
                    for container, limits in containers.items()
                ],
                "overhead": dict(overhead),
            },
            "status": {
                "containerStatuses": [{"name": one, "containerID": f"containerd://{id_}"} for one, id_ in ids.items()]
            },
        }

        async def added() -> None:
            try:
                self._server.add_pod(pod)
            except KeyError:
                self._server.update_pod(pod)

        asyncio.run_coroutine_threadsafe(added(), self._loop).result(60)

    def remove(self, name: str) -> None:

        async def removed() -> None:
            self._server.delete_pod("default", name)

        asyncio.run_coroutine_threadsafe(removed(), self._loop).result(60)


@dataclass(slots=True)
class Pod:
    """A pod that runs: its cgroup, its sandbox's, and its containers' by name."""

    name: str
    cgroup: Path
    sandbox: Path
    config: Record
    """As CRI was given it."""
    containers: dict[str, Path] = field(default_factory=dict)


@dataclass(slots=True)
class Node:
    """All of it, and the hands of kubelet and of enclaves."""

    containerd: Containerd
    cri: Cri
    api: Api
    daemon: Daemon
    pods: dict[str, Pod] = field(default_factory=dict)
    memory_bytes: int = 64 << 20
    """Each container's limit of memory, 0 for none."""
    other: subprocess.Popen[str] | None = None
    """Another plugin, while one runs; it dies with the node's process."""
    parent: str = ""
    """The cgroup above those of pods; empty for the runtime's own."""

    def log(self) -> str:
        return self.daemon.log()

    def config(self, name: str) -> Record:
        """The sandbox of a pod as CRI describes it; its cgroup has the pod's uid in its name, as the kubelet's have."""
        parent = self.parent or self.containerd.cgroup_parent
        return pod_config(f"uid-{name}", parent, self.containerd.folder / "logs") | {
            "metadata": {"name": name, "uid": f"uid-{name}", "namespace": "default"}
        }

    def run_pod(
        self,
        name: str,
        containers: Sequence[str],
        annotations: Mapping[str, str] | None = None,
        handler: str = "",
        first: str = "",
    ) -> Pod:
        """A pod and its containers by CRI, as the kubelet does; its limits are in no field of the requests. What each
        container does `first`, a line of shell that sees the host's cgroups in /host, goes to its log."""
        config = self.config(name)
        config["annotations"] = dict(annotations or {})
        sandbox = text(self.cri.call("RunPodSandbox", {"config": config, "runtime_handler": handler}), "pod_sandbox_id")
        cgroup = CGROUPS / (self.parent or self.containerd.cgroup_parent).lstrip("/") / f"poduid-{name}"
        pod = self.pods[name] = Pod(name, cgroup, cgroup / sandbox, config)
        for container in containers:
            self.add_container(pod, container, first)
        return pod

    def add_container(self, pod: Pod, name: str, first: str = "", behind: bytes = b"") -> Path:
        """The cgroup of a container that is made in a pod that runs, and runs. `behind`: what its request ends with."""
        wanted = container_config(name, IMAGE, self.memory_bytes)
        if first:
            wanted |= _MOUNTS
            wanted |= {"command": ["/busybox", "sh", "-c", f"{first}; exec /pause"]}
            wanted |= {"log_path": f"{pod.name}-{name}.log"}
        request: Record = {"pod_sandbox_id": pod.sandbox.name, "config": wanted, "sandbox_config": pod.config}
        created = text(self.cri.call("CreateContainer", request, behind), "container_id")
        self.cri.call("StartContainer", {"container_id": created})
        cgroup = pod.containers[name] = pod.cgroup / created
        return cgroup

    def said(self, name: str, container: str) -> list[str]:
        """What the container has written to its log until now, line by line."""
        log = self.containerd.folder / "logs" / f"{name}-{container}.log"
        return [line.split(" ", 3)[3] for line in log.read_text().splitlines()] if log.exists() else []

    def read(self, name: str, container: str) -> list[str]:
        """What a container that does READS first has found as its own limits."""
        until(lambda: self.said(name, container)[-1:] == ["read"], f"{name}/{container} has read its limits", 30)
        return self.said(name, container)[:-1]


@contextmanager
def running_node() -> Iterator[Node]:
    CONTAINERD_FOLDER.mkdir()
    with running_containerd(CONTAINERD_FOLDER) as containerd, containerd.cri() as cri:
        api = Api()
        settings = _SETTINGS.format(epc=EPC, resource=RESOURCE, keys=KEYS, url=api.url).lstrip()
        daemon = Daemon(containerd.nri_socket, settings)
        daemon.start()
        try:
            yield Node(containerd, cri, api, daemon)
        finally:
            daemon.end(signal.SIGKILL)
