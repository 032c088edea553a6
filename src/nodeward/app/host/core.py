"""The core: the only state, and the only place where it changes.

`decide(event)` is a plain synchronous call on the loop thread; call order is the total order. `ask(question)` returns
the Final at once, or an awaitable where a fact or a commit stands between. Effects never call back into a decision.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from threading import get_ident
from time import perf_counter_ns
from typing import Protocol

from nodeward.aio.clock import Clock
from nodeward.app.host.newest import Goals
from nodeward.engine.apply import DOMAINS, Domains, apply, foresee, next_wake
from nodeward.engine.show.explain import note_sentence
from nodeward.engine.state.root import State
from nodeward.model import events as ev
from nodeward.model.decision import Adjustment, Commit, Decision, Final, Need, PodEvent, Reason
from nodeward.model.workload import ContainerId, PodUid

log = logging.getLogger(__name__)
MOST_BITS = 30
"""A decision that takes longer than this many bits of nanoseconds (a second) is counted with those."""
LOOK_S = 1.0
"""While something is due the clock is looked at this often: boot time goes on while the machine sleeps, the loop's
timers do not."""
LATER_S = 0.01
"""What nobody waits for is done so much later: at once, it would take the processor from a runtime that has just been
answered and goes on. Later than a kernel's tick (4 ms, or 10): a timer before that is set in the hardware each time the
loop goes to sleep, which costs each call of a runtime 7 us in a virtual machine, often on the runtime's processor."""
MOST_OWED, MOST_UNWRITTEN = 4, 16
"""With so many creates answered and not booked, or so many steps decided and not written down, it is not put off any
longer."""
PIECE = 4
"""So many steps are written down at a time, some 40 us: a create that comes meanwhile waits for no more."""


class Facts(Protocol):
    """Fetches what a Need asks for. Tells what it found by itself; returns why it found nothing, empty for success."""

    async def fetch(self, fact: str, key: str) -> str: ...


class Recorder(Protocol):
    """Hears of every event with its decision, in order."""

    def __call__(self, event: ev.Event, decision: Decision, state: State) -> None: ...


class Performs(Protocol):
    """Takes over calls, without waiting; tells how each ended, later."""

    def __call__(self, calls: tuple[PodEvent, ...]) -> None: ...


