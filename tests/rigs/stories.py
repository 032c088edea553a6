"""Tests that are coroutines, each told inside of what it needs."""

import functools
import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

Story = Callable[..., Awaitable[None]]
Around = Callable[..., AbstractAsyncContextManager[object]]


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
