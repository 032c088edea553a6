"""The root of every decision: `apply(state, event) -> (state', Decision)`.

Steps each domain in a fixed order, each seeing the slices that earlier ones have updated. A domain that raises keeps
its old slice, yields a Fault and is answered by its `on_error`; the others go on. Open asks are a root slice.
"""

from collections.abc import Callable

from nodeward.engine.ledger.step import next_wake as ledger_wake
from nodeward.engine.ledger.step import step as step_ledger
from nodeward.engine.limits.step import step as step_limits
from nodeward.engine.limits.want import declaration
from nodeward.engine.notices.step import step as step_notices
from nodeward.engine.pods.step import TENTATIVE_NS
from nodeward.engine.pods.step import step as step_pods
from nodeward.engine.state.root import OpenAsk, State
from nodeward.engine.tables import put, without
from nodeward.model import events as ev
from nodeward.model.decision import NOTHING, Adjustment, Commit, Decision, Fault, Final, Need, Reason, Refusal, Refused
from nodeward.model.settings import Mode, OnError
from nodeward.model.value import replace

MAX_NEEDS = 2
"""An ask may wait for this many facts before it must be answered with what is known."""

Step = Callable[[State, ev.Event], tuple[State, Decision]]


def _notices(state: State, event: ev.Event) -> tuple[State, Decision]:
    slice_, decision = step_notices(state, event)
    return (state if slice_ is state.notices else replace(state, notices=slice_)), decision


def _pods(state: State, event: ev.Event) -> tuple[State, Decision]:
    slice_, decision = step_pods(state, event)
    return (state if slice_ is state.pods else replace(state, pods=slice_)), decision


def _limits(state: State, event: ev.Event) -> tuple[State, Decision]:
    slice_, decision = step_limits(state, event)
    return (state if slice_ is state.limits else replace(state, limits=slice_)), decision


def _ledger(state: State, event: ev.Event) -> tuple[State, Decision]:
    slice_, decision = step_ledger(state, event)
    return (state if slice_ is state.ledger else replace(state, ledger=slice_)), decision


Domains = tuple[tuple[str, Step], ...]
DOMAINS: Domains = (("notices", _notices), ("pods", _pods), ("limits", _limits), ("ledger", _ledger))
"""Notices come first: what an event changes is seen by what was before it."""


def apply(state: State, event: ev.Event, domains: Domains = DOMAINS) -> tuple[State, Decision]:
    """The state after `event` and everything that follows from it. Pure; `event` is stamped by the caller."""
    state = replace(state, seq=event.seq, at_ns=event.at_ns)
    if isinstance(event, ev.Question):
        return _answered(*_step_all(state, event, domains), event.ask_id, event)
    if not isinstance(event, ev.News):
        if isinstance(event, ev.SettingsChanged):
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
    return _answered(*_step_all(state, question, domains), event.ask_id, None)


def _with_news(ask: OpenAsk, event: ev.News) -> OpenAsk:
    match event:
        case ev.Expired():
            return replace(ask, expired=True)
        case ev.Committed():
            return replace(ask, committed=not event.error, commit_error=event.error)
        case _:
            return replace(ask, needs=ask.needs + 1)


def _answered(state: State, decision: Decision, ask_id: int, new: ev.Question | None) -> tuple[State, Decision]:
    """Ends the ask where there is a Final, and keeps it open (from now on, if it is new) where there is none."""
    answer = decision.answer
    if answer is None:
        answer = Final(Adjustment(), Reason("no-opinion"))
        decision = replace(decision, answer=answer)
    if isinstance(answer, Final):
        return (replace(state, asks=without(state.asks, (ask_id,))) if ask_id in state.asks else state), decision
    if new is not None:
        state = replace(state, asks=put(state.asks, ask_id, _new_ask(new)))
    return state, decision


def _step_all(state: State, event: ev.Event, domains: Domains) -> tuple[State, Decision]:
    merged, reserved = NOTHING, False
    for name, domain in domains:
        try:
            state, decision = domain(state, event)
        except Exception as error:  # a fault in one domain takes no other down (DESIGN 2)
            decision = _faulted(state, name, event, error)
        if merged is NOTHING and (decision.answer is None or isinstance(decision.answer, Final)):
            merged = decision
        elif decision is not NOTHING:
            merged = merge(merged, decision, _may_wait_for(state, event))
            reserved = reserved or isinstance(decision.answer, Commit)
    if reserved and isinstance(merged.answer, Final) and isinstance(event, ev.Question):
        return _given_back(state, event, merged, domains)
    return state, merged


