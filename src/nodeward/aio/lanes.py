"""Named daemon threads for calls that can sleep, so that the loop thread never does.

A job is a batch of system calls, not a loop of Python. Each lane is bounded; a job past its deadline is reported, its
lane gets one replacement thread, and other lanes go on. Results come back on the event loop.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

T = TypeVar("T")


class Lane(Protocol):
    """Runs jobs in order, elsewhere or inline."""

    def submit(self, name: str, job: Callable[[], T], done: Callable[[T | BaseException], None]) -> bool:
        """Queues `job`; `done` gets its result or its exception on the loop. False when the lane is full."""


@dataclass(slots=True)
class _Job:
    name: str
    run: Callable[[], None]
    drop: Callable[[BaseException], None]
    over: bool = False


class GivenUpError(Exception):
    """The job never ran, or was given up."""


class InlineLane:
    """Jobs wait until `drain` runs them on the caller's thread: the deterministic lane of simulations and tests."""

    def __init__(self, depth: int = 100_000) -> None:
        self._queue: deque[Callable[[], None]] = deque()
        self._depth = depth

    def submit(self, name: str, job: Callable[[], T], done: Callable[[T | BaseException], None]) -> bool:
        if len(self._queue) >= self._depth:
            return False

        def run() -> None:
            try:
                result: T | BaseException = job()
            except Exception as error:
                result = error
            done(result)

        self._queue.append(run)
        return True

    def drain(self, most: int | None = None) -> int:
        """Runs queued jobs, those that they queue too; returns how many ran."""
        ran = 0
        while self._queue and (most is None or ran < most):
            self._queue.popleft()()
            ran += 1
        return ran


class ThreadLane:
    """A lane on a thread of its own. `stuck(job name)` is called on the loop for a job past `deadline_s`."""

    def __init__(
        self, name: str, loop: asyncio.AbstractEventLoop, stuck: Callable[[str], None], *, deadline_s: float = 5.0
    ) -> None:
        self.name = name
        self._loop, self._stuck, self._deadline_s = loop, stuck, deadline_s
        self._queue: deque[_Job] = deque()
        self._ready = threading.Condition()
        self._closed = False
        self._generation = 0
        self._depth = 4096
        self._spawn()

    @property
    def depth(self) -> int:
        """Jobs waiting."""
        return len(self._queue)

    def submit(self, name: str, job: Callable[[], T], done: Callable[[T | BaseException], None]) -> bool:
        if self._closed or len(self._queue) >= self._depth:
            return False

        def run() -> None:
            try:
                result: T | BaseException = job()
            except Exception as error:
                result = error
            self._back(entry, lambda: done(result))

        entry = _Job(name, run, done)
        with self._ready:
            self._queue.append(entry)
            self._ready.notify()
        return True

    def close(self, timeout_s: float) -> bool:
        """Lets queued jobs end; false when they did not within `timeout_s` (the thread is a daemon and dies later)."""
        with self._ready:
            self._closed = True
            self._ready.notify_all()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _spawn(self) -> None:
        self._generation += 1
        self._thread = threading.Thread(
            target=self._work, args=(self._generation,), name=f"nodeward-{self.name}", daemon=True
        )
        self._thread.start()

    def _work(self, generation: int) -> None:
        while True:
            with self._ready:
                while generation == self._generation and not self._queue and not self._closed:
                    self._ready.wait()
                if generation != self._generation or (self._closed and not self._queue):
                    self._ready.notify()  # a replaced thread may have taken the notice that was meant for the new one
                    return
                job = self._queue.popleft()
            if not self._on_loop(partial(self._arm, job)):
                return
            job.run()

    def _on_loop(self, call: Callable[[], None]) -> bool:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:  # the loop is closed: the process is ending
            return False
        return True

    def _arm(self, job: _Job) -> None:
        if not job.over:
            self._loop.call_later(self._deadline_s, self._late, job)

    def _late(self, job: _Job) -> None:
        if job.over:
            return
        job.over = True
        self._spawn()
        self._stuck(job.name)
        job.drop(GivenUpError(f"{self.name}: {job.name} took longer than {self._deadline_s} s"))

    def _back(self, job: _Job, call: Callable[[], None]) -> None:
        def land() -> None:
            if not job.over:
                job.over = True
                call()

        self._on_loop(land)
