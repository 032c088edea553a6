"""Runs the engine: holds the only state, and is the only place where it changes.

`decide(event)` is a plain synchronous call on the loop thread; call order is the total order. `ask(question)` returns
the Final at once, or an awaitable where a fact or a commit stands between. Effects never call back into a decision.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from threading import get_ident
from time import perf_counter_ns
from typing import Generic, Protocol, TypeVar

from nodeward.core import events as ev
from nodeward.core.apply import Engine
from nodeward.core.decision import Adjustment, Commit, Decision, Final, Goal, Need, PodEvent, Target
from nodeward.core.ports import Tell
from nodeward.core.refusal import Reason
from nodeward.core.state import S
from nodeward.host.clock import Clock

T = TypeVar("T")
LATER_S = 0.01
"""Later than a kernel's tick (4 ms, or 10): a timer before that is set in the hardware each time the loop goes to
sleep, which costs each call of a runtime 7 us in a virtual machine, often on the runtime's processor."""
MOST = 16
"""With so much to do it is not put off any longer."""
PIECE = 4
"""So much is done at a time, some 40 us of records: a create that comes meanwhile waits for no more."""


class Afterwards(Generic[T]):
    """The work to do after an answer, oldest first. Belongs to the loop's thread."""

    def __init__(self, do: Callable[[list[T]], None]) -> None:
        """`do` takes some of it, perhaps none, and does not raise."""
        self._do = do
        self._left: list[T] = []
        self._waits = self._at_work = False

    def put(self, one: T) -> None:
        """Has it done later; at once where no loop runs, in a test or a simulation."""
        self._left.append(one)
        if self._at_work or (self._waits and len(self._left) < MOST):
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.finish()
            return
        if len(self._left) >= MOST:
            self._at_work = True
            loop.call_soon(self._piece)
        else:
            self._waits = True
            loop.call_later(LATER_S, self._waited)

    def finish(self) -> None:
        """Does all that is left."""
        self._take(len(self._left))

    def _waited(self) -> None:
        self._waits = False
        if not self._at_work:
            self._piece()

    def _piece(self) -> None:
        """Between two pieces the loop hears what the runtime asks meanwhile."""
        self._take(max(PIECE, len(self._left) // 4))
        self._at_work = bool(self._left)
        if self._at_work:
            asyncio.get_running_loop().call_soon(self._piece)

    def _take(self, count: int) -> None:
        taken, self._left = self._left[:count], self._left[count:]
        self._do(taken)


log = logging.getLogger(__name__)
MOST_BITS = 30
"""A decision that takes longer than this many bits of nanoseconds (a second) is counted with those."""
LOOK_S = 1.0
"""While something is due the clock is looked at this often: boot time goes on while the machine sleeps, the loop's
timers do not."""


class Goals(Protocol):
    """Takes goals (`host.slots`). `connect` is told where outcomes go, and whom to tell that `next_due_ns` may be
    another."""

    def connect(self, tell: Tell, rearm: Callable[[], None]) -> None: ...

    def set(self, goals: Iterable[Goal], forget: Iterable[Target] = ()) -> None: ...

    def next_due_ns(self) -> int | None: ...

    def run_due(self) -> None: ...


class Facts(Protocol):
    """Fetches what a Need asks for. Tells what it found by itself; returns why it found nothing, empty for success."""

    async def fetch(self, fact: str, key: str) -> str: ...


class Recorder(Protocol):
    """Hears of every event with its decision, in order, and of the state before it."""

    def __call__(self, event: ev.Event, decision: Decision, state: object) -> None: ...


class Performs(Protocol):
    """Takes over calls, without waiting; tells how each ended, later."""

    def __call__(self, calls: tuple[PodEvent, ...]) -> None: ...


class OnDecision(Protocol):
    """Hears of every decision, and how long it took; must be quick."""

    def __call__(self, event: ev.Event, decision: Decision, took_ns: int) -> None: ...


Step = tuple[ev.Event, Decision, object]
"""An event, what was decided, and the state before."""


class Core(Generic[S]):
    """One engine state and everything that feeds and follows it."""

    def __init__(
        self,
        state: S,
        engine: Engine[S],
        clock: Clock,
        slots: Goals,
        facts: Facts,
        commit: Callable[[str], Awaitable[str]],
        recorder: Recorder | None = None,
        calls: Performs | None = None,
        seen: OnDecision | None = None,
    ) -> None:
        """`commit` makes a record durable; it returns why it could not, or nothing. `calls` is there where calls are
        performed at all. `seen` follows the decisions for people."""
        self._state, self._clock, self._slots, self._facts = state, clock, slots, facts
        self._commit, self._recorder, self._engine, self._calls = commit, recorder, engine, calls
        self._seen = seen or _nobody
        self._seq, self._next_ask, self._inside = state.seq, 0, False
        self._afterwards: Afterwards[Step] = Afterwards(self._write_down)
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ns: int | None = None
        self._thread = get_ident()
        self.faults: dict[str, int] = {}
        self.asks: dict[str, int] = {}
        self.followers: list[Callable[[], None]] = []
        """Called soon after the state has changed, once for some events; they only take note."""
        self.took: dict[type[ev.Event], list[int]] = {}
        """How long decisions took, by event: how many by the bits of their nanoseconds, and last the sum of these."""
        self.settles: Callable[[], Awaitable[None] | None] = _nothing
        """What an answer waits for beside its decision: until what was decided stands on disk."""
        slots.connect(self.tell, self._rearm)

    @property
    def state(self) -> S:
        """The state now: a snapshot that never changes."""
        self._on_its_thread()
        return self._state

    def seq(self) -> int:
        """The sequence number of the last event."""
        return self._seq

    @property
    def armed(self) -> bool:
        """Whether the timer runs."""
        return self._timer is not None

    def tell(self, event: ev.Event) -> int:
        """Decides on an event that has no caller."""
        self.decide(event)
        return self._seq

    def decide(self, event: ev.Event, **ask_id: int) -> Decision:
        """Applies one event and hands its goals to the slots. `ask_id` belongs to the core's own questions."""
        self._on_its_thread()
        if self._inside:
            raise RuntimeError("an effect called back into a decision")
        self._inside = True
        began_ns = perf_counter_ns()
        try:
            self._seq += 1
            clock = self._clock
            event = event.stamped(at_ns=clock.now_ns(), wall_ns=clock.wall_ns(), seq=self._seq, **ask_id)
            before = self._state
            self._state, decision = self._engine.apply(before, event)
        finally:
            self._inside = False
        spent_ns = perf_counter_ns() - began_ns
        took = self.took.get(type(event))
        if took is None:
            took = self.took[type(event)] = [0] * (MOST_BITS + 2)
        took[spent_ns.bit_length() if spent_ns >> MOST_BITS == 0 else MOST_BITS] += 1
        took[-1] += spent_ns
        self._seen(event, decision, spent_ns)
        self._follow(decision)
        self._afterwards.put((event, decision, before))
        return decision

    def ask(self, question: ev.Question, within_ns: int) -> Final | Awaitable[Final]:
        """Answers a question, at once unless it waits for a fact or a record."""
        self._next_ask += 1
        ask_id = self._next_ask
        answer = self.decide(question, ask_id=ask_id).answer
        if isinstance(answer, Final):
            self._count("at-once")
            settled = self.settles()
            return answer if settled is None else asyncio.ensure_future(_after(settled, answer))
        asked = asyncio.ensure_future(self._slow(ask_id, answer, within_ns))
        asked.add_done_callback(partial(self._over, ask_id))
        return asked

    def _over(self, ask_id: int, asked: asyncio.Future[Final]) -> None:
        """An ask that was cancelled before its task began is open still."""
        if ask_id in self._state.asks:
            self.decide(ev.Abandoned(ask_id))
            self._count("abandoned")

    def wake(self) -> None:
        """Does the work that is due: the engine's Tick and the slots' retries. The one timer calls this."""
        self._timer = self._armed_ns = None
        due = self._engine.next_wake(self._state)
        if due is not None and due <= self._clock.now_ns():
            self.decide(ev.Tick())
        self._slots.run_due()
        self._rearm()

    def next_due_ns(self) -> int | None:
        """When `wake` is wanted next."""
        times = [at for at in (self._engine.next_wake(self._state), self._slots.next_due_ns()) if at is not None]
        return min(times) if times else None

    def close(self) -> None:
        """Writes the rest of the record, and stops the timer."""
        self._afterwards.finish()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _slow(self, ask_id: int, answer: Final | Need | Commit | None, within_ns: int) -> Final:
        try:
            async with asyncio.timeout(within_ns / 1e9):
                while not isinstance(answer, Final):
                    answer = (await self._between(ask_id, answer)).answer
            self._count("after-a-fact")
        except TimeoutError:
            answer = self.decide(ev.Expired(ask_id)).answer
            self._count("expired")
        except asyncio.CancelledError:
            self.decide(ev.Abandoned(ask_id))
            self._count("abandoned")
            raise
        final = answer if isinstance(answer, Final) else Final(Adjustment(), Reason("no-opinion"))
        settled = self.settles()
        return final if settled is None else await _after(settled, final)

    async def _between(self, ask_id: int, answer: Need | Commit | None) -> Decision:
        if isinstance(answer, Commit):
            return self.decide(ev.Committed(ask_id, await _without_fault(self._commit(answer.record))))
        if not isinstance(answer, Need):
            return self.decide(ev.Expired(ask_id))
        try:
            async with asyncio.timeout(answer.within_ns / 1e9):
                why = await _without_fault(self._facts.fetch(answer.fact, answer.key))
        except TimeoutError:
            why = "late"
        return self.decide(ev.FactRead(ask_id, why))

    def _write_down(self, steps: list[Step]) -> None:
        """Records the steps; then what they made due is known to the timer."""
        if self._recorder is not None:
            for event, decision, before in steps:
                try:
                    self._recorder(event, decision, before)
                except Exception as error:  # a decision's goals do not depend on its record
                    self._fault("record")
                    log.exception("record=failed event=%s error=%s", type(event).__name__, error)
        for follower in self.followers:
            follower()
        self._rearm()

    def _on_its_thread(self) -> None:
        """RuntimeError on another thread than the loop's: nothing may be decided there."""
        if get_ident() != self._thread:
            raise RuntimeError("the core was asked beside its loop")

    def _follow(self, decision: Decision) -> None:
        for fault in decision.faults:
            self._fault(fault.feature)
            log.error("feature=%s fault=%s", fault.feature, fault.error)
        if decision.goals or decision.forget:
            self._slots.set(decision.goals, decision.forget)
        if decision.calls and self._calls is not None:
            self._calls(decision.calls)

    def _fault(self, where: str) -> None:
        self.faults[where] = self.faults.get(where, 0) + 1

    def _count(self, outcome: str) -> None:
        self.asks[outcome] = self.asks.get(outcome, 0) + 1

    def _rearm(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # a test or a simulation that calls `wake` itself
        due = self.next_due_ns()
        if due is None or (self._armed_ns is not None and self._armed_ns <= due):
            return  # a timer that comes too early only looks
        if self._timer is not None:
            self._timer.cancel()
        self._armed_ns = due
        wait_s = max(0.0, (due - self._clock.now_ns()) / 1e9)
        self._timer = loop.call_later(min(wait_s, LOOK_S), self.wake)


def _nobody(event: ev.Event, decision: Decision, took_ns: int) -> None:
    """Nobody follows."""


def _nothing() -> None:
    """Nothing is kept."""


async def _after(settled: Awaitable[None], answer: Final) -> Final:
    """The answer, at once where who asked waits no longer: it is decided, and counts as given."""
    with suppress(asyncio.CancelledError):
        await settled
    return answer


async def _without_fault(asked: Awaitable[str]) -> str:
    """What it says, or how it failed: an ask ends, whatever its neighbours do."""
    try:
        return await asked
    except TimeoutError:
        raise  # the deadline's
    except Exception as error:
        log.exception("ask=faulted error=%s", error)
        return f"{type(error).__name__}: {error}"
