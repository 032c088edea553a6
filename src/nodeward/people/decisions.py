"""Sentences about decisions, and what two decisions do not share."""

import logging
from collections import deque
from dataclasses import dataclass, replace

from nodeward.core import events as ev
from nodeward.core.decision import NOTHING, Commit, Decision, Final, Goal, Need, PodEvent, Special, Target
from nodeward.core.events import Event, Missed, Reached
from nodeward.core.refusal import Reason, Refusal
from nodeward.people.explain import note_sentence


def about(event: ev.Event) -> str:
    """The pod or container that the event names, NAMESPACE/POD[/CONTAINER]; empty for none."""
    match event:
        case ev.Creating() | ev.Created() | ev.Started() | ev.Updating() | ev.Updated() | ev.Stopped():
            return f"{event.sandbox.namespace}/{event.sandbox.name}/{event.container.name}"
        case ev.Hooked():
            what = (event.sandbox.namespace, event.sandbox.name, event.container.name if event.container else "")
            return "/".join(what).rstrip("/")
        case ev.SandboxStarted() | ev.SandboxStopped() | ev.SandboxRemoved():
            return f"{event.sandbox.namespace}/{event.sandbox.name}"
        case ev.PodSeen():
            return f"{event.pod.namespace}/{event.pod.name}"
        case _:
            return ""


def apart(one: Decision, two: Decision) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What each decides that the other does not."""
    first, second = sentences(one), sentences(two)
    return (
        tuple(text for text in first if text not in second),
        tuple(text for text in second if text not in first),
    )


def sentences(decision: Decision) -> tuple[str, ...]:
    """All of a decision, a sentence each."""
    answer = [] if decision.answer is None else [_answer(decision.answer)]
    return (
        *answer,
        *(_goal(goal) for goal in decision.goals),
        *(f"forgets {target}" for target in decision.forget),
        *(f"feature {fault.feature} failed: {fault.error}" for fault in decision.faults),
        *(f"says {note_sentence(note)}" for note in decision.notes),
        *(f"tells {_whom(call)} {_why(call.reason)}, {call.count} time(s)" for call in decision.calls),
    )


log = logging.getLogger(__name__)
KEPT = 256
MOST_SENTENCES = 8
MOST_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """One decision. `seq` is its number in a record; `took_ns` is how long it took to decide; `after_ns` how long after
    the goal was given its value was read back, 0 where that is not what the event says or not known."""

    seq: int
    wall_ns: int
    event: str
    about: str
    took_ns: int
    after_ns: int
    said: tuple[str, ...]


class Latest:
    """A ring of decisions that say something, oldest first."""

    def __init__(self) -> None:
        self._kept: deque[tuple[DecisionRow, int, Decision, Reached | Missed | None]] = deque(maxlen=KEPT)

    def add(self, event: Event, decision: Decision, took_ns: int) -> None:
        """One more, if there is anything to say of it; its notes are in the log too."""
        for note in decision.notes:
            log.warning("note=%s what=%r", note.code, note_sentence(note))
        outcome = event if isinstance(event, Reached | Missed) else None
        if outcome is not None or decision != NOTHING:
            row = DecisionRow(event.seq, event.wall_ns, type(event).__name__, about(event), took_ns, 0, ())
            self._kept.append((row, event.at_ns, decision, outcome))

    def rows(self, after: int) -> tuple[DecisionRow, ...]:
        """Those with a higher number, oldest first."""
        given: dict[Target, int] = {}
        rows = list[DecisionRow]()
        for row, at_ns, decision, outcome in self._kept:
            if row.seq > after:
                since = [given[one] for one in outcome.targets if one in given] if isinstance(outcome, Reached) else []
                rows.append(replace(row, after_ns=at_ns - min(since) if since else 0, said=_said(decision, outcome)))
            given |= {target: at_ns for goal in decision.goals for target in goal.targets()}
        return tuple(rows)


def _said(decision: Decision, outcome: Reached | Missed | None) -> tuple[str, ...]:
    match outcome:
        case Reached(targets=targets, written=written):
            outcomes = [f"{'wrote and read back' if one in written else 'already as wanted'}: {one}" for one in targets]
        case Missed(why=why):
            outcomes = [f"could not be reached: {target}: {reason}" for target, reason in why]
        case None:
            outcomes = []
    said = [*outcomes, *sentences(decision)]
    more = [f"and {len(said) - MOST_SENTENCES} more"] if len(said) > MOST_SENTENCES else []
    return tuple(one[:MOST_CHARACTERS] for one in (*said[:MOST_SENTENCES], *more))


def _whom(call: PodEvent) -> str:
    return "/".join((call.namespace, call.pod, call.container)).rstrip("/") if call.pod else "the node"


def _answer(answer: Final | Need | Commit) -> str:
    if isinstance(answer, Need):
        return f"waits for {answer.fact} {answer.key} at most {answer.within_ns // 1_000_000} ms"
    if isinstance(answer, Commit):
        return f"waits until {answer.record} is durable"
    if isinstance(answer.value, Refusal):
        return f"refuses: {answer.value.message}"
    why = f" ({_why(answer.reason)})"
    given = ", ".join(f"{key} to {text!r}" for key, text in answer.value.sets().items())
    return (f"sets {given}" if given else "changes nothing") + why


def _more(goal: Goal) -> str:
    return f" and in {len(goal.also)} more places" if goal.also else ""


def _goal(goal: Goal) -> str:
    value = "taken back" if goal.value is Special.ABSENT else str(goal.value)
    return (
        f"wants {goal.target}{_more(goal)} {value} ({_why(goal.reason)})"
        + (", set by the runtime" if goal.ours else "")
        + ("" if goal.perform else ", only observed")
    )


def _why(reason: Reason) -> str:
    return " ".join((reason.code, *(str(value) for value in reason.values)))
