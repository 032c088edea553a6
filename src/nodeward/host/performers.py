"""Goals that an edge performs on the loop's thread: a device list for kubelet, an object in the API server.

The edge is handed the newest value of each target of its kind and says what became of it. So restart, retry and repair
are the edge's own, and level-triggered too. What is written to files, `host.slots` has performed on a lane.
"""

import asyncio
from collections.abc import Iterable

from nodeward.core.decision import Goal, Special, Target
from nodeward.core.events import Missed, Reached
from nodeward.core.ports import Tell


class ByEdge:
    """The newest goal of each target of one kind; a target is named by its `where`. Belongs to the loop's thread."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._goals: dict[str, Goal] = {}
        self._number = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._tell: Tell | None = None

    def connect(self, tell: Tell) -> None:
        """Where outcomes go."""
        self._tell = tell

    @property
    def number(self) -> int:
        """Which change this is; for `changed`."""
        return self._number

    def value(self, where: str) -> str | None:
        """What is to be there now; None for nothing, or where a domain only observes."""
        goal = self._goals.get(where)
        return None if goal is None or goal.value is Special.ABSENT or not goal.perform else str(goal.value)

    def targets(self) -> tuple[str, ...]:
        """Every target that was ever named and is not forgotten."""
        return tuple(self._goals)

    def set(self, goals: Iterable[Goal], forget: Iterable[Target] = ()) -> None:
        """Takes over a decision's goals of this kind."""
        for target in forget:
            self._goals.pop(target.where, None)
        self._goals.update((goal.target.where, goal) for goal in goals)
        self._number += 1
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    async def changed(self, since: int) -> int:
        """Waits until there is another change than `since`; its number."""
        while self._number == since:
            one = asyncio.get_running_loop().create_future()
            self._waiting.append(one)
            await one
        return self._number

    def reached(self, where: str) -> None:
        """It is so in the world now."""
        if self._tell is not None:
            target = Target(self._kind, where)
            self._tell(Reached((target,), (target,)))

    def missed(self, where: str, why: str) -> None:
        """It could not be brought about this time."""
        if self._tell is not None:
            self._tell(Missed(((Target(self._kind, where), why),)))
