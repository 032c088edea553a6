"""The plugin's end in contract and real tests: Nodeward's own session with trivial ports, and a plugin that misbehaves.

The session is the product's; only what decides is replaced, by an answer that the test gives. The raw plugin speaks NRI
by hand, for what our session never does: silence, unknown event bits, methods it does not have.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from nodeward.contracts import nri_pb2
from nodeward.core.decision import Adjustment, Final
from nodeward.core.events import Question
from nodeward.core.refusal import Reason, Refusal
from nodeward.host.clock import SystemClock
from nodeward.neighbours.nri import session, ttrpc_unix
from nodeward.neighbours.nri.ttrpc import Request
from nodeward.neighbours.nri.ttrpc_unix import Answer, TtrpcPeer
from tests.patience import scaled
from tests.rigs.stories import E, Ears, under_way

WAIT_S = scaled(15.0)

Decide = Callable[[Question], Final | Awaitable[Final]]


def adjust(**unified: str) -> Final:
    """The answer that sets these unified keys; `misc_max` stands for `misc.max`."""
    return Final(Adjustment({key.replace("_", "."): value for key, value in unified.items()}), Reason("test"))


def refuse(message: str) -> Final:
    return Final(Refusal(message), Reason("test"))


def no_change(question: Question) -> Final:
    return adjust()


class EagerClock(SystemClock):
    """The machine's clock, except that a wait before the next connection is over at once."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.01))


class Ports(Ears):
    """What the session is wired to: answers by `decide`, and remembers all it hears."""

    def __init__(self, decide: Decide) -> None:
        super().__init__()
        self.decide = decide

    def ask(self, question: Question, within_ns: int) -> Final | Awaitable[Final]:
        self(question)
        return self.decide(question)

    async def nth(self, kind: type[E], count: int = 1) -> E:
        try:
            async with asyncio.timeout(WAIT_S):
                return await self.wait(kind, count)
        except TimeoutError as error:
            heard = [type(event).__name__ for event in self.heard[-20:]]
            raise AssertionError(f"{kind.__name__} number {count} did not come within {WAIT_S} s; {heard}") from error


@asynccontextmanager
async def nodeward_plugin(
    socket: Path, decide: Decide = no_change, name: str = "nodeward", index: str = "10"
) -> AsyncIterator[Ports]:
    ports = Ports(decide)
    settings = session.NriSettings(socket_path=str(socket), plugin_name=name, plugin_index=index)
    async with under_way(session.run(settings, ports.ask, ports, ports.sequence, EagerClock(), lambda: 0.0)):
        yield ports


@dataclass(slots=True)
class RawPlugin:
    answers: Mapping[str, Callable[[Request], Answer | Awaitable[Answer]]]
    """By method; any other method is refused as unimplemented."""
    events: int = 0
    """The subscription that Configure is answered with."""
    calls: list[str] = field(default_factory=list)
    peer: TtrpcPeer | None = None

    def handle(self, request: Request) -> Answer | Awaitable[Answer]:
        self.calls.append(request.method)
        if request.method in self.answers:
            return self.answers[request.method](request)
        if request.method == "Configure":
            return nri_pb2.ConfigureResponse(events=self.events).SerializeToString()
        if request.method == "Synchronize":
            more = nri_pb2.SynchronizeRequest.FromString(request.payload).more
            return nri_pb2.SynchronizeResponse(more=more).SerializeToString()
        return ttrpc_unix.unimplemented(request)

    async def ended(self) -> str:
        assert self.peer is not None
        async with asyncio.timeout(WAIT_S):
            return await self.peer.wait_ended()


@asynccontextmanager
async def raw_plugin(socket: Path, plugin: RawPlugin, name: str = "raw", index: str = "20") -> AsyncIterator[RawPlugin]:
    plugin.peer = await ttrpc_unix.connect(str(socket), plugin.handle)
    registration = nri_pb2.RegisterPluginRequest(plugin_name=name, plugin_idx=index, NRI_version="v0.12.0")
    request = Request(session.RUNTIME, "RegisterPlugin", registration.SerializeToString(), int(WAIT_S * 1e9))
    try:
        await plugin.peer.call(request, WAIT_S)
        yield plugin
    finally:
        plugin.peer.close("the test is over")
