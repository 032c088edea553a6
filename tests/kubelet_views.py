"""What a kubelet tells of its pods: the double of its Pods API and its PodResources, beside the device manager's.

Promises what kubelet 1.37 does, and `tests/contract/kubelet` checks on both: the Pods API has every pod, refused ones
too, and a watch begins with all of them and a mark; PodResources has those that live, without their init containers,
and an entry for each id. Both end with kubelet.

Must not: know why a pod stands as it does; who runs the pods tells that.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from nodeward.contracts import kubepod_pb2 as kubepod
from nodeward.contracts import podresources_pb2 as resources
from nodeward.contracts import podsapi_pb2 as pods
from nodeward.neighbours.sockets.grpc_unix import GrpcServer
from nodeward_sim.doubles.kubelet import SimKubelet

PODS, RESOURCES = "pods-api/pods-api.sock", "pod-resources/kubelet.sock"
"""Below kubelet's folder."""
_TERMINAL = ("Succeeded", "Failed")


class SimViews:
    """The double, on real sockets below `folder`. `kubelet` knows who has which ids."""

    def __init__(self, folder: str, kubelet: SimKubelet) -> None:
        self._folder, self._kubelet = Path(folder), kubelet
        self._pods: dict[str, kubepod.Pod] = {}
        self._watches: list[asyncio.Queue[bytes]] = []
        self._servers: list[GrpcServer] = []

    async def start(self) -> None:
        """Begins, as after a reboot or a restart."""
        listing = GrpcServer("v1alpha1.Pods", {"ListPods": self._list}, {"WatchPods": self._watch})
        holding = GrpcServer("v1.PodResourcesLister", {"List": self._held})
        for place, server in ((PODS, listing), (RESOURCES, holding)):
            path = self._folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            await server.start(str(path))
            self._servers.append(server)

    async def stop(self) -> None:
        """Ends, and every call with it."""
        servers, self._servers = self._servers, []
        for server in servers:
            await server.stop()

    def put(self, pod: kubepod.Pod) -> None:
        """A pod comes, or stands otherwise than before."""
        kind = pods.MODIFIED if pod.metadata.uid in self._pods else pods.ADDED
        self._pods[pod.metadata.uid] = pod
        self._tell(kind, pod)

    def remove(self, uid: str) -> None:
        """A pod has gone."""
        self._tell(pods.DELETED, self._pods.pop(uid))

    def _tell(self, kind: pods.EventType, pod: kubepod.Pod) -> None:
        said = pods.WatchPodsEvent(type=kind, pod=pod.SerializeToString()).SerializeToString()
        for watch in self._watches:
            watch.put_nowait(said)

    async def _list(self, _: bytes) -> bytes:
        every = [pod.SerializeToString() for pod in self._pods.values()]
        return pods.ListPodsResponse(pods=every).SerializeToString()

    async def _watch(self, _: bytes) -> AsyncIterator[bytes]:
        news: asyncio.Queue[bytes] = asyncio.Queue()
        for pod in self._pods.values():
            first = pods.WatchPodsEvent(type=pods.ADDED, pod=pod.SerializeToString())
            news.put_nowait(first.SerializeToString())
        news.put_nowait(pods.WatchPodsEvent(type=pods.INITIAL_SYNC_COMPLETE).SerializeToString())
        self._watches.append(news)
        try:
            while True:
                yield await news.get()
        finally:
            self._watches.remove(news)

    async def _held(self, _: bytes) -> bytes:
        live = [pod for pod in self._pods.values() if pod.status.phase not in _TERMINAL]
        said = [
            resources.PodResources(
                name=pod.metadata.name,
                namespace=pod.metadata.namespace,
                containers=[self._of(pod.metadata.uid, one.name) for one in pod.spec.containers],
            )
            for pod in live
        ]
        return resources.ListPodResourcesResponse(pod_resources=said).SerializeToString()

    def _of(self, uid: str, container: str) -> resources.ContainerResources:
        had = [
            resources.ContainerDevices(resource_name=resource, device_ids=[one])
            for resource, ids in self._kubelet.had(uid, container).items()
            for one in ids
        ]
        return resources.ContainerResources(name=container, devices=had)
