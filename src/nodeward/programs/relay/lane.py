"""A lane that starts when it is first used, since a relay is put together before its loop runs."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from nodeward.host.lanes import ThreadLane

LANE_S = 5.0
"""So long a call may sleep in the kernel before its lane gets another thread."""
log = logging.getLogger(__name__)
T = TypeVar("T")


class LoopLane:
    """`host.lanes.Lane`. Belongs to the loop's thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lane: ThreadLane | None = None

    def submit(
        self,
        name: str,
        job: Callable[[], T],
        done: Callable[[T | BaseException], None],
        ended: Callable[[], None] | None = None,
    ) -> bool:
        """As there; the thread begins with the first job."""
        if self._lane is None:
            stuck = partial(log.warning, "lane=%s stuck job=%s", self._name)
            self._lane = ThreadLane(self._name, asyncio.get_running_loop(), stuck, deadline_s=LANE_S)
        return self._lane.submit(name, job, done, ended)

    def close(self, timeout_s: float) -> None:
        """Ends it."""
        if self._lane is not None:
            self._lane.close(timeout_s)
