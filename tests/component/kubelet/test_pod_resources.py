"""Kubelet's PodResources over a real socket: asked only where the checkpoint cannot be read, seldom, and bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nodeward.edges.kubelet import pod_resources
from nodeward.edges.kubelet.pod_resources import PodResources
from nodeward.model.events import Event, KeysHeld
from nodeward.model.workload import PodUid
from nodeward.proto import podresources_pb2 as pb
from nodeward.transport.grpc_unix import Code, GrpcClient, GrpcError, GrpcServer
from tests.patience import scaled
from tests.rigs.stories import told_in

WITHIN_S = scaled(20.0)
TDX = "devices.kubevirt.io/tdx"
TORN = "the checkpoint is torn"
A = PodUid("uid-a")


def pod(name: str, *ids: str, resource: str = TDX) -> pb.PodResources:
    devices = [pb.ContainerDevices(resource_name=resource, device_ids=[one]) for one in ids]
    return pb.PodResources(name=name, namespace="shop", containers=[pb.ContainerResources(name="vm", devices=devices)])


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.ns = 1

    def now_ns(self) -> int:
        return self.ns

    def wall_ns(self) -> int:
        return self.ns

    def advance(self, seconds: float) -> None:
        self.ns += round(seconds * 1e9)

    async def sleep(self, seconds: float) -> None:
        """Gives others a turn; no time passes but by the test."""
        await asyncio.sleep(0)


class Kubelet:
    """A kubelet that says this, and what hears of it. Only the pod `a` is known."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "kubelet.sock"
        self.pods = [pod("a", "tdx1", "tdx0"), pod("unknown", "tdx2")]
        self.pods[0].containers.extend(pod("a", "x", resource="other.io/x").containers)
        self.answer: bytes | None = None
        self.fault: GrpcError | None = None
        self.heals = self.hangs = False
        self.lists, self.told, self.lost = 0, list[KeysHeld](), TORN
        self.server = GrpcServer("v1.PodResourcesLister", {"List": self.list})
        self.clock = Clock()
        self.edge = PodResources(
            lambda: GrpcClient(str(self.path)),
            lambda namespace, name: A if (namespace, name) == ("shop", "a") else None,
            lambda: self.lost,
            [TDX],
            self._tell,
            lambda: 7,
            self.clock,
        )

    def _tell(self, event: Event) -> int:
        assert isinstance(event, KeysHeld)
        self.told.append(event)
        return 0

    async def list(self, _: bytes) -> bytes:
        self.lists += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.heals:
            self.lost = ""
        if self.fault is not None:
            raise self.fault
        said = pb.ListPodResourcesResponse(pod_resources=self.pods).SerializeToString()
        return said if self.answer is None else self.answer


@asynccontextmanager
async def beside(tmp_path: Path) -> AsyncIterator[Kubelet]:
    kubelet = Kubelet(tmp_path)
    try:
        async with asyncio.timeout(WITHIN_S):
            await kubelet.server.start(str(kubelet.path))
            yield kubelet
    finally:
        await kubelet.server.stop()


@told_in(beside)
async def test_ids_are_told_of_pods_that_are_known_beside_the_checkpoints_fault(kubelet: Kubelet) -> None:
    assert await kubelet.edge.fetch("tdx") == ""
    told = KeysHeld(7, {A: {TDX: ("tdx0", "tdx1")}}, fault=TORN, read_ns=1, answered=False)
    assert kubelet.told == [told], "beside a pod that nobody knows"


@pytest.mark.parametrize(
    ("pods", "told", "answered"),
    [
        pytest.param([], {}, True, id="none"),
        pytest.param([pod("unknown")], {}, True, id="one without ids"),
        pytest.param([pod("a", "tdx0"), pod("unknown")], {A: {TDX: ("tdx0",)}}, True, id="one with ids that is known"),
        pytest.param([pod("a", "tdx0"), pod("a", "tdx1")], {A: {TDX: ("tdx1",)}}, False, id="two of one name"),
        pytest.param([pod("unknown", "tdx0")], {}, False, id="one with ids that nobody knows"),
    ],
)
@told_in(beside)
async def test_an_answer_says_whether_all_who_have_ids_are_in_it(
    kubelet: Kubelet, pods: list[pb.PodResources], told: dict[PodUid, dict[str, tuple[str, ...]]], answered: bool
) -> None:
    kubelet.pods = pods
    assert await kubelet.edge.fetch("tdx") == ""
    assert kubelet.told == [KeysHeld(7, told, fault=TORN, read_ns=1, answered=answered)]


@told_in(beside)
async def test_that_kubelet_answers_no_more_is_told_once_and_only_after_an_answer(kubelet: Kubelet) -> None:
    kubelet.pods = []
    for fault in (None, GrpcError(Code.UNIMPLEMENTED, "gone"), GrpcError(Code.UNIMPLEMENTED, "gone"), None):
        kubelet.fault = fault
        await kubelet.edge.fetch("tdx")
        kubelet.clock.advance(10.0)
    assert [one.answered for one in kubelet.told] == [True, False, True]


@told_in(beside)
async def test_it_is_asked_every_ten_seconds_at_most_however_often_somebody_wants_it(kubelet: Kubelet) -> None:
    assert await kubelet.edge.fetch("tdx") == ""
    kubelet.clock.advance(9.9)
    assert "a moment ago" in await kubelet.edge.fetch("tdx")
    kubelet.clock.advance(0.1)
    assert await kubelet.edge.fetch("tdx") == ""
    assert kubelet.lists == 2


@told_in(beside)
async def test_nobody_asks_while_the_checkpoint_can_be_read(kubelet: Kubelet) -> None:
    kubelet.lost = ""
    running = asyncio.ensure_future(kubelet.edge.run())
    for _ in range(3):
        await asyncio.sleep(0)
        kubelet.clock.advance(60.0)
    assert kubelet.lists == 0
    kubelet.lost = TORN
    kubelet.clock.advance(1.0)
    while not kubelet.told:
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait((running,))
    assert kubelet.lists == 1


@told_in(beside)
async def test_what_comes_after_the_checkpoint_was_read_again_is_not_told(kubelet: Kubelet) -> None:
    kubelet.heals = True
    assert await kubelet.edge.fetch("tdx") == ""
    assert kubelet.told == []


@pytest.mark.parametrize("how", ["garbage", "refuses", "hangs", "absent"])
@told_in(beside)
async def test_every_trouble_is_a_reason_and_nothing_is_told(
    kubelet: Kubelet, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_resources, "LIST_S", 0.1)
    kubelet.answer = b"\xff\xff" if how == "garbage" else None
    kubelet.fault = GrpcError(Code.UNIMPLEMENTED, "an older one") if how == "refuses" else None
    kubelet.hangs = how == "hangs"
    if how == "absent":
        await kubelet.server.stop()
    assert (await kubelet.edge.fetch("tdx")).startswith("kubelet's PodResources: ")
    assert kubelet.told == []