def _given_back(state: State, question: ev.Question, merged: Decision, domains: Domains) -> tuple[State, Decision]:
    """After a Commit that another domain's refusal overtook: who reserved for it hears that nobody waits any more."""
    if question.ask_id not in state.asks:
        state = replace(state, asks=put(state.asks, question.ask_id, _new_ask(question)))
    over = ev.Abandoned(question.ask_id, at_ns=question.at_ns, wall_ns=question.wall_ns, seq=question.seq)
    state, after = _step_all(state, over, domains)
    return state, replace(merge(merged, replace(after, answer=None)), answer=merged.answer)


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


def _may_wait_for(state: State, event: ev.Event) -> Waits:
    """What may still stand before the answer: at most MAX_NEEDS facts, then one Commit, and nothing once it expired."""
    ask = state.asks.get(event.ask_id) if isinstance(event, ev.Question) else None
    if ask is None:
        return BOTH
    if ask.expired or ask.committed or ask.commit_error:
        return ()
    return BOTH if ask.needs < MAX_NEEDS else (Commit,)


def _faulted(state: State, name: str, event: ev.Event, error: Exception) -> Decision:
    fault = Fault(name, f"{type(error).__name__}: {error}")
    if not isinstance(event, ev.Question):
        return Decision(faults=(fault,))
    if isinstance(event, ev.Admitted):
        return _faulted_beside_kubelet(name, fault)
    match name:
        case "limits":
            on_error = state.settings.limits.on_error
        case "pods":
            on_error = state.settings.pods.on_error
        case _:  # notices and ledger only tell and count: no container waits for them, so none pays for their fault
            return Decision(faults=(fault,))
    if on_error is OnError.PASS or state.settings.limits.mode is not Mode.ENFORCE:  # who observes refuses nothing
        return Decision(Final(Adjustment(), Reason("fault", (name,))), faults=(fault,))
    message = f"Nodeward's domain {name} failed ({fault.error}) and {name}.on_error is refuse; see nodeward status"
    if isinstance(event, ev.Asked):
        home, container = event.sandbox, event.container.name
        who = f"{home.namespace}/{home.name}, container {container}"
        message = f"{who}, which declares {declaration(state, home, container)}: {message}"
    return Decision(Final(Refusal(message, Refused.FAULT), Reason("fault", (name,))), faults=(fault,))


def _faulted_beside_kubelet(name: str, fault: Fault) -> Decision:
    """Of what kubelet asks the ledger alone says anything. An id given out without being counted could be one that the
    kernel cannot honour, so where the ledger fails the answer is no."""
    if name != "ledger":
        return Decision(faults=(fault,))
    message = f"Nodeward's domain {name} failed ({fault.error}), so no key is given out; see nodeward status"
    return Decision(Final(Refusal(message, Refused.FAULT), Reason("fault", (name,))), faults=(fault,))


def merge(one: Decision, two: Decision, waits: Waits = BOTH) -> Decision:
    """Both decisions. Any refusal wins, else Needs, else Commits, else the Finals' disjoint keys together."""
    return Decision(
        answer=_merge_answers(one, two, waits),
        goals=one.goals + two.goals,
        forget=one.forget + two.forget,
        faults=one.faults + two.faults + _overlap(one, two),
        notes=one.notes + two.notes,
        calls=one.calls + two.calls,
    )


def _overlap(one: Decision, two: Decision) -> tuple[Fault, ...]:
    if not (isinstance(one.answer, Final) and isinstance(two.answer, Final)):
        return ()
    first, second = one.answer.value, two.answer.value
    if not (isinstance(first, Adjustment) and isinstance(second, Adjustment)):
        return ()
    return tuple(Fault("apply", f"two domains set {key}") for key in first.unified if key in second.unified)


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
    unified: dict[str, str] = {}
    for final in finals:
        if isinstance(final.value, Adjustment):
            unified.update((key, text) for key, text in final.value.unified.items() if key not in unified)
    reason = next((f.reason for f in finals if f.reason.code not in ("fault", "no-opinion")), finals[0].reason)
    return Final(Adjustment(unified), reason)


def next_wake(state: State) -> int | None:
    """When the next Tick is due (CLOCK_BOOTTIME nanoseconds), None for never."""
    oldest = next(iter(state.pods.creating.values()), None)
    times = (None if oldest is None else oldest.at_ns + TENTATIVE_NS, ledger_wake(state))
    return min((at for at in times if at is not None), default=None)
