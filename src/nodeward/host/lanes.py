"""Named daemon threads for calls that can sleep, so that the loop thread never does.

A job is a batch of system calls, not a loop of Python. Each lane is bounded; a job past its deadline is reported and
given up, its lane gets one replacement thread, and other lanes go on. There are never more than two threads: where the
replacement hangs too, the lane is blocked. It then drops what waits and takes nothing more until one of the two comes
back. A thread that comes back serves on if the lane needs it, else it ends. Results come back on the event loop.
"""

import asyncio
import errno
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Protocol, TypeVar

log = logging.getLogger(__name__)
T = TypeVar("T")
MOST_THREADS = 2
"""Of one lane: the one that serves, and one that hangs."""


class Lane(Protocol):
    """Runs jobs in order, elsewhere or inline."""

    def submit(
        self,
        name: str,
        job: Callable[[], T],
        done: Callable[[T | BaseException], None],
        ended: Callable[[], None] | None = None,
    ) -> bool:
        """Queues `job`, on the loop; `done` gets its result or its exception there. False when the lane is full or
        blocked.

        A job past its deadline is given up: `done` gets GivenUpError, and `ended` is called once the job has come back
        after all. Until then it still runs, so whatever it may touch must be left alone."""


@dataclass(slots=True)
class _Job:
    name: str
    run: Callable[[], Callable[[], None]]
    """Does it; what is returned gives the result to who waits."""
    drop: Callable[[BaseException], None]
    ended: Callable[[], None] | None
    over: bool = False
    """`done` was called; on the loop thread."""
    came_back: bool = False
    hung: bool = False
    """Given up while it ran; this and `came_back` under the lane's lock."""
    began_s: float | None = None
    """When it began, by the monotonic clock; None while it waits. Written by the lane's thread."""
    queued_s: float = field(default_factory=time.monotonic)
    timer: asyncio.TimerHandle | None = None
    """Looks after its deadline; on the loop thread. Ends with the job, else it would keep alive what that holds."""


class GivenUpError(Exception):
    """The job never ran, or was given up."""


class FullError(OSError):
    """The lane takes no job now."""


async def done_on(lane: Lane, name: str, job: Callable[[], T], ended: Callable[[], None] | None = None) -> T:
    """The job's result. Raises what it raises, GivenUpError, or FullError where the lane is full or blocked."""
    outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def done(result: T | BaseException) -> None:
        if outcome.done():
            return
        if isinstance(result, BaseException):
            outcome.set_exception(result)
        else:
            outcome.set_result(result)

    if not lane.submit(name, job, done, ended):
        raise FullError(errno.EAGAIN, "its lane is full or hangs")
    return await outcome


class ThreadLane:
    """A lane on a thread of its own, which starts with the first job. `stuck(job name)` is called on the loop for a job
    past `deadline_s`; without it the log says so. Without `loop`, it is the one that runs when the first job comes."""

    def __init__(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop | None = None,
        stuck: Callable[[str], None] | None = None,
        *,
        deadline_s: float = 5.0,
    ) -> None:
        self.name = name
        self._given, self._deadline_s = loop, deadline_s
        self._stuck = stuck or partial(log.warning, "lane=%s stuck job=%s", name)
        self._queue: deque[_Job] = deque()
        self._ready = threading.Condition()
        self._closed = False
        self._depth = 4096
        self._threads: list[threading.Thread] = []
        self._hung = 0
        self._under_way: list[_Job] = []

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return self._given or asyncio.get_running_loop()

    @property
    def depth(self) -> int:
        """Jobs waiting."""
        return len(self._queue)

    @property
    def age_ms(self) -> int | None:
        """How long the oldest job has waited or run; None while there is none."""
        with self._ready:
            since = [job.queued_s for job in (*self._under_way, *itertools.islice(self._queue, 1))]
        return round((time.monotonic() - min(since)) * 1000) if since else None

    @property
    def hung(self) -> int:
        """Threads within a job that was given up."""
        return self._hung

    @property
    def blocked(self) -> bool:
        """Whether both threads hang, so that nothing can run."""
        return self._hung >= MOST_THREADS

    def submit(
        self,
        name: str,
        job: Callable[[], T],
        done: Callable[[T | BaseException], None],
        ended: Callable[[], None] | None = None,
    ) -> bool:
        if self._closed or self.blocked or len(self._queue) >= self._depth:
            return False

        def run() -> Callable[[], None]:
            try:
                result: T | BaseException = job()
            except Exception as error:
                result = error
            return lambda: done(result)

        if not self._threads and not self._spawn():
            return False
        entry = _Job(name, run, done, ended)
        entry.timer = self._loop.call_later(self._deadline_s, self._look_after, entry)
        with self._ready:
            self._queue.append(entry)
            self._ready.notify()
        return True

    def close(self, timeout_s: float) -> bool:
        """Lets queued jobs end; false when they did not within `timeout_s` (the threads are daemons and die later)."""
        with self._ready:
            self._closed = True
            self._ready.notify_all()
        end = time.monotonic() + timeout_s
        for thread in list(self._threads):
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _spawn(self) -> bool:
        """Starts a thread; whether the system had one to give."""
        thread = threading.Thread(target=self._work, name=f"nodeward-{self.name}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            log.error("lane=%s thread=none why=%r", self.name, str(error))
            return False
        self._threads.append(thread)
        return True

    def _work(self) -> None:
        while True:
            with self._ready:
                while not self._queue and not self._closed:
                    self._ready.wait()
                if not self._queue:
                    return
                job = self._queue.popleft()
                self._under_way.append(job)
            job.began_s = time.monotonic()
            give = job.run()
            is_needed = self._came_back(job)
            if not self._on_loop(partial(_land, job, give)) or not is_needed:
                return

    def _came_back(self, job: _Job) -> bool:
        """Whether this thread is to serve on."""
        with self._ready:
            job.came_back = True
            self._under_way.remove(job)
            if not job.hung:
                return True
            self._hung -= 1
            if len(self._threads) - self._hung == 1:
                return True
            self._threads.remove(threading.current_thread())  # its replacement serves
            return False

    def _on_loop(self, call: Callable[[], None]) -> bool:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:  # the loop is closed: the process is ending
            return False
        return True

    def _look_after(self, job: _Job) -> None:
        """The deadline counts from a job's beginning. Looked at from here, so that a job that is in time costs the
        loop one wake-up, not two."""
        if job.over:
            return
        ran_s = 0.0 if job.began_s is None else time.monotonic() - job.began_s
        if ran_s < self._deadline_s:
            job.timer = self._loop.call_later(self._deadline_s - ran_s, self._look_after, job)
        else:
            self._late(job)

    def _late(self, job: _Job) -> None:
        with self._ready:
            if job.over or job.came_back:  # its result is on the way
                return
            job.over = job.hung = True
            self._hung += 1
            if len(self._threads) < MOST_THREADS:
                self._spawn()
            waiting = list(self._queue) if self.blocked else []
            if waiting:
                self._queue.clear()
        self._stuck(job.name)
        job.drop(GivenUpError(f"{self.name}: {job.name} took longer than {self._deadline_s} s"))
        for other in waiting:
            other.over = True
            if other.timer is not None:
                other.timer.cancel()
            other.drop(GivenUpError(f"{self.name}: {other.name} never ran: the lane is blocked"))


def _land(job: _Job, give: Callable[[], None]) -> None:
    if job.timer is not None:
        job.timer.cancel()
    if not job.over:
        job.over = True
        give()
    elif job.ended is not None:
        job.ended()
