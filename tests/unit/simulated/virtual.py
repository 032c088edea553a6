"""Time and threads of a simulated history: nothing waits, nothing is left to chance.

`VirtualLoop` is asyncio's own loop with a selector that never sleeps: waiting for the next timer moves the clock there.
`VirtualLane` is a lane whose jobs take virtual time, may hang past their deadline as a thread does, and die with their
program. The same calls in the same order give the same run, in any process.
"""

import asyncio
import selectors
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from nodeward.host.lanes import GivenUpError
from tests.faults import Stopped
from tests.lanes import Done, Ended, T

BOOTED_NS = 5_000_000_000
WALL_NS = 1_700_000_000_000_000_000
MOST_HUNG = 2
"""A lane has one replacement thread: when that hangs too, it takes nothing (host.lanes)."""


class _NoWaiting(selectors.SelectSelector):
    """Knows the loop's own wake-up socket and never asks the system about it."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("nothing is due any more, and somebody waits: the simulated history would hang")
        self.now_s += max(0.0, timeout)
        return []


class _SocketsFirst(_NoWaiting):
    """Asks the system about sockets, and never waits for one: what was written to one of this program's is there."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return selectors.SelectSelector.select(self, 0) or super().select(timeout)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on which time passes only when everybody waits. With `sockets` it serves this program's own, both
    ends of which are on it: then nobody waits before what was written was read."""

    def __init__(self, sockets: bool = False) -> None:
        self._virtual = _SocketsFirst() if sockets else _NoWaiting()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now_s


class VirtualClock:
    """The loop's time as CLOCK_BOOTTIME, and a wall clock that a history can set.

    `slept_ns` is what the machine slept: boot time counts it, the loop's timers do not. `wall_off_ns` is by how much
    the wall clock was set.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.slept_ns = 0
        self.wall_off_ns = 0

    def now_ns(self) -> int:
        return BOOTED_NS + round(self._loop.time() * 1e9) + self.slept_ns

    def wall_ns(self) -> int:
        return WALL_NS + self.now_ns() + self.wall_off_ns

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass(slots=True)
class Pace:
    """How a lane works: each job takes up to `most_s`; the share `hangs` of them outlive their deadline."""

    most_s: float = 0.004
    hangs: float = 0.0


@dataclass(slots=True, eq=False)
class _Job:
    name: str
    run: Callable[[], None]
    drop: Callable[[BaseException], None]
    ended: Callable[[], None] | None


class VirtualLane:
    """One lane of one life. A job's calls happen at one instant, when its time is over."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        random: Random,
        pace: Pace,
        died: Callable[[], None],
        deadline_s: float = 5.0,
        *,
        bounded: bool = False,
    ) -> None:
        """A `bounded` lane's jobs are never late: each of their calls is waited for so long and no longer."""
        self._loop, self._random, self._pace, self._died = loop, random, pace, died
        self._deadline_s, self._hung, self._bounded = deadline_s, 0, bounded
        self._queue: deque[_Job] = deque()
        self._busy = False
        self.closed = False

    @property
    def depth(self) -> int:
        return len(self._queue)

    def submit(self, name: str, job: Callable[[], T], done: Done[T], ended: Ended = None) -> bool:
        if self.closed or len(self._queue) >= 4096 or self._hung >= MOST_HUNG:
            return False
        given_up = False

        def run() -> None:
            try:
                result: T | BaseException = job()
            except Stopped:
                self._died()
                return
            except Exception as error:
                result = error
            if not given_up and not self.closed:
                done(result)

        def drop(error: BaseException) -> None:
            nonlocal given_up
            given_up = True
            done(error)

        self._queue.append(_Job(name, run, drop, ended))
        self._next()
        return True

    def _next(self) -> None:
        if self._busy or not self._queue:
            return
        self._busy = True
        job = self._queue.popleft()
        if self._pace.hangs and not self._bounded and self._random.random() < self._pace.hangs:
            self._loop.call_later(self._deadline_s, self._late, job)
        else:
            most_s = min(self._pace.most_s, self._deadline_s)
            self._loop.call_later(self._random.uniform(0, most_s), self._land, job)

    def _land(self, job: _Job) -> None:
        if self.closed:
            return
        job.run()
        self._busy = False
        self._next()

    def _late(self, job: _Job) -> None:
        """The lane gets another thread and goes on; what hangs still does its work when it wakes up."""
        if self.closed:
            return
        self._hung += 1
        self._loop.call_later(self._random.uniform(0, 3 * self._deadline_s), self._awake, job)
        self._give_up(job)
        self._busy = False
        if self._hung >= MOST_HUNG:
            waiting, self._queue = list(self._queue), deque()
            for one in waiting:
                self._give_up(one)
        self._next()

    def _give_up(self, job: _Job) -> None:
        job.drop(GivenUpError(f"{job.name} took longer than {self._deadline_s} s"))

    def _awake(self, job: _Job) -> None:
        if self.closed:
            return
        self._hung -= 1
        job.run()
        if job.ended is not None and not self.closed:
            job.ended()
