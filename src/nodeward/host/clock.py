"""Time, injected: production reads the system's clocks, tests and simulations turn theirs by hand."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """What a component may know of time."""

    def now_ns(self) -> int:
        """CLOCK_BOOTTIME in nanoseconds: counts suspend, never jumps with the wall clock."""

    def wall_ns(self) -> int:
        """Wall time in nanoseconds since the epoch, for display only."""

    async def sleep(self, seconds: float) -> None:
        """Returns after `seconds` of this clock."""


class SystemClock:
    """The machine's clocks."""

    def now_ns(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def wall_ns(self) -> int:
        return time.time_ns()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
