"""Tests that are coroutines, each told inside of what it needs, and what runs beside them."""

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

Story = Callable[..., Awaitable[None]]
Around = Callable[..., AbstractAsyncContextManager[object]]


@asynccontextmanager
async def under_way(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """For as long as the block lasts; it may not end by itself."""
    task = asyncio.create_task(work)
    try:
        yield
        assert not task.done(), f"{work} ended by itself"
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


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
