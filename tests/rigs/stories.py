"""Tests that are coroutines, each told inside of what it needs, what runs beside them, and who hears of it."""

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TypeVar

from nodeward.core.events import Event

E = TypeVar("E", bound=Event)
Story = Callable[..., Awaitable[None]]
Around = Callable[..., AbstractAsyncContextManager[object]]


class Ears:
    def __init__(self) -> None:
        self.heard: list[Event] = []
        self._news = asyncio.Event()

    def __call__(self, event: Event) -> int:
        self.heard.append(event)
        self._news.set()
        return len(self.heard)

    def sequence(self) -> int:
        return len(self.heard)

    def all(self, kind: type[E]) -> list[E]:
        return [event for event in self.heard if isinstance(event, kind)]

    async def wait(self, kind: type[E], count: int = 1) -> E:
        while len(found := self.all(kind)) < count:
            self._news.clear()
            await self._news.wait()
        return found[count - 1]


@asynccontextmanager
async def under_way(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """For as long as the block lasts; it may not end by itself, and ends as cancelled."""
    task = asyncio.create_task(work)
    try:
        yield
        assert not task.done(), f"{work} ended by itself"
    finally:
        task.cancel()
        await asyncio.wait((task,))  # whoever's time is up meanwhile fails here, and does not cancel it again
        with suppress(asyncio.CancelledError):
            await task
    assert task.cancelled(), f"{work} took no notice of its end"


def told_in(around: Around, *, gives: int = 1, **options: object) -> Callable[[Story], Story]:
    """Makes a test of a coroutine. Its first argument is what `around` gives, or so many of a tuple. Arguments of
    `around` that neither have a default nor are among the options are fixtures, as the coroutine's other ones are."""

    def decorated(story: Story) -> Story:
        own = list(inspect.signature(story).parameters)[gives:]
        needed = [one.name for one in inspect.signature(around).parameters.values() if one.default is one.empty]
        needed = [name for name in needed if name not in options]

        @functools.wraps(story)
        async def test(**known: object) -> None:
            async with around(**{name: known[name] for name in needed}, **options) as found:
                given = found if isinstance(found, tuple) else (found,)
                await story(*given[:gives], **{name: known[name] for name in own})

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = [inspect.Parameter(name, kind) for name in dict.fromkeys((*needed, *own))]
        test.__dict__["__signature__"] = inspect.Signature(names)
        return test

    return decorated
