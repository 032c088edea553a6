"""A session against the runtime double on a real socket, with everything the session is given under the test's hand."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from nodeward.core.decision import Adjustment, Final
from nodeward.core.events import Event, Question
from nodeward.core.ports import AtStart
from nodeward.core.refusal import Reason
from nodeward.neighbours.nri import session
from nodeward.neighbours.nri.session import NriSettings
from nodeward_sim.doubles.runtime import SimRuntime
from tests.patience import scaled
from tests.rigs.stories import Story, told_in
from tests.unit.features.build import ManualClock

WITHIN_S = scaled(10.0)
NO_CHANGE = Final(Adjustment(), Reason("test"))


class HandClock(ManualClock):
    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []
        self._permits = asyncio.Semaphore(0)
        self._asleep = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self._asleep.set()
        await self._permits.acquire()

    async def until_asleep(self) -> None:
        async with asyncio.timeout(WITHIN_S):
            await self._asleep.wait()

    async def wake(self) -> None:
        await self.until_asleep()
        self._asleep.clear()
        self._permits.release()


class World:
    def __init__(self, runtime: SimRuntime) -> None:
        self.runtime = runtime
        self.clock = HandClock()
        self.told: list[Event] = []
        self.asked: list[Question] = []
        self.within_ns: list[int] = []
        self.answer: Callable[[Question], Final | Awaitable[Final]] = lambda question: NO_CHANGE
        self.at_start: AtStart | None = None
        self.labels: Callable[[], list[str]] | None = None
        self.broken = False
        self._changed = asyncio.Event()

    def tell(self, event: Event) -> int:
        if self.broken:
            raise ZeroDivisionError
        self.told.append(event)
        self._changed.set()
        return len(self.told)

    def ask(self, question: Question, within_ns: int) -> Final | Awaitable[Final]:
        self.asked.append(question)
        self.within_ns.append(within_ns)
        return self.answer(question)

    def sequence(self) -> int:
        return 1000 + len(self.told)

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.told]

    async def until(self, kind: type[Event], count: int = 1) -> None:
        async with asyncio.timeout(WITHIN_S):
            while sum(isinstance(event, kind) for event in self.told) < count:
                self._changed.clear()
                await self._changed.wait()

    async def plugin(self) -> None:
        await self.runtime.nri.wait_for_plugins(1, WITHIN_S)


@contextlib.asynccontextmanager
async def joined(world: World, settings: NriSettings) -> AsyncIterator[asyncio.Task[None]]:
    heard = world.ask, world.tell, world.sequence, world.clock
    task = asyncio.create_task(session.run(settings, *heard, lambda: 0.0, world.at_start, labels=world.labels))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def beside(
    tmp_path: Path, runtime: Callable[[Path], SimRuntime] = SimRuntime
) -> AsyncIterator[tuple[World, NriSettings]]:
    path = tmp_path / "nri.sock"
    world = World(runtime(path))
    await world.runtime.serve()
    try:
        async with asyncio.timeout(3 * WITHIN_S):
            yield world, NriSettings(str(path))
    finally:
        await world.runtime.close()


def tale(runtime: Callable[[Path], SimRuntime] = SimRuntime) -> Callable[[Story], Story]:
    return told_in(beside, gives=2, runtime=runtime)


@contextlib.asynccontextmanager
async def registered(tmp_path: Path, runtime: Callable[[Path], SimRuntime] = SimRuntime) -> AsyncIterator[World]:
    async with beside(tmp_path, runtime) as (world, settings), joined(world, settings):
        await world.plugin()
        yield world


def plugged(runtime: Callable[[Path], SimRuntime] = SimRuntime) -> Callable[[Story], Story]:
    return told_in(registered, runtime=runtime)
