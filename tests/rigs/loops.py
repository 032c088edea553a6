"""Stories that are told on a loop."""

import asyncio
import functools
from collections.abc import Callable, Coroutine

PATIENCE_S = 30.0


def played(story: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    """A test that plays the story, and waits for its end so long at most."""

    @functools.wraps(story)
    def play() -> None:
        asyncio.run(asyncio.wait_for(story(), PATIENCE_S))

    return play
