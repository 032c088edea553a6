"""The root of every decision: `apply(state, event) -> (state', Decision)`.

Features hear an event in a fixed order, each seeing the slices that earlier ones have updated. One that raises keeps
its old slice, yields a Fault and is answered by its `on_fault`; the others go on. Open asks are a root slice.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, Generic

from nodeward.core import events as ev
from nodeward.core.decision import NOTHING, Adjustment, Commit, Decision, Fault, Final, Need
from nodeward.core.feature import Feature, Hear
from nodeward.core.refusal import Reason, Refusal
from nodeward.core.state import OpenAsk, S
from nodeward.core.tables import put, without

MAX_NEEDS = 2
"""An ask may wait for this many facts before it must be answered with what is known."""

Features = tuple[Feature[S], ...]
Hearers = Mapping[type[ev.Event], tuple[tuple[Feature[S], Hear[S]], ...]]
"""By the class of an event, who hears it and how, in order."""


@dataclass(frozen=True)
class Engine(Generic[S]):
    """Features that decide together. `noted` is the state after an event, with what it adds for people. It is called
    for the events in `notes`, for refusals and for faults."""

    features: Features[S]
    noted: Callable[[S, S, ev.Event, Decision], S]
    notes: tuple[type[ev.Event], ...]

    def apply(self, state: S, event: ev.Event) -> tuple[S, Decision]:
        """The state after `event` and everything that follows from it. Pure; `event` is stamped by the caller."""
        after, decision = _applied(state, event, self)
        is_refused = isinstance(decision.answer, Final) and isinstance(decision.answer.value, Refusal)
        if is_refused or decision.faults or isinstance(event, self.notes):
            after = self.noted(state, after, event, decision)
        return after, decision

    @cached_property
    def hearers(self) -> Hearers[S]:
        """Who hears what."""
        kinds = dict.fromkeys(kind for one in self.features for kind in one.hears)
        return {kind: tuple((one, one.hears[kind]) for one in self.features if kind in one.hears) for kind in kinds}

    def next_wake(self, state: S) -> int | None:
        """When the next Tick is due (CLOCK_BOOTTIME nanoseconds), None for never."""
        return min((at for one in self.features if (at := one.next_wake(state)) is not None), default=None)


def _applied(state: S, event: ev.Event, engine: Engine[S]) -> tuple[S, Decision]:
    state = replace(state, seq=event.seq, at_ns=event.at_ns)
    if isinstance(event, ev.Question):
        return _answered(*_heard(state, event, engine), event, event, engine)
    if not isinstance(event, ev.News):
        if isinstance(event, ev.NewSettings):
            state = replace(state, settings=event.settings)
        state, decision = _heard(state, event, engine)
        if isinstance(event, ev.Abandoned):
            state = replace(state, asks=without(state.asks, (event.ask_id,)))
        return state, decision
    ask = state.asks.get(event.ask_id)
    if ask is None:
        return state, NOTHING  # the ask has ended meanwhile
    state = replace(state, asks=put(state.asks, event.ask_id, _with_news(ask, event)))
    question = replace(ask.question, at_ns=event.at_ns, wall_ns=event.wall_ns, seq=event.seq)
    return _answered(*_heard(state, question, engine), question, None, engine)


def _with_news(ask: OpenAsk, event: ev.News) -> OpenAsk:
    match event:
        case ev.Expired():
            return replace(ask, expired=True)
        case ev.Committed():
            return replace(ask, committed=not event.error, commit_error=event.error)
        case _:
            return replace(ask, needs=ask.needs + 1)


def _answered(
    state: S, decision: Decision, question: ev.Question, new: ev.Question | None, engine: Engine[S]
) -> tuple[S, Decision]:
    """Ends the ask where there is a Final, and keeps it open (from now on, if it is new) where there is none."""
    answer = decision.answer
    if answer is None:
        answer = Final(Adjustment(), Reason("no-opinion"))
        decision = replace(decision, answer=answer)
    if isinstance(answer, Final):
        for feature in engine.features:
            if feature.answered is None:
                continue
            try:
                state = _with_slice(state, feature, feature.answered(state, question, answer))
            except Exception as error:  # as in a step: the others go on, and the answer stands
                fault = Fault(feature.name, f"{type(error).__name__}: {error}")
                decision = replace(decision, faults=(*decision.faults, fault))
        asks = without(state.asks, (question.ask_id,))
        return (state if asks is state.asks else replace(state, asks=asks)), decision
    if new is not None:
        state = replace(state, asks=put(state.asks, question.ask_id, _new_ask(new)))
    return state, decision


def _with_slice(state: S, feature: Feature[S], slice_: object) -> S:
    changed: Any = {feature.name: slice_}
    return state if slice_ is getattr(state, feature.name) else replace(state, **changed)


def _heard(state: S, event: ev.Event, engine: Engine[S]) -> tuple[S, Decision]:
    merged, reserved, owners = NOTHING, False, dict[str, str]()
    for feature, hear in engine.hearers.get(type(event), ()):
        seen = event.of(feature.kinds) if feature.kinds and isinstance(event, ev.Reached | ev.Missed) else event
        if seen is None:
            continue
        try:
            slice_, decision = hear(state, seen)
        except Exception as error:  # a fault in one feature takes no other down
            decision = _faulted(state, feature, event, error)
        else:
            state = _with_slice(state, feature, slice_)
        if isinstance(decision.answer, Final) and isinstance(decision.answer.value, Adjustment):
            decision = _owned(decision, decision.answer.value, feature.name, owners)
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
        return _given_back(state, event, merged, engine)
    return state, merged


def _owned(decision: Decision, given: Adjustment, name: str, owners: dict[str, str]) -> Decision:
    """Notes what the feature sets in `owners`; a fault for what an earlier one sets already, whose value stands."""
    keys = given.sets()
    twice = tuple(Fault("apply", f"{owners[key]} and {name} both set {key}") for key in keys if key in owners)
    for key in keys:
        owners.setdefault(key, name)
    return replace(decision, faults=decision.faults + twice) if twice else decision


def _is_refused(state: S, event: ev.Question, merged: Decision) -> bool:
    """Whether a container that was given something by one feature is not created, because another one refuses. What was
    made durable is never given back so."""
    final, ask = merged.answer, state.asks.get(event.ask_id)
    if ask is not None and ask.committed:
        return False
    return isinstance(event, ev.Creating) and isinstance(final, Final) and isinstance(final.value, Refusal)


def _given_back(state: S, question: ev.Question, merged: Decision, engine: Engine[S]) -> tuple[S, Decision]:
    """After a refusal that overtook what another feature has reserved: that one hears that nobody waits any more."""
    if question.ask_id not in state.asks:
        state = replace(state, asks=put(state.asks, question.ask_id, _new_ask(question)))
    over = ev.Abandoned(question.ask_id, at_ns=question.at_ns, wall_ns=question.wall_ns, seq=question.seq)
    state, after = _heard(state, over, engine)
    known = [fault.feature for fault in merged.faults]
    news = tuple(fault for fault in after.faults if fault.feature not in known)  # who failed fails again
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
        case ev.Preparing():
            return OpenAsk(preparing=question)
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


def _faulted(state: S, feature: Feature[S], event: ev.Event, error: Exception) -> Decision:
    fault = Fault(feature.name, f"{type(error).__name__}: {error}")
    answer = feature.on_fault(state, event, fault) if isinstance(event, ev.Question) else None
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
