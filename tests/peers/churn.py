"""Pods from several threads at once, as a kubelet makes them: for what only shows when calls overlap."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

_T = TypeVar("_T")
THREADS = 4


@dataclass(slots=True)
class Made:
    id: str
    begun: float
    done: float


@dataclass(slots=True)
class Churn:
    make: Callable[[int], str]
    made: list[Made] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _stop: threading.Event = field(default_factory=threading.Event)
    _more: threading.Condition = field(default_factory=threading.Condition)

    def work(self) -> None:
        while not self._stop.is_set():
            begun = time.monotonic()
            made = self.make(next(self._numbers))
            with self._more:
                self.made.append(Made(made, begun, time.monotonic()))
                self._more.notify_all()

    def wait_for(self, count: int, timeout_s: float = 60.0) -> None:
        """Returns when so many more have been made than now."""
        with self._more:
            goal = len(self.made) + count
            assert self._more.wait_for(lambda: len(self.made) >= goal, timeout_s), f"no {count} more in {timeout_s} s"

    def stop(self) -> None:
        self._stop.set()


@contextmanager
def churning(make: Callable[[int], str]) -> Iterator[Churn]:
    """`make(number)` in several threads for as long as the block, or until `stop`; what it raises is raised here."""
    churn = Churn(make)
    with ThreadPoolExecutor(THREADS) as threads:
        working = [threads.submit(churn.work) for _ in range(THREADS)]
        try:
            yield churn
        finally:
            churn.stop()
        for each in working:
            each.result()
