"""Kubelet's two views of pods over real sockets: its Pods API, of which every trouble is a fault and nothing else, and
PodResources, asked only where the checkpoint cannot be read, seldom, and bounded.

The doubles do what kubelet 1.37 was seen to do in tests/real/test_pods_api.py.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from nodeward.contracts import kubepod_pb2 as pods
from nodeward.contracts import podresources_pb2 as resources
from nodeward.contracts import podsapi_pb2 as pb
from nodeward.core.events import Event, KeysHeld, PodsOfKubelet
from nodeward.core.workload import PodUid
from nodeward.host.backoff import Backoff
from nodeward.host.clock import SystemClock
from nodeward.neighbours.kubelet import pod_resources, pods_api
from nodeward.neighbours.kubelet.pod_resources import PodResources
from nodeward.neighbours.kubelet.pods_api import PodsApi
from nodeward.neighbours.kubernetes.mapping import pod_spec
from nodeward.neighbours.sockets.grpc_unix import Code, GrpcClient, GrpcError, GrpcServer
from tests.component.kubernetes.support import until
from tests.patience import scaled
from tests.rigs.stories import told_in, under_way
from tests.unit.features.build import ManualClock

WITHIN_S = scaled(20.0)
TDX = "devices.kubevirt.io/tdx"


def pod(name: str, keys: int = 1, phase: str = "Running") -> bytes:
    asking = pods.Container(name="vm")
    asking.resources.limits[TDX].string = str(keys)
    meta = pods.ObjectMeta(name=name, namespace="shop", uid=f"uid-{name}")
    spec = pods.PodSpec(containers=[asking])
    return pods.Pod(metadata=meta, spec=spec, status=pods.PodStatus(phase=phase)).SerializeToString()


class Kubelet:
    def __init__(self, folder: Path) -> None:
        self.path, self.pods = folder / "pods-api.sock", list[bytes]()
        self.fault: GrpcError | None = None
        self.lists = 0
        self.hangs = False
        self.told: list[PodsOfKubelet] = []
        self.seq = self.viewed = 0
        self._news: list[asyncio.Queue[bytes]] = []
        self._server: GrpcServer | None = None
        spec = partial(pod_spec, resources={TDX: "tdx"})
        again = Backoff(0.01, 0.01, lambda: 0.5)
        self.api = PodsApi(lambda: GrpcClient(str(self.path)), spec, self.tell, lambda: self.seq, SystemClock(), again)
        self.api.newest_view = lambda: self.viewed

    def tell(self, event: Event) -> int:
        assert isinstance(event, PodsOfKubelet)
        self.told.append(event)
        self.seq += 1
        return self.seq

    async def start(self) -> None:
        self._server = GrpcServer("v1alpha1.Pods", {"ListPods": self._list}, {"WatchPods": self._watch})
        await self._server.start(str(self.path))

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop()

    def changed(self) -> None:
        for one in self._news:
            one.put_nowait(pb.WatchPodsEvent(type="MODIFIED", pod=b"whatever").SerializeToString())

    async def _list(self, _: bytes) -> bytes:
        self.lists += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.fault is not None:
            raise self.fault
        return pb.ListPodsResponse(pods=self.pods).SerializeToString()

    async def _watch(self, _: bytes) -> AsyncIterator[bytes]:
        news: asyncio.Queue[bytes] = asyncio.Queue()
        self._news.append(news)
        while True:
            yield await news.get()


@asynccontextmanager
async def beside(tmp_path: Path) -> AsyncIterator[Kubelet]:
    kubelet = Kubelet(tmp_path)
    try:
        async with asyncio.timeout(WITHIN_S), under_way(kubelet.api.run()):
            yield kubelet
    finally:
        await kubelet.stop()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods_api, "APART_S", 0.01)
    monkeypatch.setattr(pods_api, "LIST_S", 0.2)


def names(event: PodsOfKubelet) -> list[tuple[str, bool, int]]:
    return [(one.name, one.terminal, one.containers[0].declared["tdx"]) for one in event.pods]


@told_in(beside)
async def test_pods_are_told_at_first_and_when_they_change(kubelet: Kubelet) -> None:
    kubelet.pods = [pod("a"), pod("b", 2)]
    await kubelet.start()
    await until(lambda: bool(kubelet.told and kubelet.told[-1].pods and kubelet._news))
    assert names(kubelet.told[-1]) == [("a", False, 1), ("b", False, 2)]
    kubelet.pods = [pod("a", phase="Failed")]
    kubelet.changed()
    await until(lambda: len(kubelet.told[-1].pods) == 1)
    assert names(kubelet.told[-1]) == [("a", True, 1)]
    count, lists = len(kubelet.told), kubelet.lists
    kubelet.changed()
    await until(lambda: kubelet.lists > lists)
    await asyncio.sleep(0.05)
    assert len(kubelet.told) == count
    kubelet.viewed = kubelet.seq = kubelet.seq + 10
    kubelet.changed()
    await until(lambda: kubelet.told[-1].as_of >= kubelet.viewed)
    assert names(kubelet.told[-1]) == [("a", True, 1)], "told again for the checkpoint's sake"


@told_in(beside)
async def test_who_asks_has_told_a_list_that_began_after_the_question(kubelet: Kubelet) -> None:
    await kubelet.start()
    await until(lambda: bool(kubelet.told and not kubelet.told[-1].fault))
    kubelet.seq = asked = kubelet.seq + 10
    assert await kubelet.api.fetch("tdx") == ""
    assert kubelet.told[-1].as_of >= asked


@told_in(beside)
async def test_without_a_socket_it_is_a_fault_told_once_until_there_is_one(kubelet: Kubelet) -> None:
    assert await kubelet.api.fetch("tdx") != ""
    await until(lambda: bool(kubelet.told))
    await asyncio.sleep(0.1)
    assert [bool(event.fault) for event in kubelet.told] == [True]
    assert await kubelet.api.fetch("tdx") != ""
    kubelet.pods = [pod("a")]
    await kubelet.start()
    await until(lambda: not kubelet.told[-1].fault)
    assert names(kubelet.told[-1]) == [("a", False, 1)]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (Code.FAILED_PRECONDITION, "Kubelet is initializing"),
        (Code.UNIMPLEMENTED, "unknown service v1alpha1.Pods"),
        (Code.RESOURCE_EXHAUSTED, "too large"),
    ],
)
@told_in(beside)
async def test_a_refusal_is_told_in_kubelets_words_and_the_pods_are_told_again_after_it(
    kubelet: Kubelet, code: Code, text: str
) -> None:
    kubelet.pods, kubelet.fault = [pod("a")], GrpcError(code, text)
    await kubelet.start()
    await until(lambda: bool(kubelet.told and text in kubelet.told[-1].fault))
    kubelet.fault = None
    await until(lambda: bool(kubelet.told[-1].pods and kubelet._news))
    kubelet.fault = GrpcError(code, text)
    assert text in await kubelet.api.fetch("tdx")
    kubelet.changed()
    await until(lambda: text in kubelet.told[-1].fault)
    kubelet.fault = None
    await until(lambda: bool(kubelet.told[-1].pods))


@told_in(beside)
async def test_a_kubelet_that_hangs_costs_a_bounded_wait(kubelet: Kubelet) -> None:
    await kubelet.start()
    await until(lambda: bool(kubelet.told and not kubelet.told[-1].fault and kubelet._news))
    kubelet.hangs = True
    assert await kubelet.api.fetch("tdx") != ""
    kubelet.changed()
    await until(lambda: bool(kubelet.told[-1].fault))
    assert not any(event.absent for event in kubelet.told[1:]), "somebody is there, who does not answer"


@told_in(beside)
async def test_a_kubelet_that_ends_is_a_fault_and_its_return_is_heard(kubelet: Kubelet) -> None:
    kubelet.pods = [pod("a")]
    await kubelet.start()
    await until(lambda: bool(kubelet.told and kubelet.told[-1].pods and kubelet._news))
    await kubelet.stop()
    await until(lambda: bool(kubelet.told[-1].fault and kubelet.told[-1].absent))
    await kubelet.start()
    await until(lambda: bool(kubelet.told[-1].pods))
    assert not kubelet.told[-1].absent


@told_in(beside)
async def test_one_pod_that_cannot_be_read_is_a_fault_of_the_whole_list(kubelet: Kubelet) -> None:
    """Its keys would not be counted."""
    kubelet.pods = [pod("a"), b"\xff\xff"]
    await kubelet.start()
    await until(lambda: any("v1.Pod" in event.fault for event in kubelet.told))
    assert not any(event.pods for event in kubelet.told)


TORN = "the checkpoint is torn"
A = PodUid("uid-a")


def holder(name: str, *ids: str, resource: str = TDX) -> resources.PodResources:
    devices = [resources.ContainerDevices(resource_name=resource, device_ids=[one]) for one in ids]
    return resources.PodResources(
        name=name, namespace="shop", containers=[resources.ContainerResources(name="vm", devices=devices)]
    )


class Clock(ManualClock):
    def advance(self, seconds: float) -> None:
        self.ns += round(seconds * 1e9)

    async def sleep(self, seconds: float) -> None:
        """Gives others a turn; no time passes but by the test."""
        await asyncio.sleep(0)


class Lister:
    """A kubelet that says this, and what hears of it. Only the pod `a` is known."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "kubelet.sock"
        self.pods = [holder("a", "tdx1", "tdx0"), holder("unknown", "tdx2")]
        self.pods[0].containers.extend(holder("a", "x", resource="other.io/x").containers)
        self.answer: bytes | None = None
        self.fault: GrpcError | None = None
        self.heals = self.hangs = False
        self.lists, self.told, self.lost = 0, list[KeysHeld](), TORN
        self.server = GrpcServer("v1.PodResourcesLister", {"List": self.list})
        self.clock = Clock(1)
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
        said = resources.ListPodResourcesResponse(pod_resources=self.pods).SerializeToString()
        return said if self.answer is None else self.answer


