"""The facts that the engine can need, by kind, and who fetches each.

`pod` comes from the API server, `keys` from the kernel's counters, `held` is what kubelet has handed out. Who fetches
one tells it to the core first, and answers then.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

Fetch = Callable[[str], Awaitable[str]]
"""Fetches the fact of this key; why it could not, or nothing."""
SOON_S = 0.15
"""So long all views are waited for, then for any: half of what an Allocate has."""


class FactsByKind:
    """Facts of the core (`host.runner.Facts`)."""

    def __init__(self) -> None:
        self._fetchers: dict[str, Fetch] = {}

    def offer(self, kind: str, fetch: Fetch) -> None:
        """Registers how facts of this kind are fetched."""
        self._fetchers[kind] = fetch

    async def fetch(self, fact: str, key: str) -> str:
        """Waits until the fact is known; why it cannot be, or nothing."""
        fetch = self._fetchers.get(fact)
        return await fetch(key) if fetch is not None else f"{fact} {key}: no component of this daemon tells it"


async def either(views: Sequence[Fetch], last: Fetch, key: str) -> str:
    """Fetches a fact by every one of the views that answers soon, else by the first that does; and by the `last` where
    none has by then. Why none could, or nothing. Ends with whoever waits for it."""
    asked = [asyncio.ensure_future(view(key)) for view in views]
    try:
        await asyncio.wait(asked, timeout=SOON_S)
        if not any(one.done() and not one.result() for one in asked):
            asked.append(asyncio.ensure_future(last(key)))
        while not any(one.done() and not one.result() for one in asked):
            waiting = [one for one in asked if not one.done()]
            if not waiting:
                return "; ".join(one.result() for one in asked)
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        return ""
    finally:
        for one in asked:
            one.cancel()
