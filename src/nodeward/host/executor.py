"""The loop's default executor: daemon threads, so that a name look-up that hangs holds up neither loop nor exit.

asyncio hands `getaddrinfo` and the like to an executor, and joins the usual one's threads at the end. These are never
joined: they die with the process. Work is bounded, in threads and in what waits.
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
MOST_THREADS = 4
MOST_WAITING = 256


class DaemonExecutor(ThreadPoolExecutor):
    """A ThreadPoolExecutor by name only, which `loop.set_default_executor` insists on: no thread of that class runs."""

    def __init__(self) -> None:
        super().__init__(max_workers=1)
        self._ready = threading.Condition()
        self._waiting: deque[Callable[[], None]] = deque()
        self._count = self._idle = 0
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """RuntimeError when it is closed, or when too much waits already."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        with self._ready:
            if self._closed or len(self._waiting) >= MOST_WAITING:
                raise RuntimeError("the executor is closed" if self._closed else f"{MOST_WAITING} calls wait already")
            self._waiting.append(run)
            if self._idle >= len(self._waiting):
                self._ready.notify()
            elif self._count < MOST_THREADS:
                self._count += 1
                threading.Thread(target=self._work, name=f"nodeward-executor-{self._count}", daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes nothing more; whatever `wait` says, a call that hangs is not waited for."""
        with self._ready:
            self._closed = True
            self._ready.notify_all()

    def _work(self) -> None:
        while True:
            with self._ready:
                self._idle += 1
                while not self._waiting and not self._closed:
                    self._ready.wait()
                self._idle -= 1
                if not self._waiting:
                    return
                job = self._waiting.popleft()
            job()
