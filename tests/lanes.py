"""A lane for tests that decide when its jobs run."""

from collections import deque
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
Done = Callable[[T | BaseException], None]
Ended = Callable[[], None] | None


class InlineLane:
    """Jobs wait until `drain` runs them on the caller's thread: a deterministic lane."""

    def __init__(self, depth: int = 100_000) -> None:
        self._queue: deque[Callable[[], None]] = deque()
        self._depth = depth

    def submit(self, name: str, job: Callable[[], T], done: Done[T], ended: Ended = None) -> bool:
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
