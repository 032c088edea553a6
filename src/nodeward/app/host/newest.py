"""Goals that an edge performs on the loop's thread: a device list for kubelet, an object in the API server.

`app.host.slots` performs what is written to cgroups. For the kinds named here it only hands the newest value of each
target over, and the edge says what became of it. So restart, retry and repair are the edge's own, and
level-triggered too.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from nodeward.model.decision import Goal, Special
from nodeward.model.events import Missed, Reached
from nodeward.model.ports import Tell

if TYPE_CHECKING:
    from nodeward.app.host.slots import Slots


class Newest:
    """The newest goal of each target of one kind. Belongs to the loop's thread."""

    def __init__(self) -> None:
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

    def value(self, target: str) -> str | None:
        """What is to be there now; None for nothing, or where a domain only observes."""
        goal = self._goals.get(target)
        return None if goal is None or goal.value is Special.ABSENT or not goal.perform else str(goal.value)

    def targets(self) -> tuple[str, ...]:
        """Every target that was ever named and is not forgotten."""
        return tuple(self._goals)

    def set(self, goals: Iterable[Goal], forget: Iterable[str] = ()) -> None:
        """Takes over a decision's goals of this kind."""
        for target in forget:
            self._goals.pop(target, None)
        self._goals.update((goal.target, goal) for goal in goals)
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

    def reached(self, target: str) -> None:
        """It is so in the world now."""
        if self._tell is not None:
            self._tell(Reached((target,), (target,)))

    def missed(self, target: str, why: str) -> None:
        """It could not be brought about this time."""
        if self._tell is not None:
            self._tell(Missed({target: why}))


class Goals(Protocol):
    """What a core hands its goals to."""

    def connect(self, tell: Tell, rearm: "Rearm") -> None: ...

    def set(self, goals: Iterable[Goal], forget: Iterable[str] = ()) -> None: ...

    def next_due_ns(self) -> int | None: ...

    def run_due(self) -> None: ...


class Rearm(Protocol):
    """Says that `next_due_ns` may be another."""

    def __call__(self) -> None: ...


class ByKind:
    """Goals on their way to whoever performs their kind, the word before the target's first colon."""

    def __init__(self, slots: "Slots", others: Mapping[str, Newest]) -> None:
        self._slots, self._others = slots, others

    def connect(self, tell: Tell, rearm: Rearm) -> None:
        """Where outcomes go, and whom to tell of another time that is due."""
        self._slots.connect(tell, rearm)
        for other in self._others.values():
            other.connect(tell)

    def set(self, goals: Iterable[Goal], forget: Iterable[str] = ()) -> None:
        """Takes over a decision's goals."""
        goals, forget = list(goals), list(forget)
        for kind, other in self._others.items():
            mine = [goal for goal in goals if _kind(goal.target) == kind]
            gone = [target for target in forget if _kind(target) == kind]
            if mine or gone:
                other.set(mine, gone)
                goals = [goal for goal in goals if _kind(goal.target) != kind]
                forget = [target for target in forget if _kind(target) != kind]
        if goals or forget:
            self._slots.set(goals, forget)

    def next_due_ns(self) -> int | None:
        """When the next retry of the slots is due; the others retry by themselves."""
        return self._slots.next_due_ns()

    def run_due(self) -> None:
        """Tries again what is due."""
        self._slots.run_due()


def _kind(target: str) -> str:
    return target.partition(":")[0]