class Core:
    """One engine state and everything that feeds and follows it."""

    def __init__(
        self,
        state: State,
        clock: Clock,
        slots: Goals,
        facts: Facts,
        commit: Callable[[str], Awaitable[str]],
        recorder: Recorder | None = None,
        domains: Domains = DOMAINS,
        calls: Performs | None = None,
    ) -> None:
        """`commit` makes a record durable; it returns why it could not, or nothing. `domains` are the engine's own, or
        a test's. `calls` is there where calls are performed at all."""
        self._state, self._clock, self._slots, self._facts = state, clock, slots, facts
        self._commit, self._recorder, self._domains, self._calls = commit, recorder, domains, calls
        self._seq, self._next_ask, self._inside = state.seq, 0, False
        self._owed: list[tuple[Callable[[], ev.Creating], Final]] = []
        self._waits, self._at_rest = False, False
        self._unwritten: list[tuple[ev.Event, Decision, State]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ns: int | None = None
        self._thread = get_ident()
        self.faults: dict[str, int] = {}
        self.asks: dict[str, int] = {}
        self.took: dict[type[ev.Event], list[int]] = {}
        """How long decisions took, by event: how many by the bits of their nanoseconds, and last the sum of these."""
        slots.connect(self.tell, self._rearm)

    @property
    def state(self) -> State:
        """The state now: a snapshot that never changes."""
        self._settle()
        return self._state

    def seq(self) -> int:
        """The sequence number of the last event."""
        self._settle()
        return self._seq

    @property
    def armed(self) -> bool:
        """Whether the timer runs."""
        return self._timer is not None

    def tell(self, event: ev.Event) -> int:
        """Decides on an event nobody waits for."""
        self.decide(event)
        return self._seq

    def decide(self, event: ev.Event, **ask_id: int) -> Decision:
        """Applies one event and hands its goals to the slots. `ask_id` belongs to the core's own questions."""
        self._settle()
        decision = self._decide(event, **ask_id)
        self._later(at_once=len(self._unwritten) == MOST_UNWRITTEN)
        return decision

    def _decide(self, event: ev.Event, **ask_id: int) -> Decision:
        if self._inside:
            raise RuntimeError("an effect called back into a decision")
        self._inside = True
        began_ns = perf_counter_ns()
        try:
            self._seq += 1
            clock = self._clock
            event = event.stamped(at_ns=clock.now_ns(), wall_ns=clock.wall_ns(), seq=self._seq, **ask_id)
            before = self._state
            self._state, decision = apply(before, event, self._domains)
        finally:
            self._inside = False
        spent_ns = perf_counter_ns() - began_ns
        took = self.took.get(type(event))
        if took is None:
            took = self.took[type(event)] = [0] * (MOST_BITS + 2)
        took[spent_ns.bit_length() if spent_ns >> MOST_BITS == 0 else MOST_BITS] += 1
        took[-1] += spent_ns
        self._follow(decision)
        self._unwritten.append((event, decision, before))
        return decision

    def ask(self, question: ev.Question, within_ns: int) -> Final | Awaitable[Final]:
        """The answer to a question, at once where nothing stands between."""
        self._next_ask += 1
        ask_id = self._next_ask
        answer = self.decide(question, ask_id=ask_id).answer
        if isinstance(answer, Final):
            self._count("at-once")
            return answer
        asked = asyncio.ensure_future(self._slow(ask_id, answer, within_ns))
        asked.add_done_callback(partial(self._over, ask_id))
        return asked

    def _over(self, ask_id: int, asked: asyncio.Future[Final]) -> None:
        """An ask that was cancelled before its task began is open still."""
        if ask_id in self._state.asks:
            self.decide(ev.Abandoned(ask_id))
            self._count("abandoned")

    def foresee(self, pod_uid: PodUid, container_id: ContainerId, name: str) -> Final | None:
        """What `ask` will answer to this creation if it is asked next, where that is plain. Nothing with domains of a
        test, which the engine's foresight does not know."""
        if self._domains is not DOMAINS:
            return None
        try:
            return foresee(self._state, pod_uid, container_id, name)
        except Exception:  # the same fault comes when it is decided, and is told there
            return None

    def book(self, question: Callable[[], ev.Creating], said: Final) -> None:
        """Decides on a create that is answered as foreseen: before anything else happens, and else when the runtime has
        had time to take the answer. Deciding at once would take the processor from it.

        Where a domain fails only then, what it could not do was answered already, and that is a fault of its own."""
        self._owed.append((question, said))
        self._later(at_once=len(self._owed) == MOST_OWED)

    def _settle(self) -> None:
        """Books what is owed, in order. What cannot be booked is a fault of its own: neither of the creates behind it,
        nor of whoever decides next. RuntimeError on another thread than the loop's: nothing may be decided there."""
        if get_ident() != self._thread:
            raise RuntimeError("the core was asked beside its loop")
        if not self._owed:
            return
        owed, self._owed = self._owed, []
        for question, said in owed:
            self._book(question, said)

    def _book(self, question: Callable[[], ev.Creating], said: Final) -> None:
        self._next_ask += 1
        try:
            asked = question()
            answer = self._decide(asked, ask_id=self._next_ask).answer
        except Exception as error:
            self._fault("booking")
            log.exception("booking=failed answered=%r error=%s", said, error)
            return
        self._count("at-once")
        if answer != said:
            self._fault("foreseen")
            log.error("container=%s foreseen=%r decided=%r", asked.container.id, said, answer)

    def wake(self) -> None:
        """Does what is due: the engine's Tick and the slots' retries. The one timer calls this."""
        self._timer = self._armed_ns = None
        due = next_wake(self._state)
        if due is not None and due <= self._clock.now_ns():
            self.decide(ev.Tick())
        self._slots.run_due()
        self._rearm()

    def next_due_ns(self) -> int | None:
        """When `wake` is wanted next."""
        times = [at for at in (next_wake(self._state), self._slots.next_due_ns()) if at is not None]
        return min(times) if times else None

    def close(self) -> None:
        """Writes down what is left, and stops the timer."""
        self._catch_up()
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
        if isinstance(answer, Final):
            return answer
        return Final(Adjustment(), Reason("no-opinion"))

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

    def _write_down(self, steps: int) -> None:
        """The oldest steps that are not written; then what they made due is known to the timer."""
        written, self._unwritten = self._unwritten[:steps], self._unwritten[steps:]
        if self._recorder is not None:
            for event, decision, before in written:
                try:
                    self._recorder(event, decision, before)
                except Exception as error:  # a decision's goals do not depend on its record
                    self._fault("record")
                    log.exception("record=failed event=%s error=%s", type(event).__name__, error)
        self._rearm()

    def _later(self, *, at_once: bool) -> None:
        """Has the rest done soon, or as soon as the loop has written what was answered."""
        if self._at_rest or (self._waits and not at_once):
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # a test or a simulation without a loop
            self._catch_up()
            return
        if at_once:
            self._at_rest = True
            loop.call_soon(self._do_rest)
        else:
            self._waits = True
            loop.call_later(LATER_S, self._waited)

    def _waited(self) -> None:
        self._waits = False
        if not self._at_rest:
            self._do_rest()

    def _do_rest(self) -> None:
        """A piece of what a runtime need not wait for: it has its answer before its create is booked, the record
        written, and the timer set. Between two pieces the loop hears what the runtime asks meanwhile."""
        self._at_rest = False  # a fault in a piece ends this round of them, and not every later one
        if self._owed:
            self._book(*self._owed.pop(0))
        if not self._owed or len(self._unwritten) >= MOST_UNWRITTEN:
            self._write_down(max(PIECE, len(self._unwritten) // 4))
        self._at_rest = bool(self._owed or self._unwritten)
        if self._at_rest:
            asyncio.get_running_loop().call_soon(self._do_rest)

    def _catch_up(self) -> None:
        self._settle()
        self._write_down(len(self._unwritten))

    def _follow(self, decision: Decision) -> None:
        for note in decision.notes:
            log.warning("note=%s what=%r", note.code, note_sentence(note))
        for fault in decision.faults:
            self._fault(fault.domain)
            log.error("domain=%s fault=%s", fault.domain, fault.error)
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


async def _without_fault(asked: Awaitable[str]) -> str:
    """What it says, or how it failed: an ask ends, whatever its neighbours do."""
    try:
        return await asked
    except TimeoutError:
        raise  # the deadline's
    except Exception as error:
        log.exception("ask=faulted error=%s", error)
        return f"{type(error).__name__}: {error}"
