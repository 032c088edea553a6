"""The ends of kubelet's contract: the doubles, and a real kubelet joined to a real API server."""

import asyncio
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from nodeward.contracts import kubepod_pb2 as kubepod
from nodeward.host.clock import SystemClock
from nodeward.host.hostfs import OsFiles
from nodeward.neighbours.kubelet import checkpoint_file
from nodeward_sim.doubles.kubelet import AdmissionError, Asks, SimKubelet
from tests.kubelet_views import SimViews
from tests.peers.daemon import WITHIN_S, until
from tests.peers.deviceplugin import DevicePlugin, running_plugin
from tests.peers.keynode import KeyNode, key_node

SIDES = ("double", "real")
RETRY_S = 0.2
_T = TypeVar("_T")


class Looped:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def do(self, what: Coroutine[object, object, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(what, self.loop).result(WITHIN_S)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(WITHIN_S)
        self.loop.close()


class DoubleSide(Looped):
    """The double, and who runs its pods. On either side `has` returns when kubelet and the node's
    status have that capacity and that much allocatable, `failed` and `waits` are empty while a pod has not failed and
    does not wait, and `held` is what kubelet's checkpoint says."""

    def __init__(self, home: Path) -> None:
        self.home = self.root = home
        self._kubelet = SimKubelet(str(home), OsFiles(), SystemClock())
        self._views = SimViews(str(home), self._kubelet)
        super().__init__()
        self._pods: dict[str, asyncio.Task[None]] = {}
        self._made: dict[str, kubepod.Pod] = {}
        self._said: dict[str, tuple[str, str]] = {}
        self._init_ended: dict[str, asyncio.Event] = {}
        self.do(self._kubelet.start())
        self.do(self._views.start())

    def uid(self, pod: str) -> str:
        return f"uid-{pod}"

    def capacity(self, resource: str) -> tuple[int, int] | None:
        async def asked() -> tuple[int, int] | None:
            return self._kubelet.capacity(resource)

        return self.do(asked())

    def has(self, resource: str, capacity: tuple[int, int]) -> None:
        until(lambda: self.capacity(resource) == capacity, f"{capacity} of {resource}")

    def phase(self, pod: str) -> str:
        return self._said.get(pod, ("", ""))[0]

    def failed(self, pod: str) -> str:
        phase, words = self._said.get(pod, ("", ""))
        return words if phase == "Failed" else ""

    def waits(self, pod: str) -> str:
        phase, words = self._said.get(pod, ("", ""))
        return words if phase == "Pending" else ""

    def held(self, pod: str, resource: str) -> tuple[str, ...]:
        found = checkpoint_file.decode((self.home / checkpoint_file.PLACE).read_bytes(), [resource])
        return found.pods.get(self.uid(pod), {}).get(resource, ())

    def create(self, pod: str, resource: str, counts: Sequence[int] = (1,), init: Sequence[int] = ()) -> None:
        async def made() -> None:
            self._init_ended[pod] = asyncio.Event()
            self._made[pod] = _manifest(pod, self.uid(pod), resource, counts, init)
            self._says(pod, "Pending")
            self._pods[pod] = asyncio.create_task(self._live(pod, resource, counts, init))

        self.do(made())

    def end_init(self, pod: str) -> None:
        self.loop.call_soon_threadsafe(self._init_ended[pod].set)

    def delete(self, pod: str) -> None:
        async def ended() -> None:
            task = self._pods.pop(pod)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._kubelet.end(self.uid(pod))
            self._said.pop(pod)
            del self._made[pod]
            self._views.remove(self.uid(pod))

        self.do(ended())

    def restart(self) -> None:
        for each in (self._kubelet.kill, self._views.stop, self._kubelet.start, self._views.start):
            self.do(each())

    def close(self) -> None:
        for pod in list(self._pods):
            self.delete(pod)
        self.do(self._views.stop())
        self.do(self._kubelet.stop())
        super().close()

    def _says(self, pod: str, phase: str, words: str = "") -> None:
        self._said[pod] = (phase, words)
        self._made[pod].status.phase = phase
        self._views.put(self._made[pod])

    async def _live(self, pod: str, resource: str, counts: Sequence[int], init: Sequence[int]) -> None:
        first = [Asks(f"init{number}", count, init=True) for number, count in enumerate(init)]
        apps = [Asks(f"app{number}", count) for number, count in enumerate(counts)]
        try:
            await self._kubelet.admit(self.uid(pod), resource, [*first, *apps])
        except AdmissionError as error:
            self._says(pod, "Failed", f"UnexpectedAdmissionError: Pod was rejected: {error}")
            return
        for one in first:
            await self._start(pod, one)
            await self._init_ended[pod].wait()
        for one in apps:
            await self._start(pod, one)
        self._says(pod, "Running")

    async def _start(self, pod: str, one: Asks) -> None:
        while why := await self._kubelet.start_container(self.uid(pod), one.name):
            self._says(pod, "Pending", why)
            await asyncio.sleep(RETRY_S)


Side = DoubleSide | KeyNode


class Cases(dict[str, Callable[[_T], None]]):
    def __call__(self, played: Callable[[_T], None]) -> Callable[[_T], None]:
        self[played.__name__.replace("_", "-")] = played
        return played


@dataclass(slots=True)
class Node:
    side: Side
    resource: str
    pods: list[str] = field(default_factory=list)

    @property
    def sockets(self) -> Path:
        return self.side.home / "device-plugins"

    @contextmanager
    def plugin(
        self, ids: Sequence[str], starts: bool = False, likes: bool = False, endpoint: str = "test-plugin.sock"
    ) -> Iterator[DevicePlugin]:
        with running_plugin(self.sockets, self.resource, ids, starts=starts, likes=likes, endpoint=endpoint) as plugin:
            self.has(len(ids), len(ids))
            yield plugin

    def has(self, capacity: int, allocatable: int) -> None:
        self.side.has(self.resource, (capacity, allocatable))

    def create(self, pod: str, counts: Sequence[int] = (1,), init: Sequence[int] = ()) -> None:
        self.pods.append(pod)
        self.side.create(pod, self.resource, counts, init)

    def run(self, pod: str, counts: Sequence[int] = (1,)) -> None:
        self.create(pod, counts)
        self.runs(pod)

    def runs(self, pod: str) -> None:
        until(lambda: self.side.phase(pod) == "Running", f"{pod} runs")

    def fails(self, pod: str) -> str:
        until(lambda: self.side.failed(pod) != "", f"{pod} fails")
        return self.side.failed(pod)

    def held(self, pod: str) -> tuple[str, ...]:
        return self.side.held(pod, self.resource)

    def delete(self, pod: str) -> None:
        self.pods.remove(pod)
        self.side.delete(pod)


def play(cases: Cases[Node], case: str, side: Side, words: int) -> None:
    """Plays it with a resource that is named after it by so many words; no pod of it is left."""
    node = Node(side, f"example.com/{'-'.join(case.split('-')[:words])}")
    cases[case](node)
    for pod in list(node.pods):
        node.delete(pod)


def _manifest(name: str, uid: str, resource: str, counts: Sequence[int], init: Sequence[int]) -> kubepod.Pod:
    def made(kind: str, amounts: Sequence[int]) -> list[kubepod.Container]:
        found = [kubepod.Container(name=f"{kind}{number}") for number in range(len(amounts))]
        for one, amount in zip(found, amounts, strict=True):
            if amount:
                one.resources.limits[resource].string = str(amount)
        return found

    spec = kubepod.PodSpec(containers=made("app", counts), initContainers=made("init", init))
    return kubepod.Pod(metadata=kubepod.ObjectMeta(name=name, namespace="default", uid=uid), spec=spec)


@contextmanager
def opened(side: str) -> Iterator[Side]:
    if side == "real":
        with key_node() as node:
            yield node
        return
    with tempfile.TemporaryDirectory(prefix="kub") as folder, closing(DoubleSide(Path(folder))) as double:
        yield double
