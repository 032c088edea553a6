"""PodResources of a real kubelet 1.37: the ids that it names are those of its checkpoint, pod by pod."""

from __future__ import annotations

import asyncio
from pathlib import Path

from nodeward.aio.clock import SystemClock
from nodeward.edges.kubelet import pod_resources
from nodeward.model.events import Event, KeysHeld
from nodeward.model.workload import PodUid
from nodeward.transport.grpc_unix import GrpcClient
from nodeward.wire import kubelet_checkpoint
from tests.peers.daemon import until
from tests.peers.deviceplugin import running_plugin
from tests.peers.keynode import PODS, KeyNode, key_node
from tests.peers.nriside import member
from tests.told import tell

TDX = "devices.kubevirt.io/tdx"


def told_by(node: KeyNode) -> KeysHeld:
    """What the edge tells once asked; pods are known as the API server has them."""
    heard: list[KeysHeld] = []

    def hear(event: Event) -> int:
        assert isinstance(event, KeysHeld)
        heard.append(event)
        return 0

    def uid_of(namespace: str, name: str) -> PodUid | None:
        found = node.api.find(f"/api/v1/namespaces/{namespace}/pods/{name}")
        return PodUid(str(member(found, "metadata", "uid"))) if found else None

    def connect() -> GrpcClient:
        root = Path("/proc", str(node.kubelet.pid), f"root{node.kubelet.plan.folder}", "root")
        return GrpcClient(str(root / pod_resources.PLACE))

    edge = pod_resources.PodResources(connect, uid_of, lambda: "torn", [TDX], hear, lambda: 1, SystemClock())
    assert asyncio.run(edge.fetch("tdx")) == ""
    (only,) = heard
    return only


def runs(node: KeyNode, pod: str) -> None:
    """Returns when the pod does."""
    until(lambda: node.phase(pod) == "Running", f"{pod} runs")


def test_the_ids_of_each_pod_are_those_of_the_checkpoint() -> None:
    with (
        key_node() as node,
        running_plugin(node.home / "device-plugins", TDX, ["tdx0", "tdx1", "tdx2", "tdx3"]),
        running_plugin(node.home / "device-plugins", "example.com/other", ["x"], endpoint="other.sock"),
    ):
        until(lambda: node.capacity(TDX) == (4, 4), "the ids are registered")
        until(lambda: node.capacity("example.com/other") == (1, 1), "the other's id is registered")
        for pod, resource, counts in (("one", TDX, (1,)), ("two", TDX, (1, 2)), ("other", "example.com/other", (1,))):
            node.create(pod, resource, counts)
            runs(node, pod)
        found = kubelet_checkpoint.decode((node.home / kubelet_checkpoint.PLACE).read_bytes(), [TDX])
        told = told_by(node)
        assert told == KeysHeld(1, {PodUid(uid): ids for uid, ids in found.pods.items()}, fault="torn")
        assert sorted(len(ids[TDX]) for ids in told.pods.values()) == [1, 3]
        tell(f"kubelet 1.37, PodResources: {len(told.pods)} pods with ids of {TDX} as the checkpoint has them")
        assert node.api.find(f"{PODS}/one") is not None
