"""A decision in words, and what two decisions do not share; `explain` tells of states, this of steps."""

from nodeward.core import events as ev
from nodeward.core.decision import Commit, Decision, Final, Goal, Need, PodEvent, Special
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
        *(f"domain {fault.domain} failed: {fault.error}" for fault in decision.faults),
        *(f"says {note_sentence(note)}" for note in decision.notes),
        *(f"tells {_whom(call)} {_why(call.reason)}, {call.count} time(s)" for call in decision.calls),
    )


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
