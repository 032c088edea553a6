"""Devices of pods in a running daemon: the cold-plug socket and the Pod API's sections, by one kubelet's word."""

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.app.node import pod_devices
from nodeward.app.node.assemble import ensure_folder
from nodeward.cli import client
from nodeward.edges.kubelet import cold_plug, pod_resources
from nodeward.model.settings import ColdPlugSection, PodapiSection, Settings
from nodeward.proto import podresources_pb2 as pb
from nodeward.transport.grpc_unix import GrpcClient, GrpcError, GrpcServer
from nodeward.wire import kubelet_checkpoint
from tests.component.daemon.rig import WITHIN_S, Rig, rig
from tests.unit.wire import checkpoints

VF, KUBELET = "a.b/vf", "/kubelet"
SPEC = {"kind": VF, "devices": [{"name": "vf0", "containerEdits": {"deviceNodes": [{"path": "/dev/vfio/7"}]}}]}


def put(node: Rig, path: str, data: bytes) -> None:
    ensure_folder(node.files, path.rpartition("/")[0])
    node.files.put(path, data)


def holds(node: Rig, uid: str) -> None:
    """Kubelet's checkpoint says that this pod has the device."""
    rows = [checkpoints.entry(uid, ["vf0"], VF)]
    put(node, f"{KUBELET}/{kubelet_checkpoint.PLACE}", checkpoints.file(rows, {}))


async def devices(folder: Path, many: int) -> dict[str, object]:
    """The Pod API's section, asked for by so many at once."""
    asked = (asyncio.to_thread(client.get, "/v1/pods/default/pod-a", f"{folder}/run/podapi.sock") for _ in range(many))
    first, *others = [json.loads(body)["devices"] for body in await asyncio.gather(*asked)]
    assert all(one == first for one in others)
    found: dict[str, object] = first
    return found


def test_kubelet_is_asked_once_for_many_and_a_reused_name_shows_no_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Given a pod with a device, when many ask the Pod API at once, then kubelet is asked once; when the device is
    another UID's, then neither the Pod API nor the socket has it, and both say why."""
    monkeypatch.setattr(cold_plug, "RETRY_S", 0.1)
    container = pb.ContainerResources(name="app", devices=[pb.ContainerDevices(resource_name=VF, device_ids=["vf0"])])
    pod, lists = pb.PodResources(name="pod-a", namespace="default", containers=[container]), 0

    async def get(_: bytes) -> bytes:
        return pb.GetPodResourcesResponse(pod_resources=pod).SerializeToString()

    async def listed(_: bytes) -> bytes:
        nonlocal lists
        lists += 1
        return pb.ListPodResourcesResponse(pod_resources=[pod]).SerializeToString()

    def served(settings: Settings) -> Settings:
        ledger = replace(settings.ledger, kubelet_dir=KUBELET, kubelet_root=str(tmp_path))
        api = PodapiSection(True, uids=(os.getuid(),))
        return replace(settings, podapi=api, cold_plug=ColdPlugSection(True), ledger=ledger)

    async def main() -> None:
        kubelet = GrpcServer(cold_plug.SERVICE, {"Get": get, "List": listed})
        place = tmp_path / pod_resources.PLACE
        place.parent.mkdir()
        await kubelet.start(str(place))
        async with rig(tmp_path, change=served) as node, asyncio.timeout(WITHIN_S):
            put(node, "/etc/cdi/vf.json", json.dumps(SPEC).encode())
            holds(node, "a")
            socket = tmp_path / "run" / "pod-resources.sock"
            while not socket.exists() or not (tmp_path / "run" / "podapi.sock").exists():
                await asyncio.sleep(0.02)
            rows = (await devices(tmp_path, 30))["value"]
            assert isinstance(rows, list)
            shown = [(one["kind"], one["name"], one["paths"]) for one in rows]
            assert shown == [("device-plugin", f"{VF}=vf0", ["/dev/vfio/7"])]
            assert lists == 1
            monkeypatch.setattr(pod_devices, "FRESH_S", 0.0)
            request = pb.GetPodResourcesRequest(pod_name="pod-a", pod_namespace="default").SerializeToString()
            asking = GrpcClient(str(socket))
            assert pb.GetPodResourcesResponse.FromString(await asking.call(cold_plug.GET, request, WITHIN_S))
            holds(node, "another")
            with pytest.raises(GrpcError, match="of pod UID another"):
                await asking.call(cold_plug.GET, request, WITHIN_S)
            await asking.close()
            said = await devices(tmp_path, 1)
            assert (said["value"], "of pod UID another" in str(said["why"])) == (None, True)
        await kubelet.stop()

    asyncio.run(main())
    assert "cold_plug=no-api" in caplog.text, "these settings have no API server: the pod is put in"
