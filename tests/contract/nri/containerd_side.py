"""containerd itself as a runtime's end of NRI: the same verbs as CRI calls.

Its plugins are known from its log, since CRI does not tell of them. What plugins made of a container is read from its
OCI spec; containers with unified resources are not started here, since runc refuses those on a host with cgroup v1.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from nodeward_sim.doubles.runtime import SimContainer, SimPod
from nodeward_sim.doubles.runtime_plugins import RuntimeRefusalError
from tests.patience import scaled
from tests.peers.containerd import IMAGE, NEWEST, OLD, PLAIN, Containerd, NriOptions, running_containerd
from tests.peers.cri import Cri, pod_config
from tests.peers.nriside import Json, Record, member, text

WITHIN_S = scaled(15.0)
_NEWS = re.compile(
    r'plugin \\"(?P<came>[^"\\]+)\\" connected and synchronized'
    r'|connection to plugin \\"(?P<left>[^"\\]+)\\" closed'
    r"|(?P<start>starting containerd)"
)


@dataclass(slots=True)
class ContainerdSide:
    release: str
    daemon: Containerd
    cri: Cri
    _pods: dict[str, Record] = field(default_factory=dict)

    @property
    def socket(self) -> Path:
        return self.daemon.nri_socket

    @property
    def cgroup_root(self) -> str:
        return self.daemon.cgroup_parent

    async def listen(self, request_timeout_s: float = 2.0) -> None:
        """containerd listens always; no plugin has come yet."""
        if request_timeout_s != 2.0:
            self.daemon.configure(NriOptions(request_timeout_s=request_timeout_s))
            await self.restart()

    async def restart(self) -> None:
        await asyncio.to_thread(self.daemon.restart)

    async def connected(self, plugin: str) -> None:
        async with asyncio.timeout(WITHIN_S):
            while plugin not in await self.plugins():
                await asyncio.sleep(0.01)

    async def plugins(self) -> list[str]:
        called: dict[str, None] = {}
        for news in _NEWS.finditer((self.daemon.folder / "containerd.log").read_text(errors="replace")):
            if news["start"]:
                called.clear()
            elif news["came"]:
                called[news["came"]] = None
            else:
                called.pop(news["left"], None)
        return sorted(called)

    async def run_pod(self, pod: SimPod) -> str:
        config = pod_config(pod.name, self.cgroup_root, self.daemon.folder / "logs")
        linux = config["linux"]
        assert isinstance(linux, dict)
        linux["cgroup_parent"] = f"{self.cgroup_root}/kubepods/pod{pod.uid}"
        config |= {
            "metadata": {"name": pod.name, "uid": pod.uid, "namespace": pod.namespace},
            "annotations": dict(pod.annotations),
            "labels": dict(pod.labels),
        }
        pod_id = text(await self._call("RunPodSandbox", config=config), "pod_sandbox_id")
        # Only containers get another parent: they are made and not run, for which a slice would need systemd.
        self._pods[pod_id] = {
            **config,
            "linux": {**linux, "cgroup_parent": pod.cgroup_parent or linux["cgroup_parent"]},
        }
        return pod_id

    async def create_container(self, pod_id: str, wanted: SimContainer) -> str:
        config: Record = {
            "metadata": {"name": wanted.name},
            "image": {"image": IMAGE},
            "command": ["/pause", *wanted.args],
            "envs": [dict(zip(("key", "value"), each.split("=", 1), strict=True)) for each in wanted.env],
            "annotations": dict(wanted.annotations),
            "linux": {"resources": {"unified": dict(wanted.unified)}},
        }
        made = await self._call(
            "CreateContainer", pod_sandbox_id=pod_id, config=config, sandbox_config=self._pods[pod_id]
        )
        return text(made, "container_id")

    async def start(self, container_id: str) -> None:
        await self._call("StartContainer", container_id=container_id)

    async def update_container(self, container_id: str) -> None:
        await self._call("UpdateContainerResources", container_id=container_id, linux={"cpu_shares": 20})

    async def stop(self, container_id: str) -> None:
        await self._call("StopContainer", container_id=container_id)

    async def remove_container(self, container_id: str) -> None:
        await self._call("RemoveContainer", container_id=container_id)

    async def stop_pod(self, pod_id: str) -> None:
        await self._call("StopPodSandbox", pod_sandbox_id=pod_id)

    async def remove_pod(self, pod_id: str) -> None:
        await self._call("RemovePodSandbox", pod_sandbox_id=pod_id)

    def unified(self, container_id: str) -> Mapping[str, str]:
        told: Json = json.loads(self.daemon.ctr("containers", "info", container_id).stdout)
        assert isinstance(told, dict)
        found = member(told, "Spec", "linux", "resources", "unified")
        return {key: str(value) for key, value in found.items()} if isinstance(found, dict) else {}

    async def _call(self, method: str, **request: Json) -> Record:
        try:
            return await asyncio.to_thread(self.cri.call, method, request)
        except grpc.RpcError as error:
            raise RuntimeRefusalError(str(error)) from error


@asynccontextmanager
async def containerd_side(release: str, folder: Path) -> AsyncIterator[ContainerdSide]:
    carries = OLD if release == "0.8" else NEWEST
    with running_containerd(folder, PLAIN, carries) as daemon, daemon.cri() as cri:
        yield ContainerdSide(release, daemon, cri)
