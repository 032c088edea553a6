"""Runs a call that may hang, and waits for it no longer than a bound.

One call at a time, on a daemon thread that then waits for the next one: kubelet waits for some of them, and a thread
that is made for a call costs it a quarter of a millisecond. A call that is late runs on, and until it has come back
every other call fails at once, so that a disk that stands holds up one thread and costs one wait. Its thread ends with
it.
"""

import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

Calls = SimpleQueue[tuple[Callable[[], None], Future[None]] | None]
"""What a thread is to do; None for no more."""


class BoundedCalls:
    """Calls that take at most `most_s` seconds of the caller's time."""

    def __init__(self, name: str, most_s: float) -> None:
        self._name, self._most_s = name, most_s
        self._under_way: Future[None] | None = None
        self._calls: Calls | None = None

    def __call__(self, call: Callable[[], None]) -> None:
        """Does it. OSError (ETIMEDOUT) if it is late and runs on, (EBUSY) while an earlier one does; else what it
        raises itself."""
        if self._under_way is not None and not self._under_way.done():
            raise OSError(errno.EBUSY, "an earlier call has not come back: the disk hangs")
        if self._calls is None:
            self._calls = Calls()
            threading.Thread(target=_work, args=(self._calls,), name=self._name, daemon=True).start()
        done = self._under_way = Future[None]()
        self._calls.put((call, done))
        try:
            done.result(self._most_s)
        except TimeoutError as error:
            if done.done():
                return done.result()  # it came at the last moment, or the error is the call's own
            self._calls.put(None)
            self._calls = None
            raise OSError(errno.ETIMEDOUT, f"not done within {self._most_s:g} s: the disk hangs") from error


def _work(calls: Calls) -> None:
    while (todo := calls.get()) is not None:
        call, done = todo
        try:
            call()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)
        del todo, call, done  # what it holds is not kept until the next one
