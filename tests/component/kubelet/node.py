"""A node with kubelet's device manager double, and our device plugin with an `ask` of the test's own."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodeward.core.decision import Adjustment, Final, Goal, Special
from nodeward.core.events import Event, PluginTold, Question
from nodeward.core.refusal import Reason, Refusal
from nodeward.host.clock import SystemClock
from nodeward.host.hostfs import OsFiles
from nodeward.host.lanes import ThreadLane
from nodeward.host.slots import ByEdge
from nodeward.neighbours.formats.kube_node import OnNode
from nodeward.neighbours.kubelet.checkpoint import CheckpointFile
from nodeward.neighbours.kubelet.folder import Folder, Offering
from nodeward.neighbours.kubelet.plugin import Plugin
from nodeward.neighbours.sockets.grpc_unix import GrpcClient
from nodeward_sim.doubles.kubelet import SimKubelet
from tests.component.kubernetes.support import until
from tests.goals import target
from tests.patience import scaled
from tests.rigs.stories import Story, told_in

WITHIN_S = scaled(20.0)
TDX = "devices.kubevirt.io/tdx"
YES = Final(Adjustment(), Reason("granted"))
NOTHING = OnNode()


def refused(why: str) -> Final:
    return Final(Refusal(why), Reason("refused"))


def ids(count: int, healthy: int | None = None) -> list[tuple[str, bool]]:
    return [(f"tdx-key-{number:04d}", healthy is None or number < healthy) for number in range(count)]


@dataclass(slots=True)
class Said:
    answer: Callable[[Question], Final | Awaitable[Final]] = lambda _: YES
    asked: list[Question] = field(default_factory=list)
    told: list[PluginTold] = field(default_factory=list)

    def ask(self, question: Question, within_ns: int) -> Final | Awaitable[Final]:
        self.asked.append(question)
        return self.answer(question)

    def tell(self, event: Event) -> int:
        if isinstance(event, PluginTold):
            self.told.append(event)
        return 0

    @property
    def standing(self) -> str:
        return self.told[-1].standing.value if self.told else ""


@dataclass(slots=True)
class Life:
    offers: ByEdge
    said: Said
    plugin: Plugin
    task: asyncio.Task[None]
    lane: ThreadLane
    on_node: OnNode
    """What the node's status has."""
    noted: list[tuple[bool, str]] = field(default_factory=list)
    """What readiness hears of its server."""
    reads: int = 0
    """How often that was read."""
    meanwhile: Callable[[], None] = lambda: None
    """What happens while it is read."""

    def offer(self, devices: list[tuple[str, bool]] | None, resource: str = TDX) -> None:
        text = Special.ABSENT if devices is None else json.dumps(devices)
        self.offers.set([Goal(target(f"offer:{resource}"), text, Reason("test"))])

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.lane.close(1.0)


@dataclass(slots=True)
class Node:
    home: Path
    kubelet: SimKubelet
    lives: list[Life] = field(default_factory=list)

    @property
    def sockets(self) -> list[str]:
        found = sorted(path.name for path in (self.home / "device-plugins").iterdir() if path.is_socket())
        return [name for name in found if name != "kubelet.sock"]

    def live(
        self,
        devices: list[tuple[str, bool]] | None = None,
        mount: str = "",
        on_node: OnNode = NOTHING,
        deadline_s: float = 5.0,
        nodes: tuple[str, ...] = (),
        offered: Offering | None = None,
    ) -> Life:
        loop = asyncio.get_running_loop()
        offers, said = ByEdge("offer"), Said()
        lane = ThreadLane("kubelet", loop, lambda job: None, deadline_s=deadline_s)

        async def read() -> OnNode:
            life.reads += 1
            life.meanwhile()
            return life.on_node

        keys = Offering("tdx", TDX, "tdx-key-", lambda: (mount, False), read, lambda: nodes)
        home, offering = str(self.home), offered or keys
        folder = Folder(home, home, offering, CheckpointFile(OsFiles(), home, [offering.resource]))
        noted = list[tuple[bool, str]]()
        plugin = Plugin(offering, folder, offers, said.ask, said.tell, SystemClock(), lambda *of: noted.append(of))
        life = Life(offers, said, plugin, loop.create_task(plugin.run(lane, lambda: 0.0)), lane, on_node, noted)
        if devices is not None:
            life.offer(devices, offering.resource)
        self.lives.append(life)
        return life

    async def serves(self, count: int, **more: Any) -> Life:
        life = self.live(ids(count), **more)
        await self.becomes((count, count))
        return life

    async def called(self, method: str, request: bytes) -> bytes:
        """As kubelet calls our plugin."""
        path = self.home / "device-plugins" / self.sockets[0]
        return await called(path, f"/v1beta1.DevicePlugin/{method}", request, 10.0)

    async def becomes(self, capacity: tuple[int, int] | None) -> None:
        said = f"{capacity}, not {self.kubelet.capacity(TDX)}"
        await until(lambda: self.kubelet.capacity(TDX) == capacity, said, WITHIN_S)


async def called(path: Path, method: str, request: bytes = b"", within_s: float = WITHIN_S) -> bytes:
    """The answer to one gRPC call at that socket."""
    client = GrpcClient(str(path))
    try:
        return await client.call(method, request, within_s)
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def node(home: Path, *, begins: bool = True) -> AsyncIterator[Node]:
    kubelet = SimKubelet(str(home), OsFiles(), SystemClock())
    (home / "device-plugins").mkdir(parents=True, exist_ok=True)
    if begins:
        await kubelet.start()
    found = Node(home, kubelet)
    try:
        yield found
    finally:
        for life in found.lives:
            await life.end()
        await kubelet.stop()


@contextlib.asynccontextmanager
async def _bounded(home: Path, begins: bool) -> AsyncIterator[Node]:
    async with asyncio.timeout(scaled(60)), node(home, begins=begins) as found:
        yield found


def played(begins: bool = True) -> Callable[[Story], Story]:
    return told_in(_bounded, begins=begins)
