"""The runtime's end of NRI: our double, containerd's own pkg/adaptation in three releases, and containerd itself.

All are driven by the same few verbs, in the words in which the kubelet asks: a pod, a container, start, update, stop,
remove. What containerd does around the adaptation (which calls it makes, and in which order) is done here for the
adaptation alone.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from nodeward_sim.doubles.runtime import SimContainer, SimPod, SimRuntime
from nodeward_sim.doubles.runtime_plugins import (
    NRI_0_8,
    NRI_0_11,
    NRI_0_12,
    AdaptationSettings,
    NriGeneration,
    RuntimeRefusalError,
)
from tests.contract.nri.containerd_side import ContainerdSide, containerd_side
from tests.patience import scaled
from tests.peers.find import require
from tests.peers.nriside import RELEASES, Json, NriSide, Record, member, nriside, text

GENERATIONS: Mapping[str, NriGeneration] = {"0.8": NRI_0_8, "0.11": NRI_0_11, "0.12": NRI_0_12}
SIDES = (
    *(f"{kind}-{release}" for release in RELEASES for kind in ("double", "nri")),
    "containerd-0.8",
    "containerd-0.12",
)


class DoubleSide:
    """The double; the container's verbs are the runtime double's own. On every side `listen` begins to accept plugins,
    `restart` drops all of them and keeps pods and containers, `connected` returns when the plugin (`10-nodeward`) is
    called from now on, and `unified` is what plugins made of a container's unified resources."""

    cgroup_root = ""
    """What comes before /kubepods in the cgroup paths that plugins are told."""

    def __init__(self, socket: Path, release: str) -> None:
        self.socket, self.release = socket, release
        self._settings = AdaptationSettings(generation=GENERATIONS[release], chunk=100)
        self._runtime = SimRuntime(socket, settings=self._settings)
        self.run_pod = self._runtime.run_pod
        self.create_container = self._runtime.create_container
        self.start = self._runtime.start
        self.update_container = self._runtime.update_container
        self.stop = self._runtime.stop
        self.remove_container = self._runtime.remove_container
        self.stop_pod = self._runtime.stop_pod
        self.remove_pod = self._runtime.remove_pod
        self.unified = self._runtime.unified

    async def listen(self, request_timeout_s: float = scaled(2.0)) -> None:
        generation = GENERATIONS[self.release]
        settings = AdaptationSettings(generation=generation, chunk=100, request_timeout_s=request_timeout_s)
        await self._runtime.restart(settings)

    async def restart(self) -> None:
        await self._runtime.restart()

    async def connected(self, plugin: str) -> None:
        adaptation = self._runtime.nri
        await adaptation.wait_for_plugins(1 + len([name for name in await self.plugins() if name != plugin]))

    async def plugins(self) -> list[str]:
        return [plugin.full_name for plugin in self._runtime.nri.plugins]

    async def close(self) -> None:
        await self._runtime.close()


@dataclass(slots=True)
class _Held:
    pod_id: str
    message: Record
    unified: dict[str, str]


