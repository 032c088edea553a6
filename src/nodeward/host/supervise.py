"""Keeps a component alive: what raises is logged and started again with back-off; siblings never notice."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from nodeward.core.errors import NodewardError
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock

log = logging.getLogger(__name__)


class WorkEndedError(NodewardError):
    """A component says that the whole program has nothing left to do; trying again would be of no use."""


async def forever(
    name: str,
    run: Callable[[], Awaitable[None]],
    clock: Clock,
    backoff: Backoff,
    failed: Callable[[str, BaseException], None],
) -> None:
    """Runs `run()` again and again until cancelled. `failed` hears of each exception; a plain return is one too.

    Only WorkEndedError is not contained: it is for whoever runs all components."""
    while True:
        began = clock.now_ns()
        try:
            await run()
            raise RuntimeError(f"component {name} returned; it should run until it is stopped")
        except (asyncio.CancelledError, WorkEndedError):
            raise
        except Exception as raised:
            error = _alone(raised)
            log.warning("component=%s failed=%s error=%s", name, type(error).__name__, error)
            failed(name, error)
        if clock.now_ns() - began > 60_000_000_000:
            backoff.reset()
        await clock.sleep(backoff.next_s())


def _alone(error: BaseException) -> BaseException:
    """What is in a group of one: a component's own tasks raise such a group, whose text tells nothing."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