@asynccontextmanager
async def listing(tmp_path: Path) -> AsyncIterator[Lister]:
    kubelet = Lister(tmp_path)
    try:
        async with asyncio.timeout(WITHIN_S):
            await kubelet.server.start(str(kubelet.path))
            yield kubelet
    finally:
        await kubelet.server.stop()


@told_in(listing)
async def test_ids_are_told_of_pods_that_are_known_beside_the_checkpoints_fault(kubelet: Lister) -> None:
    assert await kubelet.edge.fetch("tdx") == ""
    told = KeysHeld(7, {A: {TDX: ("tdx0", "tdx1")}}, fault=TORN, read_ns=1, answered=False)
    assert kubelet.told == [told], "listing a pod that nobody knows"


@pytest.mark.parametrize(
    ("pods", "told", "answered"),
    [
        pytest.param([], {}, True, id="none"),
        pytest.param([holder("unknown")], {}, True, id="one without ids"),
        pytest.param(
            [holder("a", "tdx0"), holder("unknown")], {A: {TDX: ("tdx0",)}}, True, id="one with ids that is known"
        ),
        pytest.param([holder("a", "tdx0"), holder("a", "tdx1")], {A: {TDX: ("tdx1",)}}, False, id="two of one name"),
        pytest.param([holder("unknown", "tdx0")], {}, False, id="one with ids that nobody knows"),
    ],
)
@told_in(listing)
async def test_an_answer_says_whether_all_who_have_ids_are_in_it(
    kubelet: Lister, pods: list[resources.PodResources], told: dict[PodUid, dict[str, tuple[str, ...]]], answered: bool
) -> None:
    kubelet.pods = pods
    assert await kubelet.edge.fetch("tdx") == ""
    assert kubelet.told == [KeysHeld(7, told, fault=TORN, read_ns=1, answered=answered)]


