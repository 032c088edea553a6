"""Slots: each target's latest goal, performed until it is reached.

A slot holds one goal with its generation and back-off; a newer goal for the target replaces it. Goals are performed in
batches on the cgroup lane, in the order they were decided, and their outcomes return as Reached or Missed. The same
code serves first writes, retries, restarts and drift repair.
"""

import errno
import heapq
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from nodeward.aio.clock import Clock
from nodeward.aio.hostfs import HostFiles
from nodeward.aio.lanes import Lane
from nodeward.app.undo import UndoList
from nodeward.edges.cgroups import writer
from nodeward.model.decision import Goal, Special
from nodeward.model.events import Missed, Reached
from nodeward.model.ports import Tell

BATCH = 256
FIRST_RETRY_NS = 50_000_000
LAST_RETRY_NS = 30_000_000_000


@dataclass(slots=True)
class _Slot:
    goal: Goal
    generation: int
    retry_at_ns: int = 0
    backoff_ns: int = FIRST_RETRY_NS
    wrote: bool = False


class Slots:
    """All slots of one program."""

    def __init__(self, lane: Lane, files: HostFiles, root: str, undo: UndoList, clock: Clock) -> None:
        self._lane, self._files, self._root, self._undo, self._clock = lane, files, root, undo, clock
        self._slots: dict[str, _Slot] = {}
        self._dirty: dict[str, None] = {}
        self._retries: list[tuple[int, str]] = []
        self._generation = 0
        self._busy = False
        self._tell: Tell | None = None
        self._rearm: Callable[[], None] = lambda: None

    def connect(self, tell: Tell, rearm: Callable[[], None]) -> None:
        """Where outcomes go, and whom to tell that `next_due` changed."""
        self._tell, self._rearm = tell, rearm

    @property
    def count(self) -> int:
        """Slots held."""
        return len(self._slots)

    @property
    def unreached(self) -> int:
        """Goals not reached yet."""
        return len(self._dirty) + sum(1 for slot in self._slots.values() if slot.retry_at_ns)

    def set(self, goals: Iterable[Goal], forget: Iterable[str] = ()) -> None:
        """Takes over a decision's goals."""
        for target in forget:
            self._slots.pop(target, None)
            self._dirty.pop(target, None)
        for goal in goals:
            if not goal.perform:
                continue
            self._generation += 1
            self._dirty.pop(goal.target, None)
            self._dirty[goal.target] = None
            slot = self._slots.get(goal.target)
            if slot is None:
                self._slots[goal.target] = _Slot(goal, self._generation)
                continue
            if slot.goal.value != goal.value:
                slot.backoff_ns = FIRST_RETRY_NS
            slot.goal, slot.generation, slot.retry_at_ns = goal, self._generation, 0
        self._run()

    def next_due_ns(self) -> int | None:
        """When the next retry is due."""
        while self._retries and not self._is_due(*self._retries[0]):
            heapq.heappop(self._retries)  # replaced, forgotten or tried meanwhile
        return self._retries[0][0] if self._retries else None

    def run_due(self) -> None:
        """Tries again what is due."""
        now = self._clock.now_ns()
        while (due := self.next_due_ns()) is not None and due <= now:
            _, target = heapq.heappop(self._retries)
            self._slots[target].retry_at_ns = 0
            self._dirty[target] = None
        self._run()

    def _is_due(self, at_ns: int, target: str) -> bool:
        slot = self._slots.get(target)
        return slot is not None and slot.retry_at_ns == at_ns

    def _run(self) -> None:
        if self._busy:
            return
        if not self._dirty:
            return
        batch = [(target, self._slots[target]) for target in islice(self._dirty, BATCH)]
        work = [(target, slot.generation, slot.goal, slot.wrote) for target, slot in batch]
        for target, _ in batch:
            del self._dirty[target]

        def job() -> list[tuple[str, int, writer.Written | OSError]]:
            return [(target, generation, self._perform(goal, wrote)) for target, generation, goal, wrote in work]

        def done(result: list[tuple[str, int, writer.Written | OSError]] | BaseException) -> None:
            self._busy = False
            if isinstance(result, BaseException):
                failure = result if isinstance(result, OSError) else OSError(errno.ETIMEDOUT, str(result))
                result = [(target, generation, failure) for target, generation, _, _ in work]
            for target, generation, outcome in result:
                self._landed(target, generation, outcome)
            self._run()
            self._rearm()

        self._busy = True
        if not self._lane.submit("goals", job, done):
            done(OSError(errno.EAGAIN, "the cgroup lane is full"))

    def _perform(self, goal: Goal, wrote: bool) -> writer.Written | OSError:
        kind, _, rest = goal.target.partition(":")
        try:
            if kind == "subtree":
                if writer.subtree_has_misc(self._files, self._root, rest):
                    return writer.Written(wrote=False, old="present")
                if goal.undo:
                    self._undo.remember(goal.target, "absent")
                return writer.enable_misc(self._files, self._root, rest)
            resource, _, path = rest.partition(":")
            if goal.value is Special.ABSENT:
                if not wrote:
                    return writer.Written(wrote=False, old="not ours")
                return writer.set_limit(self._files, self._root, path, resource, "max")
            return writer.set_limit(self._files, self._root, path, resource, str(goal.value))
        except OSError as error:
            if goal.value is Special.ABSENT and error.errno in (errno.ENOENT, errno.ENODEV):
                return writer.Written(wrote=False, old="gone")  # the limit went with its cgroup, or the controller
            return error
        except Exception as error:
            return OSError(errno.EINVAL, f"{type(error).__name__}: {error}")

    def _landed(self, target: str, generation: int, outcome: writer.Written | OSError) -> None:
        slot = self._slots.get(target)
        if slot is None:
            return
        slot.wrote = slot.wrote or (isinstance(outcome, writer.Written) and outcome.wrote)
        if slot.generation != generation:
            return
        if isinstance(outcome, OSError):
            slot.retry_at_ns = self._clock.now_ns() + slot.backoff_ns
            heapq.heappush(self._retries, (slot.retry_at_ns, target))
            slot.backoff_ns = min(slot.backoff_ns * 2, LAST_RETRY_NS)
            number = outcome.errno or errno.EIO
            why = outcome.strerror or os.strerror(number)
            self._say(Missed(target, generation, number, why))
            return
        slot.backoff_ns = FIRST_RETRY_NS
        slot.wrote = slot.wrote or outcome.wrote or slot.goal.value is not Special.ABSENT
        if slot.goal.value is Special.ABSENT:
            self._slots.pop(target)
        self._say(Reached(target, generation, outcome.wrote))

    def _say(self, event: Reached | Missed) -> None:
        if self._tell is not None:
            self._tell(event)
