"""The cold-plug socket over real sockets and files, with a kubelet that a test makes say anything."""

import asyncio
import json
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nodeward.contracts import podresources_pb2 as pb
from nodeward.core.devices import ContainerNuma, Evidence, Judged, MemoryBlock, PodNuma, Told
from nodeward.core.workload import PodUid
from nodeward.features.podapi.devices import judged
from nodeward.host.clock import SystemClock
from nodeward.host.hostfs import OsFiles
from nodeward.neighbours.formats import kubelet_claims
from nodeward.neighbours.kubelet import checkpoint_file, cold_plug
from nodeward.neighbours.kubelet.cold_plug import GET, Allocations, ColdPlug, numa_of
from nodeward.neighbours.kubelet.device_files import DeviceFiles
from nodeward.neighbours.kubelet.pod_resources import LIST
from nodeward.neighbours.sockets.grpc_unix import Code, GrpcClient, GrpcError, GrpcServer
from tests.component.kubelet.node import called
from tests.component.kubernetes.support import until
from tests.patience import scaled
from tests.rigs.stories import told_in, under_way
from tests.unit.formats import checkpoints

WITHIN_S = scaled(20.0)
VF, GPU, UID, PCI = "a.b/vf", "c.d/gpu", PodUid("u-new"), "0000:3b:00.1"
UNKNOWN = pb.PodResources.FromString(pb.PodResources(name="vm", namespace="shop").SerializeToString() + b"\xf8\x07\x01")
"""With a field that this version does not know."""


def pod(*names: str, device: str = "vf0", name: str = "vm") -> pb.PodResources:
    """One with this device of a plugin, and a claim with these CDI names."""
    made = pb.PodResources()
    made.CopyFrom(UNKNOWN)
    made.name = name
    container = made.containers.add(name="app", cpu_ids=[2, 3])
    container.memory.add(memory_type="memory", size=1 << 30).topology.nodes.add(ID=1)
    container.devices.add(resource_name=VF, device_ids=[device])
    part = container.dynamic_resources.add(claim_name="gpu", claim_namespace="shop").claim_resources.add()
    part.cdi_devices.extend(pb.CDIDevice(name=one) for one in names or (f"{GPU}=g0",))
    return made


class Host:
    """A node's files below a folder, its kubelet, and the socket; `uid` is whom the daemon holds for the pod."""

    def __init__(self, folder: Path) -> None:
        self.root, self.kubelet, self.socket = folder / "host", folder / "k.sock", folder / "run" / "p.sock"
        self.pods = {"vm": pod()}
        self.fault, self.uid, self.gets = "", UID, 0
        self.has_get, self.appears_at, self.reads_hang = True, 0, False
        self.put("etc/cdi/vf.json", self.spec(VF, "vf0", "/dev/vfio/7"))
        self.put("run/cdi/gpu.yaml", self.spec(GPU, "g0", "/dev/vfio/devices/vfio3"))
        self.put(f"sys/kernel/iommu_groups/7/devices/{PCI}/x", b"")
        self.put(f"sys/bus/pci/devices/{PCI}/numa_node", b"1\n")
        self.put("sys/class/vfio-dev/vfio3/device/uevent", b"DRIVER=vfio-pci\nPCI_SLOT_NAME=0000:5e:00.0\n")
        self.holds(UID)
        self._files = DeviceFiles(OsFiles(str(self.root)), "/kubelet", "/kubelet")
        self.kept = Allocations(lambda: GrpcClient(str(self.kubelet)), self._look, self._judge)

    @staticmethod
    def spec(kind: str, name: str, path: str) -> bytes:
        edits = {"deviceNodes": [{"path": path}], "env": ["SECRET=x"]}
        return json.dumps({"kind": kind, "devices": [{"name": name, "containerEdits": edits}]}).encode()

    def put(self, path: str, data: bytes) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_bytes(data)

    def holds(self, uid: str) -> None:
        rows = [checkpoints.entry(uid, {"-1": ["vf0"]}, VF)]
        self.put(f"kubelet/{checkpoint_file.PLACE}", checkpoints.file(rows, {}))
        self.put(f"kubelet/{kubelet_claims.PLACE}", checkpoints.claims({"shop/gpu": [uid]}))

    async def _look(self, names: Collection[str]) -> Evidence:
        if self.reads_hang:
            await asyncio.Event().wait()
        return self._files.read(names)

    def _judge(self, namespace: str, name: str, told: Sequence[Told], evidence: Evidence) -> Judged:
        return judged(told, self.uid, evidence)

    async def get(self, request: bytes) -> bytes:
        self.gets += 1
        if not self.has_get:
            raise GrpcError(Code.UNIMPLEMENTED, "unknown method Get")
        name = pb.GetPodResourcesRequest.FromString(request).pod_name
        if name not in self.pods or self.gets < self.appears_at:
            raise GrpcError(Code.UNKNOWN, f"pod {name} in namespace shop not found")
        return pb.GetPodResourcesResponse(pod_resources=self.pods[name]).SerializeToString()

    async def listed(self, _: bytes) -> bytes:
        return pb.ListPodResourcesResponse(pod_resources=self.pods.values()).SerializeToString()

    async def ask(self, name: str = "vm", method: str = GET) -> bytes:
        request = pb.GetPodResourcesRequest(pod_name=name, pod_namespace="shop")
        return await called(self.socket, method, request.SerializeToString())

    async def names(self) -> list[str]:
        found = pb.GetPodResourcesResponse.FromString(await self.ask()).pod_resources
        return [f"{d.resource_name}={one}" for c in found.containers for d in c.devices for one in d.device_ids]

    async def refusal(self) -> str:
        with pytest.raises(GrpcError) as refused:
            await self.ask()
        return str(refused.value)


def listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as one:
        return one.connect_ex(str(path)) == 0


@asynccontextmanager
async def beside(tmp_path: Path) -> AsyncIterator[Host]:
    host = Host(tmp_path)
    kubelet = GrpcServer(cold_plug.SERVICE, {"Get": host.get, "List": host.listed})
    await kubelet.start(str(host.kubelet))
    try:
        async with under_way(ColdPlug(host.kept, SystemClock()).run(str(host.socket))):
            await until(lambda: listens(host.socket), "the socket")
            async with asyncio.timeout(WITHIN_S):
                yield host
    finally:
        await kubelet.stop()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RETRY_S", 0.2), ("APART_S", 0.02), ("ATTEMPT_S", 0.5)):
        monkeypatch.setattr(cold_plug, name, value)


BOTH = [f"{VF}=vf0", f"{GPU}=g0"]


@pytest.mark.parametrize("has_get", [True, False])
@told_in(beside)
async def test_devices_of_plugins_and_claims_are_told_and_all_else_is_handed_through(host: Host, has_get: bool) -> None:
    host.has_get = has_get
    assert await host.names() == BOTH
    found = pb.GetPodResourcesResponse.FromString(await host.ask()).pod_resources
    for one in (found, host.pods["vm"]):
        del one.containers[0].devices[:]
    assert found == host.pods["vm"]
    assert found.SerializeToString().endswith(b"\xf8\x07\x01")
    host.pods = {"vm": pod(), "other": pod(f"{GPU}=gone", name="other")}
    listed = pb.ListPodResourcesResponse.FromString(await host.ask(method=LIST)).pod_resources
    assert [(one.name, len(one.containers[0].devices)) for one in listed] == [("vm", 2)]


@told_in(beside)
async def test_what_is_behind_a_device_is_read_and_where_the_pod_is(host: Host) -> None:
    told, known = await host.kept.pod("shop", "vm")
    assert [(one.pci, one.numa) for one in known.devices] == [((PCI,), (1,)), (("0000:5e:00.0",), ())]
    rows = (ContainerNuma("app", (2, 3), (MemoryBlock("memory", 1 << 30, (1,)),)),)
    assert numa_of(told, known) == PodNuma((1,), rows)


@told_in(beside)
async def test_a_pod_that_is_not_known_yet_and_a_checkpoint_that_comes_late_are_waited_for(host: Host) -> None:
    host.appears_at = 3
    host.holds("u-old")
    asking = asyncio.ensure_future(host.names())
    await until(lambda: host.gets >= 4, "four reads")
    host.holds(UID)
    assert await asking == BOTH


def put(**changed: object) -> Callable[[Host], None]:
    def done(host: Host) -> None:
        for name, value in changed.items():
            setattr(host, name, value)

    return done


NOT_SURE = Code.FAILED_PRECONDITION
TROUBLE: Mapping[str, tuple[Callable[[Host], None], Code, str]] = {
    "reused": (lambda host: host.holds("u-old"), NOT_SURE, "of pod UID u-old by kubelet's checkpoint of devices"),
    "known late": (put(uid=PodUid("u-old")), NOT_SURE, "the pod of this name has UID u-old"),
    "two specs": (
        lambda host: host.put("etc/cdi/again.json", host.spec(VF, "vf0", "/dev/vfio/9")),
        NOT_SURE,
        "/etc/cdi/again.json has this device too",
    ),
    "malformed": (put(pods={"vm": pod("gpu-0")}), NOT_SURE, "'gpu-0', which is no VENDOR/CLASS=DEVICE"),
    "many": (put(pods={"vm": pod(*(f"{GPU}=g{n}" for n in range(20_000)))}), NOT_SURE, "more than 512 devices"),
    "torn": (
        lambda host: host.put("etc/cdi/vf.json", b'{"kind": "a.b/vf", "devices": ['),
        NOT_SURE,
        "/etc/cdi/vf.json: ",
    ),
    "no claims": (
        lambda host: os.unlink(host.root / "kubelet" / kubelet_claims.PLACE),
        NOT_SURE,
        "dra_manager_state: No such file",
    ),
    "hangs": (put(reads_hang=True), Code.DEADLINE_EXCEEDED, "were not read within"),
    "another": (put(pods={"vm": pod(name="other")}), Code.INTERNAL, "another pod"),
}


@pytest.mark.parametrize(("trouble", "code", "why"), TROUBLE.values(), ids=TROUBLE)
@told_in(beside)
async def test_a_source_that_is_wrong_ends_the_call_with_the_reason(
    host: Host, trouble: Callable[[Host], None], code: Code, why: str
) -> None:
    trouble(host)
    said = await host.refusal()
    assert why in said
    assert said.endswith(f"({code.value})")


@told_in(beside)
async def test_a_list_is_bounded_too(host: Host) -> None:
    host.reads_hang = True
    with pytest.raises(GrpcError, match="were not read within") as refused:
        await host.ask(method=LIST)
    assert refused.value.code is Code.DEADLINE_EXCEEDED


async def test_the_sockets_file_is_roots_alone_outlives_the_server_and_is_replaced(tmp_path: Path) -> None:
    for _ in range(2):
        async with beside(tmp_path) as host:
            assert stat.S_IMODE(host.socket.stat().st_mode) == 0o600
            assert await host.names() == BOTH
        assert (tmp_path / "run" / "p.sock").is_socket()
        assert os.listdir(tmp_path / "run") == ["p.sock"]
