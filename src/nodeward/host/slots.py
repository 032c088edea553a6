"""Slots: each target's latest goal, performed until it is reached.

A slot holds one goal with its generation and back-off; a newer goal for the target replaces it. Each kind of goal has a
performer, which an edge brings. Goals are performed in batches on a lane, in the order they were decided, and their
outcomes return as Reached or Missed. The same code serves first writes, retries, restarts and drift repair. Goals of a
kind that an edge performs on the loop (`host.performers`) are only handed over.

Where a batch hangs in the kernel, the target it hangs at is quarantined until the hung call has come back: nobody else
touches it, so two writers never race. The rest of the batch is done by the next one.
"""

import asyncio
import errno
import heapq
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from nodeward.core.decision import Goal, Special, Target
from nodeward.core.errors import NodewardError
from nodeward.core.events import Missed, Reached
from nodeward.core.ports import Perform, Tell, Written
from nodeward.host.clock import Clock
from nodeward.host.lanes import GivenUpError, Lane


class ByEdge:
    """The newest goal of each target of one kind; a target is named by its `where`. Belongs to the loop's thread."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._goals: dict[str, Goal] = {}
        self._number = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._tell: Tell | None = None

    def connect(self, tell: Tell) -> None:
        """Sets who hears of outcomes."""
        self._tell = tell

    @property
    def number(self) -> int:
        """Which change this is; for `changed`."""
        return self._number

    def value(self, where: str) -> str | None:
        """The value that is wanted now; None for nothing, or where a feature only observes."""
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


log = logging.getLogger(__name__)
BATCH = 256
GATHER_S = 0.005
"""So long goals are gathered before the lane begins with them: a runtime that starts many containers does not share the
interpreter with writes for those that are about to go, and of several goals for one target the last is performed."""
FIRST_RETRY_NS = 50_000_000
LAST_RETRY_NS = 30_000_000_000


@dataclass(slots=True)
class _Slot:
    goal: Goal
    generation: int
    retry_at_ns: int = 0
    backoff_ns: int = FIRST_RETRY_NS
    wrote: bool = False
    idle: bool = False
    """Its feature only observes now: nothing is done, and what was written stays known."""

    @property
    def may_take_back(self) -> bool:
        """Whether the value there is of our making."""
        return self.wrote or self.goal.ours


@dataclass(slots=True)
class _Batch:
    """Goals on their way through the lane. The lane's thread writes `at` and `outcomes`, the loop `given_up`."""

    work: list[tuple[Target, int, Goal, bool]]
    outcomes: list[tuple[Target, int, Written | OSError]] = field(default_factory=list)
    at: Target | None = None
    """The target under way."""
    given_up: bool = False


def _now(call: Callable[[], None]) -> None:
    call()


class UnknownKindError(NodewardError):
    """A feature gives goals of a kind without a performer: the program was put together wrongly."""


