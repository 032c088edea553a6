"""A clock for loops without end: each sleep runs what waits on a lane, and the last one ends the sleeper."""

import asyncio

from tests.lanes import InlineLane
from tests.unit.features.build import ManualClock


class TurnedClock(ManualClock):
    def __init__(self, lane: InlineLane, turns: int = 0) -> None:
        super().__init__()
        self._lane, self.turns = lane, turns

    async def sleep(self, seconds: float) -> None:
        self._lane.drain()
        await super().sleep(seconds)
        self.turns -= 1
        if not self.turns:
            raise asyncio.CancelledError
