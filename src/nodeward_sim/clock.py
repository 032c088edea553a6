"""The clock of the simulated node: it stands back while the node's processes wait for a processor.

The scenario and each grace go by it, so a busy machine makes a run longer and no judgement stricter. It never stands
still, so that a run ends. Must not: know what the processes do.
"""

import os
import time
from collections.abc import Callable, Iterable

from nodeward.host import leftover_time

LEAST_PACE = 0.1
"""A second of the machine is at least so much of the node's."""
LOOK_S = 0.1
"""How often the kernel is asked how long each thread has waited."""


class NodeClock:
    """Seconds, as `time.monotonic`, without those that the node's processes have waited for a processor."""

    def __init__(self, starved_s: Callable[[], float], wall_s: Callable[[], float] = time.monotonic) -> None:
        """`starved_s` is how long they have waited in all."""
        self._starved_s, self._wall_s = starved_s, wall_s
        self._known_s, self._owed_s = starved_s(), 0.0
        self._now_s = self._passed_s = wall_s()
        self._look_s = self._now_s + LOOK_S

    @property
    def owes(self) -> bool:
        """Whether the node has waited for longer than has been left out yet."""
        return self._owed_s > 0

    def time(self) -> float:
        """Now."""
        wall_s = self._wall_s()
        passed_s, self._passed_s = wall_s - self._passed_s, wall_s
        if wall_s >= self._look_s:
            starved_s, self._look_s = self._starved_s(), wall_s + LOOK_S
            self._owed_s += starved_s - self._known_s
            self._known_s = starved_s
        back_s = min(self._owed_s, passed_s * (1 - LEAST_PACE))
        self._owed_s -= back_s
        self._now_s += passed_s - back_s
        return self._now_s


class Waiting:
    """How long all threads of some processes have waited for a processor, ever; `pids` are those that run now."""

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self._by_thread: dict[int, float] = {}

    def starved_s(self) -> float:
        """Seconds, those of threads that have ended too."""
        for pid in self._pids():
            try:
                threads = os.listdir(f"/proc/{pid}/task")
            except OSError:  # it has ended
                continue
            for thread in map(int, threads):
                known_s = self._by_thread.get(thread, 0.0)
                self._by_thread[thread] = max(known_s, leftover_time.starved_s(thread))
        return sum(self._by_thread.values())
