"""Kubelet's list of pods over a real socket: what is told when, and that every trouble is a fault and nothing else.

The double does what kubelet 1.37 was seen to do in tests/real/test_pods_api.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from nodeward.aio.backoff import Backoff
from nodeward.aio.clock import SystemClock
from nodeward.edges.kube.mapping import pod_spec
from nodeward.edges.kubelet import pods_api
from nodeward.edges.kubelet.pods_api import PodsApi
from nodeward.model.events import Event, PodsOfKubelet
from nodeward.proto import kubepod_pb2 as pods
from nodeward.proto import podsapi_pb2 as pb
from nodeward.transport.grpc_unix import Code, GrpcClient, GrpcError, GrpcServer
from tests.patience import scaled
from tests.rigs.stories import told_in

WITHIN_S = scaled(20.0)
TDX = "devices.kubevirt.io/tdx"


def pod(name: str, keys: int = 1, phase: str = "Running") -> bytes:
    asking = pods.Container(name="vm")
    asking.resources.limits[TDX].string = str(keys)
    meta = pods.ObjectMeta(name=name, namespace="shop", uid=f"uid-{name}")
    spec = pods.PodSpec(containers=[asking])
    return pods.Pod(metadata=meta, spec=spec, status=pods.PodStatus(phase=phase)).SerializeToString()


class Kubelet:
    """A kubelet that has these pods, and what hears of it."""

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

    async def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await asyncio.sleep(0.01)

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
    running = asyncio.ensure_future(kubelet.api.run())
    try:
        async with asyncio.timeout(WITHIN_S):
            yield kubelet
    finally:
        running.cancel()
        await asyncio.wait((running,))
        await kubelet.stop()
    assert running.cancelled()


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
    await kubelet.until(lambda: bool(kubelet.told and kubelet.told[-1].pods and kubelet._news))
    assert names(kubelet.told[-1]) == [("a", False, 1), ("b", False, 2)]
    kubelet.pods = [pod("a", phase="Failed")]
    kubelet.changed()
    await kubelet.until(lambda: len(kubelet.told[-1].pods) == 1)
    assert names(kubelet.told[-1]) == [("a", True, 1)]
    count, lists = len(kubelet.told), kubelet.lists
    kubelet.changed()
    await kubelet.until(lambda: kubelet.lists > lists)
    await asyncio.sleep(0.05)
    assert len(kubelet.told) == count
    kubelet.viewed = kubelet.seq = kubelet.seq + 10
    kubelet.changed()
    await kubelet.until(lambda: kubelet.told[-1].as_of >= kubelet.viewed)
    assert names(kubelet.told[-1]) == [("a", True, 1)], "told again for the checkpoint's sake"


@told_in(beside)
async def test_who_asks_has_told_a_list_that_began_after_the_question(kubelet: Kubelet) -> None:
    await kubelet.start()
    await kubelet.until(lambda: bool(kubelet.told and not kubelet.told[-1].fault))
    kubelet.seq = asked = kubelet.seq + 10
    assert await kubelet.api.fetch("tdx") == ""
    assert kubelet.told[-1].as_of >= asked


@told_in(beside)
async def test_without_a_socket_it_is_a_fault_told_once_until_there_is_one(kubelet: Kubelet) -> None:
    assert await kubelet.api.fetch("tdx") != ""
    await kubelet.until(lambda: bool(kubelet.told))
    await asyncio.sleep(0.1)
    assert [bool(event.fault) for event in kubelet.told] == [True]
    assert await kubelet.api.fetch("tdx") != ""
    kubelet.pods = [pod("a")]
    await kubelet.start()
    await kubelet.until(lambda: not kubelet.told[-1].fault)
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
    await kubelet.until(lambda: bool(kubelet.told and text in kubelet.told[-1].fault))
    kubelet.fault = None
    await kubelet.until(lambda: bool(kubelet.told[-1].pods and kubelet._news))
    kubelet.fault = GrpcError(code, text)
    assert text in await kubelet.api.fetch("tdx")
    kubelet.changed()
    await kubelet.until(lambda: text in kubelet.told[-1].fault)
    kubelet.fault = None
    await kubelet.until(lambda: bool(kubelet.told[-1].pods))


@told_in(beside)
async def test_a_kubelet_that_hangs_costs_a_bounded_wait(kubelet: Kubelet) -> None:
    await kubelet.start()
    await kubelet.until(lambda: bool(kubelet.told and not kubelet.told[-1].fault and kubelet._news))
    kubelet.hangs = True
    assert await kubelet.api.fetch("tdx") != ""
    kubelet.changed()
    await kubelet.until(lambda: bool(kubelet.told[-1].fault))
    assert not any(event.absent for event in kubelet.told[1:]), "somebody is there, who does not answer"


@told_in(beside)
async def test_a_kubelet_that_ends_is_a_fault_and_its_return_is_heard(kubelet: Kubelet) -> None:
    kubelet.pods = [pod("a")]
    await kubelet.start()
    await kubelet.until(lambda: bool(kubelet.told and kubelet.told[-1].pods and kubelet._news))
    await kubelet.stop()
    await kubelet.until(lambda: bool(kubelet.told[-1].fault and kubelet.told[-1].absent))
    await kubelet.start()
    await kubelet.until(lambda: bool(kubelet.told[-1].pods))
    assert not kubelet.told[-1].absent


@told_in(beside)
async def test_one_pod_that_cannot_be_read_is_a_fault_of_the_whole_list(kubelet: Kubelet) -> None:
    """Its keys would not be counted."""
    kubelet.pods = [pod("a"), b"\xff\xff"]
    await kubelet.start()
    await kubelet.until(lambda: any("v1.Pod" in event.fault for event in kubelet.told))
    assert not any(event.pods for event in kubelet.told)
