"""A call that may hang, waited for only so long: for a thread that has other things to do than to wait for a disk.

One call at a time, on a daemon thread of its own. One that is late runs on, and until it has come back every other call
fails at once, so that a disk that stands holds up one thread and costs one wait. For rare calls: each has a new thread.
"""

import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future


class BoundedCalls:
    """Calls that take at most `most_s` seconds of the caller's time."""

    def __init__(self, name: str, most_s: float) -> None:
        self._name, self._most_s = name, most_s
        self._under_way: Future[None] | None = None

    def __call__(self, call: Callable[[], None]) -> None:
        """Does it. OSError (ETIMEDOUT) if it is late and runs on, (EBUSY) while an earlier one does; else what it
        raises itself."""
        if self._under_way is not None and not self._under_way.done():
            raise OSError(errno.EBUSY, "an earlier call has not come back: the disk hangs")
        done = self._under_way = Future[None]()

        def work() -> None:
            try:
                call()
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        threading.Thread(target=work, name=self._name, daemon=True).start()
        try:
            done.result(self._most_s)
        except TimeoutError as error:
            if done.done():
                return done.result()  # it came at the last moment, or the error is the call's own
            raise OSError(errno.ETIMEDOUT, f"not done within {self._most_s:g} s: the disk hangs") from error