class Slots:
    """All slots of one program. `later` calls back on the loop, once the goals are gathered (GATHER_S)."""

    def __init__(
        self,
        lane: Lane,
        performers: Mapping[str, Perform | ByEdge],
        clock: Clock,
        later: Callable[[Callable[[], None]], object] = _now,
    ) -> None:
        """`performers` by the kind of goal: on the lane, or an edge's on the loop."""
        self._lane, self._clock = lane, clock
        self.by_edge = {kind: one for kind, one in performers.items() if isinstance(one, ByEdge)}
        self._performers = {kind: one for kind, one in performers.items() if not isinstance(one, ByEdge)}
        self._later, self._gathers = later, False
        self._slots: dict[Target, _Slot] = {}
        self._dirty: dict[Target, None] = {}
        self._retries: list[tuple[int, Target]] = []
        self._quarantined: dict[Target, _Batch] = {}
        self._generation = 0
        self._under_way: _Batch | None = None
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []
        self._landings: list[asyncio.Future[None]] = []
        self._tell: Tell | None = None
        self._rearm: Callable[[], None] = lambda: None

    def connect(self, tell: Tell, rearm: Callable[[], None]) -> None:
        """Sets who hears of outcomes, and of a changed `next_due`."""
        self._tell, self._rearm = tell, rearm
        for edge in self.by_edge.values():
            edge.connect(tell)

    def require(self, feature: str, kinds: Iterable[str]) -> None:
        """Raises UnknownKindError where one of these kinds of the feature's goals has no performer."""
        for kind in kinds:
            if kind not in self._performers and kind not in self.by_edge:
                known = ", ".join((*self._performers, *self.by_edge))
                raise UnknownKindError(f"feature {feature}: nobody performs goals of kind {kind!r}; there are {known}")

    @property
    def count(self) -> int:
        """Slots held."""
        return len(self._slots)

    @property
    def targets(self) -> tuple[Target, ...]:
        """What the slots held are for."""
        return tuple(self._slots)

    @property
    def waiting(self) -> tuple[Target, ...]:
        """Targets whose goal is not reached yet."""
        late = [target for target, slot in self._slots.items() if slot.retry_at_ns or target in self._quarantined]
        return (*self._dirty, *late)

    @property
    def unreached(self) -> int:
        """Goals not reached yet."""
        return len(self.waiting)

    @property
    def quarantined(self) -> tuple[Target, ...]:
        """Targets at which a call hangs."""
        return tuple(self._quarantined)

    def set(self, goals: Iterable[Goal], forget: Iterable[Target] = ()) -> None:
        """Takes over a decision's goals."""
        goals, forget = list(goals), list(forget)
        for kind, edge in self.by_edge.items():
            mine = [goal for goal in goals if goal.target.kind == kind]
            gone = [target for target in forget if target.kind == kind]
            if mine or gone:
                edge.set(mine, gone)
        for target in forget:
            self._slots.pop(target, None)
            self._dirty.pop(target, None)
        for goal in goals:
            if goal.target.kind not in self.by_edge:
                for target in goal.targets():
                    self._set(target, goal)
        if self._dirty and not self._gathers:
            self._gathers = True
            self._later(self.begin)

    def _set(self, target: Target, goal: Goal) -> None:
        slot = self._slots.get(target)
        self._generation += 1
        if not goal.perform:
            if slot is not None:
                self._dirty.pop(target, None)
                slot.generation, slot.retry_at_ns, slot.idle = self._generation, 0, True
            return
        if slot is None:
            slot = self._slots[target] = _Slot(goal, self._generation)
        elif slot.goal.value != goal.value:
            slot.backoff_ns = FIRST_RETRY_NS
        slot.goal, slot.generation, slot.retry_at_ns, slot.idle = goal, self._generation, 0, False
        self._soon(target)

    def begin(self) -> None:
        """Starts the gathered work on the lane."""
        self._gathers = False
        self._run()
        self._free()

    async def tried(self, path: str) -> None:
        """Waits until every goal of this cgroup was reached, missed, or set apart. They are not gathered any longer."""
        if self._still(path):
            self._run()
            tried = asyncio.get_running_loop().create_future()
            self._waiting.append((path, tried))
            await tried

    async def landed(self, within_s: float) -> None:
        """Waits until the next batch has been performed, so long at most. Goals are not gathered any longer."""
        self._run()
        landed = asyncio.get_running_loop().create_future()
        self._landings.append(landed)
        await asyncio.wait((landed,), timeout=within_s)

    def _still(self, path: str) -> bool:
        """Whether a goal of this cgroup has yet to be tried."""
        now = self._under_way.work if self._under_way is not None else ()
        return any(target.where == path for target in (*self._dirty, *(target for target, _, _, _ in now)))

    def _free(self) -> None:
        """Ends the waits that have no reason any more."""
        waiting, self._waiting = self._waiting, []
        for path, tried in waiting:
            if tried.done():
                continue
            if self._still(path):
                self._waiting.append((path, tried))
            else:
                tried.set_result(None)

    def next_due_ns(self) -> int | None:
        """When the next retry is due."""
        while self._retries and not self._is_due(*self._retries[0]):
            heapq.heappop(self._retries)  # replaced, forgotten or tried meanwhile
        return self._retries[0][0] if self._retries else None

    def run_due(self) -> None:
        """Tries the goals that are due again."""
        now = self._clock.now_ns()
        while (due := self.next_due_ns()) is not None and due <= now:
            _, target = heapq.heappop(self._retries)
            self._slots[target].retry_at_ns = 0
            self._soon(target)
        self._run()

    def _soon(self, target: Target) -> None:
        """Puts the target last in the queue; one in quarantine follows when it is released."""
        self._dirty.pop(target, None)
        if target not in self._quarantined and not self._slots[target].idle:
            self._dirty[target] = None

    def _is_due(self, at_ns: int, target: Target) -> bool:
        slot = self._slots.get(target)
        return slot is not None and slot.retry_at_ns == at_ns

    def _run(self) -> None:
        if self._under_way is not None or not self._dirty:
            return
        chosen = [(target, self._slots[target]) for target in islice(self._dirty, BATCH)]
        batch = _Batch([(target, slot.generation, slot.goal, slot.may_take_back) for target, slot in chosen])
        for target, _ in chosen:
            del self._dirty[target]
        self._under_way = batch
        done, ended = partial(self._back, batch), partial(self._released, batch)
        if not self._lane.submit("goals", partial(self._do, batch), done, ended):
            self._back(batch, OSError(errno.EAGAIN, "the cgroup lane is full or hangs"))

    def _do(self, batch: _Batch) -> None:
        """On the lane."""
        for target, generation, goal, wrote in batch.work:
            batch.at = target
            if batch.given_up:
                return
            batch.outcomes.append((target, generation, self._perform(target, goal, wrote)))

    def _back(self, batch: _Batch, result: BaseException | None) -> None:
        self._under_way = None
        batch.given_up = isinstance(result, GivenUpError)  # first: the thread goes no further than what is read next
        outcomes = list(batch.outcomes)
        if batch.given_up and batch.at is not None:
            outcomes += self._quarantine(batch, len(outcomes))
        elif isinstance(result, BaseException):
            failure = result if isinstance(result, OSError) else OSError(errno.ETIMEDOUT, str(result))
            outcomes += [(target, number, failure) for target, number, _, _ in batch.work[len(outcomes) :]]
        self._landed(outcomes)
        landings, self._landings = self._landings, []
        for one in landings:
            if not one.done():
                one.set_result(None)
        if not self._gathers or self._waiting:
            self._run()
        self._free()
        self._rearm()

    def _quarantine(self, batch: _Batch, done: int) -> list[tuple[Target, int, Written | OSError]]:
        """Sets the target apart at which the batch hangs; what comes after it is done anew."""
        if done == len(batch.work):
            return []  # it came back just now
        target, generation, _, _ = batch.work[done]
        slot = self._slots.get(target)
        if slot is not None:
            generation = slot.generation  # a newer goal waits for the same call
        log.warning("goal=quarantined target=%s why='a call hangs in the kernel'", target)
        self._quarantined[target] = batch
        self._dirty.pop(target, None)
        for later, _, _, _ in batch.work[done + 1 :]:
            if later in self._slots:
                self._soon(later)
        return [
            (
                target,
                generation,
                OSError(errno.ETIMEDOUT, "a call hangs in the kernel; it is tried again once that has come back"),
            )
        ]

    def _released(self, batch: _Batch) -> None:
        """The hung call has come back."""
        for target in [held for held, by in self._quarantined.items() if by is batch]:
            log.warning("goal=released target=%s", target)
            del self._quarantined[target]
            slot = self._slots.get(target)
            if slot is None:
                continue
            wrote = [isinstance(done, Written) and done.wrote for name, _, done in batch.outcomes if name == target]
            slot.wrote, slot.retry_at_ns = slot.wrote or any(wrote), 0
            self._soon(target)
        self._run()
        self._rearm()

    def _perform(self, target: Target, goal: Goal, may_take_back: bool) -> Written | OSError:
        try:
            return self._performers[target.kind](target, goal, may_take_back)
        except OSError as error:
            return error
        except Exception as error:
            return OSError(errno.EINVAL, f"{type(error).__name__}: {error}")

    def _landed(self, outcomes: list[tuple[Target, int, Written | OSError]]) -> None:
        reached: list[Target] = []
        written: list[Target] = []
        missed: list[tuple[Target, str]] = []
        for target, generation, outcome in outcomes:
            slot = self._slots.get(target)
            if slot is None:
                continue
            slot.wrote = slot.wrote or (isinstance(outcome, Written) and outcome.wrote)
            if slot.generation != generation:
                continue
            if isinstance(outcome, OSError):
                missed.append((target, self._try_again(target, slot, outcome)))
                continue
            reached.append(target)
            if outcome.wrote:
                written.append(target)
            slot.backoff_ns = FIRST_RETRY_NS
            slot.wrote = slot.wrote or slot.goal.value is not Special.ABSENT
            if slot.goal.value is Special.ABSENT:
                self._slots.pop(target)
        if self._tell is not None and reached:
            self._tell(Reached(tuple(reached), tuple(written)))
        if self._tell is not None and missed:
            self._tell(Missed(tuple(missed)))

    def _try_again(self, target: Target, slot: _Slot, outcome: OSError) -> str:
        """Arms the slot's next try; why this one failed. A cgroup that is not there yet is no news."""
        if slot.backoff_ns == FIRST_RETRY_NS and outcome.errno not in (errno.ENOENT, errno.ENODEV):
            log.warning("goal=missed target=%s error=%s", target, outcome)
        slot.retry_at_ns = self._clock.now_ns() + slot.backoff_ns
        heapq.heappush(self._retries, (slot.retry_at_ns, target))
        slot.backoff_ns = min(slot.backoff_ns * 2, LAST_RETRY_NS)
        return outcome.strerror or os.strerror(outcome.errno or errno.EIO)
