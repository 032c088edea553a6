"""The facts that the engine can need, by kind, and who fetches each.

`pod` comes from the API server, `keys` from the kernel's counters, `held` is what kubelet has handed out. Who fetches
one tells it to the core first, and answers then.
"""

from collections.abc import Awaitable, Callable

Fetch = Callable[[str], Awaitable[str]]
"""Fetches the fact of this key; why it could not, or nothing."""


class FactsByKind:
    """Facts of the core (`app.core.Facts`)."""

    def __init__(self, of_pods: Fetch) -> None:
        self._fetchers: dict[str, Fetch] = {"pod": of_pods}

    def offer(self, kind: str, fetch: Fetch) -> None:
        """From now on facts of this kind are fetched so."""
        self._fetchers[kind] = fetch

    async def fetch(self, fact: str, key: str) -> str:
        """Waits until the fact is told; why it cannot be, or nothing."""
        fetch = self._fetchers.get(fact)
        return await fetch(key) if fetch is not None else f"{fact} {key}: no component of this daemon tells it"
