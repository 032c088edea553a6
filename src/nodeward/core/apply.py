"""The root of every decision: `apply(state, event) -> (state', Decision)`.

Steps each domain in a fixed order, each seeing the slices that earlier ones have updated. A domain that raises keeps
its old slice, yields a Fault and is answered by its `on_error`; the others go on. Open asks are a root slice.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Generic

from nodeward.core import events as ev
from nodeward.core.decision import NOTHING, Adjustment, Commit, Decision, Fault, Final, Need
from nodeward.core.feature import Domain
from nodeward.core.refusal import Reason, Refusal
from nodeward.core.state import OpenAsk, S
from nodeward.core.tables import put, without

MAX_NEEDS = 2
"""An ask may wait for this many facts before it must be answered with what is known."""

Domains = tuple[Domain[S], ...]


@dataclass(frozen=True)
class Engine(Generic[S]):
    """Domains that decide together. `noted` is the state after an event, with what it adds for people."""

    domains: Domains[S]
    noted: Callable[[S, S, ev.Event, Decision], S]

    def apply(self, state: S, event: ev.Event) -> tuple[S, Decision]:
        """The state after `event` and everything that follows from it. Pure; `event` is stamped by the caller."""
        after, decision = _applied(state, event, self.domains)
        return self.noted(state, after, event, decision), decision

    def next_wake(self, state: S) -> int | None:
        """When the next Tick is due (CLOCK_BOOTTIME nanoseconds), None for never."""
        return min((at for domain in self.domains if (at := domain.next_wake(state)) is not None), default=None)


def _applied(state: S, event: ev.Event, domains: Domains[S]) -> tuple[S, Decision]:
    state = replace(state, seq=event.seq, at_ns=event.at_ns)
    if isinstance(event, ev.Question):
        return _answered(*_step_all(state, event, domains), event, event, domains)
    if not isinstance(event, ev.News):
        if isinstance(event, ev.NewSettings):
            state = replace(state, settings=event.settings)
        state, decision = _step_all(state, event, domains)
        if isinstance(event, ev.Abandoned):
            state = replace(state, asks=without(state.asks, (event.ask_id,)))
        return state, decision
    ask = state.asks.get(event.ask_id)
    if ask is None:
        return state, NOTHING  # the ask has ended meanwhile
    state = replace(state, asks=put(state.asks, event.ask_id, _with_news(ask, event)))
    question = replace(ask.question, at_ns=event.at_ns, wall_ns=event.wall_ns, seq=event.seq)
    return _answered(*_step_all(state, question, domains), question, None, domains)


def _with_news(ask: OpenAsk, event: ev.News) -> OpenAsk:
    match event:
        case ev.Expired():
            return replace(ask, expired=True)
        case ev.Committed():
            return replace(ask, committed=not event.error, commit_error=event.error)
        case _:
            return replace(ask, needs=ask.needs + 1)


def _answered(
    state: S, decision: Decision, question: ev.Question, new: ev.Question | None, domains: Domains[S]
) -> tuple[S, Decision]:
    """Ends the ask where there is a Final, and keeps it open (from now on, if it is new) where there is none."""
    answer = decision.answer
    if answer is None:
        answer = Final(Adjustment(), Reason("no-opinion"))
        decision = replace(decision, answer=answer)
    if isinstance(answer, Final):
        for domain in domains:
            if domain.answered is None:
                continue
            try:
                state = _with_slice(state, domain, domain.answered(state, question, answer))
            except Exception as error:  # as in a step: the others go on, and the answer stands
                fault = Fault(domain.name, f"{type(error).__name__}: {error}")
                decision = replace(decision, faults=(*decision.faults, fault))
        asks = without(state.asks, (question.ask_id,))
        return (state if asks is state.asks else replace(state, asks=asks)), decision
    if new is not None:
        state = replace(state, asks=put(state.asks, question.ask_id, _new_ask(new)))
    return state, decision


def _with_slice(state: S, domain: Domain[S], slice_: object) -> S:
    changed: Any = {domain.name: slice_}
    return state if slice_ is getattr(state, domain.name) else replace(state, **changed)


def _step_all(state: S, event: ev.Event, domains: Domains[S]) -> tuple[S, Decision]:
    merged, reserved, owners = NOTHING, False, dict[str, str]()
    for domain in domains:
        seen = event.of(domain.kinds) if domain.kinds and isinstance(event, ev.Reached | ev.Missed) else event
        if seen is None:
            continue
        try:
            slice_, decision = domain.step(state, seen)
        except Exception as error:  # a fault in one domain takes no other down
            decision = _faulted(state, domain, event, error)
        else:
            state = _with_slice(state, domain, slice_)
        if isinstance(decision.answer, Final) and isinstance(decision.answer.value, Adjustment):
            decision = _owned(decision, decision.answer.value, domain.name, owners)
        if merged is NOTHING and (decision.answer is None or isinstance(decision.answer, Final)):
            merged = decision
        elif decision is not NOTHING:
            merged = merge(merged, decision, _may_wait_for(state, event))
            reserved = reserved or isinstance(decision.answer, Commit)
    if (
        isinstance(event, ev.Question)
        and isinstance(merged.answer, Final)
        and (reserved or _is_refused(state, event, merged))
    ):
        return _given_back(state, event, merged, domains)
    return state, merged


def _owned(decision: Decision, given: Adjustment, name: str, owners: dict[str, str]) -> Decision:
    """Notes what the domain sets in `owners`; a fault for what an earlier one sets already, whose value stands."""
    keys = given.sets()
    twice = tuple(Fault("apply", f"{owners[key]} and {name} both set {key}") for key in keys if key in owners)
    for key in keys:
        owners.setdefault(key, name)
    return replace(decision, faults=decision.faults + twice) if twice else decision


def _is_refused(state: S, event: ev.Question, merged: Decision) -> bool:
    """Whether a container that was given something by one domain is not created, because another one refuses. What was
    made durable is never given back so."""
    final, ask = merged.answer, state.asks.get(event.ask_id)
    if ask is not None and ask.committed:
        return False
    return isinstance(event, ev.Creating) and isinstance(final, Final) and isinstance(final.value, Refusal)


def _given_back(state: S, question: ev.Question, merged: Decision, domains: Domains[S]) -> tuple[S, Decision]:
    """After a refusal that overtook what another domain has reserved: that domain hears that nobody waits any more."""
    if question.ask_id not in state.asks:
        state = replace(state, asks=put(state.asks, question.ask_id, _new_ask(question)))
    over = ev.Abandoned(question.ask_id, at_ns=question.at_ns, wall_ns=question.wall_ns, seq=question.seq)
    state, after = _step_all(state, over, domains)
    known = [fault.domain for fault in merged.faults]
    news = tuple(fault for fault in after.faults if fault.domain not in known)  # who failed fails again
    return state, replace(merge(merged, replace(after, answer=None, faults=news)), answer=merged.answer)


def _new_ask(question: ev.Question) -> OpenAsk:
    match question:
        case ev.Creating():
            return OpenAsk(creating=question)
        case ev.Updating():
            return OpenAsk(updating=question)
        case ev.Allocating():
            return OpenAsk(allocating=question)
        case ev.Starting():
            return OpenAsk(starting=question)
        case _:
            raise TypeError(f"{type(question).__name__} cannot be kept open")


Waits = tuple[type[Need] | type[Commit], ...]
BOTH: Waits = (Need, Commit)


def _may_wait_for(state: S, event: ev.Event) -> Waits:
    """What may still stand before the answer: at most MAX_NEEDS facts, then one Commit, and nothing once it expired."""
    ask = state.asks.get(event.ask_id) if isinstance(event, ev.Question) else None
    if ask is None:
        return BOTH
    if ask.expired or ask.committed or ask.commit_error:
        return ()
    return BOTH if ask.needs < MAX_NEEDS else (Commit,)


def _faulted(state: S, domain: Domain[S], event: ev.Event, error: Exception) -> Decision:
    fault = Fault(domain.name, f"{type(error).__name__}: {error}")
    answer = domain.on_fault(state, event, fault) if isinstance(event, ev.Question) else None
    return Decision(answer, faults=(fault,))


def merge(one: Decision, two: Decision, waits: Waits = BOTH) -> Decision:
    """Both decisions. Any refusal wins, else Needs, else Commits, else the Finals together."""
    return Decision(
        answer=_merge_answers(one, two, waits),
        goals=one.goals + two.goals,
        forget=one.forget + two.forget,
        faults=one.faults + two.faults,
        notes=one.notes + two.notes,
        calls=one.calls + two.calls,
    )


def _merge_answers(one: Decision, two: Decision, waits: Waits) -> Final | Need | Commit | None:
    answers = [answer for answer in (one.answer, two.answer) if answer is not None]
    finals = [answer for answer in answers if isinstance(answer, Final)]
    for final in finals:
        if isinstance(final.value, Refusal):
            return final
    for waiting in waits:
        for answer in answers:
            if isinstance(answer, waiting):
                return answer
    if len(finals) < 2:
        return finals[0] if finals else None
    value = reduce(Adjustment.beside, (final.value for final in finals if isinstance(final.value, Adjustment)))
    reason = next((f.reason for f in finals if f.reason.code not in ("fault", "no-opinion")), finals[0].reason)
    return Final(value, reason)