@dataclass(slots=True)
class NriAdaptationSide:
    """containerd's pkg/adaptation, with the order of calls that containerd makes."""

    release: str
    side: NriSide
    cgroup_root: str = ""
    _pods: dict[str, Record] = field(default_factory=dict)
    _containers: dict[str, _Held] = field(default_factory=dict)
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _timeout_ms: int = 2000
    _owed: dict[str, str] = field(default_factory=dict)
    """What plugins were told of each pod and container; of what is not in here, containerd tells no end."""

    @property
    def socket(self) -> Path:
        return self.side.socket

    async def listen(self, request_timeout_s: float = scaled(2.0)) -> None:
        self._timeout_ms = int(request_timeout_s * 1000)
        await self._show()
        await self._do("listen", timeout_ms=self._timeout_ms)

    async def restart(self) -> None:
        self._owed.clear()
        await self.side.end()
        await self.side.start()
        await self.listen(self._timeout_ms / 1000)

    async def connected(self, plugin: str) -> None:
        await self.side.has(plugin)
        for told in self.side.events:
            updates = told.get("updates") if told.get("event") == "synchronized" else None
            self._update(updates if isinstance(updates, list) else [])

    async def plugins(self) -> list[str]:
        return await self.side.plugins()

    async def run_pod(self, pod: SimPod) -> str:
        pod_id = f"{next(self._ids):064x}"
        annotations: Record = dict(pod.annotations)
        labels: Record = dict(pod.labels)
        self._pods[pod_id] = {
            "id": pod_id,
            "name": pod.name,
            "uid": pod.uid,
            "namespace": pod.namespace,
            "annotations": annotations,
            "labels": labels,
            "linux": {"cgroupParent": pod.cgroup_parent or f"/kubepods/pod{pod.uid}"},
        }
        await self._do("run_pod", pod=self._pods[pod_id])
        self._owed[pod_id] = "started"
        return pod_id

    async def create_container(self, pod_id: str, wanted: SimContainer) -> str:
        container_id = f"{next(self._ids):064x}"
        annotations: Record = dict(wanted.annotations)
        unified: Record = dict(wanted.unified)
        parent = str(member(self._pods[pod_id], "linux", "cgroupParent"))
        base = parent.rpartition("/")[2]
        cgroup = f"{base}:cri-containerd:{container_id}" if base.endswith(".slice") else f"{parent}/{container_id}"
        message: Record = {
            "id": container_id,
            "podSandboxId": pod_id,
            "name": wanted.name,
            "state": "CONTAINER_CREATED",
            "args": list(wanted.args),
            "env": list(wanted.env),
            "annotations": annotations,
            "linux": {"cgroupsPath": cgroup, "resources": {"unified": unified}},
        }
        held = _Held(pod_id, message, dict(wanted.unified))
        self._owed[container_id] = "started"
        answer = await self._do("create", pod=self._pods[pod_id], container=message)
        held.unified |= _strings(member(answer, "adjust", "linux", "resources", "unified"))
        self._containers[container_id] = held
        await self._container("post_create", container_id)
        return container_id

    async def start(self, container_id: str) -> None:
        await self._container("start", container_id)
        self._containers[container_id].message["state"] = "CONTAINER_RUNNING"
        await self._container("post_start", container_id)

    async def update_container(self, container_id: str) -> None:
        answer = await self._container("update", container_id)
        updates = answer.get("updates")
        self._update(updates if isinstance(updates, list) else [])
        await self._container("post_update", container_id)

    async def stop(self, container_id: str) -> None:
        self._containers[container_id].message["state"] = "CONTAINER_STOPPED"
        if self._owed.get(container_id) == "started":
            await self._container("stop", container_id)
            self._owed[container_id] = "stopped"

    async def remove_container(self, container_id: str) -> None:
        await self.stop(container_id)
        if self._owed.pop(container_id, ""):
            await self._container("remove", container_id)
        del self._containers[container_id]

    async def stop_pod(self, pod_id: str) -> None:
        for container_id in [key for key, held in self._containers.items() if held.pod_id == pod_id]:
            await self.stop(container_id)
        if self._owed.get(pod_id) == "started":
            await self._do("stop_pod", pod=self._pods[pod_id])
            self._owed[pod_id] = "stopped"

    async def remove_pod(self, pod_id: str) -> None:
        await self.stop_pod(pod_id)
        for container_id in [key for key, held in self._containers.items() if held.pod_id == pod_id]:
            await self.remove_container(container_id)
        pod = self._pods.pop(pod_id)
        if self._owed.pop(pod_id, ""):
            await self._do("remove_pod", pod=pod)

    def unified(self, container_id: str) -> Mapping[str, str]:
        return dict(self._containers[container_id].unified)

    def _update(self, updates: list[Json]) -> None:
        for update in updates:
            if isinstance(update, dict) and (held := self._containers.get(text(update, "containerId"))) is not None:
                held.unified |= _strings(member(update, "linux", "resources", "unified"))

    async def _show(self) -> None:
        alive = [held.message for held in self._containers.values() if held.message["state"] != "CONTAINER_STOPPED"]
        self._owed |= {text(message, "id"): "started" for message in alive}
        await self._do("world", all_pods=list(self._pods.values()), all_containers=[*alive])

    async def _container(self, op: str, container_id: str) -> Record:
        held = self._containers[container_id]
        return await self._do(op, pod=self._pods[held.pod_id], container=held.message)

    async def _do(self, op: str, **values: Json) -> Record:
        answer = await self.side.command(op, **values)
        error = text(answer, "error")
        # Before the first listen nobody is called; the pod exists all the same.
        if error and not error.endswith("not listening"):
            raise RuntimeRefusalError(error)
        return answer


RuntimeSide = DoubleSide | NriAdaptationSide | ContainerdSide


def _strings(value: Json) -> dict[str, str]:
    return {key: str(each) for key, each in value.items()} if isinstance(value, dict) else {}


def environment_of(size_bytes: int) -> tuple[str, ...]:
    """Environment of about this size, as pods in a namespace full of services have it."""
    filler = base64.b64encode(bytes(600)).decode()
    return tuple(f"SERVICE_{number}={filler}" for number in range(size_bytes // len(filler)))


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[RuntimeSide]:
    what, _, release = kind.partition("-")
    socket = folder / "nri.sock"
    if what == "double":
        double = DoubleSide(socket, release)
        try:
            yield double
        finally:
            await double.close()
        return
    if what == "containerd":
        async with containerd_side(release, folder) as containerd:
            yield containerd
        return
    async with nriside(require(f"nriside-{release}"), socket) as side:
        yield NriAdaptationSide(release, side)
