"""Serves those who watch pods or wait for one: compares the engine's state after each change.

Promises: watchers and what each has not taken are bounded; one that does not take its events loses them, and is told of
it by one GAP; without watchers and waiters a change costs nothing. Must not hold up a decision.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

from nodeward.core.errors import AnswerError, Failure
from nodeward.features.podapi import view as show
from nodeward.features.podapi.rows import PodChange, PodIdentity, WatchEvent
from nodeward.features.root import State

MOST_WATCHERS: Final = 64
MOST_QUEUED: Final = 256
PAUSE_S: Final = 0.02
"""Changes within so short a time are compared together."""
T = TypeVar("T")


class Watcher:
    """What one watcher has not taken yet: first every pod that there was, then changes."""

    def __init__(self, first: list[WatchEvent]) -> None:
        self._first = deque(first)
        self._left = deque[WatchEvent]()
        self._more = asyncio.Event()

    def put(self, event: WatchEvent) -> None:
        """Has it taken later. Where too much is left, all of it gives way to a GAP."""
        if len(self._left) >= MOST_QUEUED:
            self._left.clear()
            event = WatchEvent(PodChange.GAP, event.seq)
        self._left.append(event)
        self._more.set()

    async def events(self) -> AsyncIterator[WatchEvent]:
        """Each event once, for as long as somebody takes them."""
        while True:
            while self._first or self._left:
                yield (self._first or self._left).popleft()
            self._more.clear()
            await self._more.wait()


class Watchers:
    """All watchers and waiters of one daemon. Belongs to the loop's thread."""

    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state
        self._watchers = set[Watcher]()
        self._shown: dict[str, tuple[PodIdentity, object]] = {}
        self._seq = 0
        self._changed, self._compared = asyncio.Event(), asyncio.Event()

    def changed(self) -> None:
        """The state may be another one now."""
        self._changed.set()

    async def run(self) -> None:
        """Compares after each change, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._watchers:
                self._compare()
            compared, self._compared = self._compared, asyncio.Event()
            compared.set()
            await asyncio.sleep(PAUSE_S)

    @contextmanager
    def opened(self) -> Iterator[AsyncIterator[WatchEvent]]:
        """The events of one more watcher. AnswerError where there are too many."""
        if len(self._watchers) >= MOST_WATCHERS:
            raise AnswerError(Failure.RESOURCE_EXHAUSTED, f"{MOST_WATCHERS} watchers are there, which is the most")
        self._compare()
        watcher = Watcher([self._event(PodChange.ADDED, one) for one, _ in self._shown.values()])
        self._watchers.add(watcher)
        try:
            yield watcher.events()
        finally:
            self._watchers.discard(watcher)

    async def until(self, find: Callable[[], T], enough: Callable[[T], bool], within_s: float) -> T:
        """What is found once it is enough, or what there is when the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not enough(find()):
                    await self._compared.wait()
        return find()

    def _compare(self) -> None:
        before, now = self._shown, show.rows(self._state())
        self._shown = now
        if not self._watchers:
            return
        told = [(PodChange.GONE, one) for key, (one, _) in before.items() if key not in now]
        for key, row in now.items():
            was = before.get(key)
            if was != row:
                told.append((PodChange.ADDED if was is None else PodChange.CHANGED, row[0]))
        for kind, one in told:
            self._seq += 1
            event = self._event(kind, one)
            for watcher in self._watchers:
                watcher.put(event)

    def _event(self, kind: PodChange, one: PodIdentity) -> WatchEvent:
        return WatchEvent(kind, self._seq, one.namespace, one.name, one.uid, one.sandbox)