@told_in(listing)
async def test_that_kubelet_answers_no_more_is_told_once_and_only_after_an_answer(kubelet: Lister) -> None:
    kubelet.pods = []
    for fault in (None, GrpcError(Code.UNIMPLEMENTED, "gone"), GrpcError(Code.UNIMPLEMENTED, "gone"), None):
        kubelet.fault = fault
        await kubelet.edge.fetch("tdx")
        kubelet.clock.advance(10.0)
    assert [one.answered for one in kubelet.told] == [True, False, True]


@told_in(listing)
async def test_it_is_asked_every_ten_seconds_at_most_however_often_somebody_wants_it(kubelet: Lister) -> None:
    assert await kubelet.edge.fetch("tdx") == ""
    kubelet.clock.advance(9.9)
    assert "a moment ago" in await kubelet.edge.fetch("tdx")
    kubelet.clock.advance(0.1)
    assert await kubelet.edge.fetch("tdx") == ""
    assert kubelet.lists == 2


@told_in(listing)
async def test_nobody_asks_while_the_checkpoint_can_be_read(kubelet: Lister) -> None:
    kubelet.lost = ""
    async with under_way(kubelet.edge.run()):
        for _ in range(3):
            await asyncio.sleep(0)
            kubelet.clock.advance(60.0)
        assert kubelet.lists == 0
        kubelet.lost = TORN
        kubelet.clock.advance(1.0)
        await until(lambda: bool(kubelet.told))
    assert kubelet.lists == 1


@told_in(listing)
async def test_what_comes_after_the_checkpoint_was_read_again_is_not_told(kubelet: Lister) -> None:
    kubelet.heals = True
    assert await kubelet.edge.fetch("tdx") == ""
    assert kubelet.told == []


@pytest.mark.parametrize("how", ["garbage", "refuses", "hangs", "absent"])
@told_in(listing)
async def test_every_trouble_is_a_reason_and_nothing_is_told(
    kubelet: Lister, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_resources, "LIST_S", 0.1)
    kubelet.answer = b"\xff\xff" if how == "garbage" else None
    kubelet.fault = GrpcError(Code.UNIMPLEMENTED, "an older one") if how == "refuses" else None
    kubelet.hangs = how == "hangs"
    if how == "absent":
        await kubelet.server.stop()
    assert (await kubelet.edge.fetch("tdx")).startswith("kubelet's PodResources: ")
    assert kubelet.told == []
