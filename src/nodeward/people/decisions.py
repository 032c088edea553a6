"""Sentences about decisions, and what two decisions do not share."""

import logging
import re
from collections import deque
from dataclasses import dataclass, field, replace

from nodeward.core import events as ev
from nodeward.core.decision import NOTHING, Adjustment, Commit, Decision, Final, Goal, Need, PodEvent, Special, Target
from nodeward.core.events import Event, Missed, Reached
from nodeward.core.refusal import Reason, Refusal
from nodeward.features.limits.words import amount
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
KEPT = 64
MOST_SENTENCES = 8
MOST_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """One decision. `seq` is its number in a record; `took_ns` is how long it took to decide; `after_ns` how long after
    it its goals were written and read back, 0 where that is still to come or nothing was to be. `summary` is a line for
    people, `said` has every part of it with its paths."""

    seq: int
    wall_ns: int
    event: str
    about: str
    took_ns: int
    after_ns: int
    said: tuple[str, ...]
    summary: str = ""


@dataclass(slots=True)
class _Kept:
    """A decision, what has come of it so far, and its texts once somebody has asked for them."""

    row: DecisionRow
    at_ns: int
    decision: Decision
    outcome: Reached | Missed | None
    after_ns: int = 0
    came: list[str] = field(default_factory=list)
    more: int = 0
    """Goals that were reached, beyond those that `came` has."""
    was_written: bool = False
    told: DecisionRow | None = None

    def reached(self, target: Target, at_ns: int, *, was_written: bool) -> None:
        """One of its goals is so now."""
        self.after_ns, self.was_written, self.told = at_ns - self.at_ns, self.was_written or was_written, None
        if len(self.came) < MOST_SENTENCES:
            self.came.append(f"{_WROTE if was_written else _ALREADY}: {target}")
        else:
            self.more += 1

    def as_row(self) -> DecisionRow:
        """With its texts."""
        if self.told is None:
            said = [*_outcomes(self.outcome), *sentences(self.decision), *self.came]
            count = len(said) + self.more
            more = [f"and {count - MOST_SENTENCES} more"] if count > MOST_SENTENCES else []
            texts = tuple(one[:MOST_CHARACTERS] for one in (*said[:MOST_SENTENCES], *more))
            summary = summarised(
                self.row.event, self.decision, self.outcome, self.after_ns, was_written=self.was_written
            )
            self.told = replace(self.row, after_ns=self.after_ns, said=texts, summary=summary[:MOST_CHARACTERS])
        return self.told


class Latest:
    """A ring of decisions that say something, oldest first. What has come of one that is here has no row of its own."""

    def __init__(self) -> None:
        self._kept = deque[_Kept]()
        self._by_target = dict[Target, _Kept]()
        self._asked = dict[int, str]()
        """By ask, whom it is about: the event that brings its answer does not say so."""

    def add(self, event: Event, decision: Decision, took_ns: int) -> None:
        """One more, if there is anything to say of it; its notes are in the log too."""
        for note in decision.notes:
            log.warning("note=%s what=%r", note.code, note_sentence(note))
        outcome = event if isinstance(event, Reached | Missed) else None
        if outcome is None and decision == NOTHING:
            return
        if isinstance(outcome, Reached) and self._came(outcome) and decision == NOTHING:
            return
        whom = self._asked.pop(event.ask_id, "") if isinstance(event, ev.FactRead | ev.Committed) else about(event)
        if isinstance(event, ev.Question) and isinstance(decision.answer, Need | Commit):
            self._asked[event.ask_id] = whom
            while len(self._asked) > KEPT:
                del self._asked[next(iter(self._asked))]
        row = DecisionRow(event.seq, event.wall_ns, type(event).__name__, whom, took_ns, 0, ())
        one = _Kept(row, event.at_ns, decision, outcome)
        self._kept.append(one)
        self._by_target |= {target: one for goal in decision.goals for target in goal.targets()}
        if len(self._kept) > KEPT:
            gone = self._kept.popleft()
            for target in (target for goal in gone.decision.goals for target in goal.targets()):
                if self._by_target.get(target) is gone:
                    del self._by_target[target]

    def _came(self, outcome: Reached) -> bool:
        """Notes what is so now with the decisions that wanted it; whether any did."""
        written, found = frozenset(outcome.written), False
        for target in outcome.targets:
            if (one := self._by_target.get(target)) is not None:
                one.reached(target, outcome.at_ns, was_written=target in written)
                found = True
        return found

    def rows(self, after: int) -> tuple[DecisionRow, ...]:
        """Those with a higher number, oldest first."""
        return tuple(one.as_row() for one in self._kept if one.row.seq > after)


_WROTE, _ALREADY = "wrote and read back", "already as wanted"


def _outcomes(outcome: Reached | Missed | None) -> list[str]:
    match outcome:
        case Reached(targets=targets, written=written):
            there = frozenset(written)
            return [f"{_WROTE if one in there else _ALREADY}: {one}" for one in targets]
        case Missed(why=why):
            return [f"could not be reached: {target}: {reason}" for target, reason in why]
        case None:
            return []


# ---- one line for people, without ids and paths

_EVENTS = {
    "Creating": "container is created",
    "Started": "container started",
    "Stopped": "container stopped",
    "Removed": "container removed",
    "Updating": "container is updated",
    "SandboxStarted": "pod started",
    "SandboxStopped": "pod stopped",
    "SandboxRemoved": "pod removed",
    "PodSeen": "pod read from the API server",
    "PodGone": "pod deleted",
    "PodsListed": "pods listed by the API server",
    "FactRead": "answered",
    "Committed": "answered",
    "Hooked": "container created, seen by the OCI hook",
    "Starting": "container with ids is started",
    "Allocating": "kubelet asks for ids",
    "Preparing": "kubelet prepares a claim",
    "Unprepared": "kubelet gives a claim back",
    "Sampled": "counters read",
    "KeysRead": "keys counted",
    "CpusetsRead": "CPU sets read",
    "SettingsChanged": "settings changed",
    "NewSettings": "settings changed",
    "Reached": "written and read back",
    "Missed": "not written",
    "Tick": "looked again",
}
_FACTS = {"pod": "its pod's spec", "keys": "the kernel's count of keys", "held": "the ids that kubelet has given"}
_GIVEN = {"cpus": "CPUs", "memory_nodes": "memory of node", "cpu_shares": "CPU shares", "misc.max": "limit"}
_GOALS = {
    "misc.max": "limit",
    "cpuset": "CPUs",
    "cpuset.mems": "memory of node",
    "offer": "ids offered",
    "pod.limit": "pod limit",
}


def summarised(
    event: str, decision: Decision, outcome: Reached | Missed | None, after_ns: int, *, was_written: bool
) -> str:
    """What happened, what was decided and when it was so, in the field's words: `container is created: CPUs 4-5`."""
    parts = list[str]()
    match decision.answer:
        case Need() as need:
            parts.append(f"waits for {_FACTS.get(need.fact, need.fact)}")
        case Commit():
            parts.append("waits until that is on disk")
        case Final(value=Refusal() as refusal):
            parts.append(f"refused: {refusal.message}")
        case Final(value=Adjustment() as adjustment):
            given = [f"{_GIVEN.get(key, key)} {_value(text)}" for key, text in adjustment.sets().items()]
            parts += given or ["nothing to set"]
    goals = dict[str, list[Goal]]()
    for goal in decision.goals:
        if goal.target.kind != "subtree":  # switches the controller on, which is no promise
            goals.setdefault(goal.target.kind, []).append(goal)
    for kind, some in goals.items():
        places = sum(1 + len(goal.also) for goal in some)
        more = f" and {places - 1} more" if places > 1 else ""
        parts.append(f"{_GOALS.get(kind, kind)} {_goal_value(some[0])}{more}")
    parts += [f"{_whom(call)}: {call.reason.code.replace('-', ' ')}" for call in decision.calls]
    parts += [note.code.replace("-", " ") for note in decision.notes]
    parts += [f"feature {fault.feature} failed" for fault in decision.faults]
    if isinstance(outcome, Missed):
        parts += [reason for _, reason in outcome.why[:1]]
    words = ": ".join(filter(None, (_EVENTS.get(event) or _plain(event), ", ".join(dict.fromkeys(parts)))))
    if after_ns and goals:
        return f"{words}, {'written and read back' if was_written else 'already so, read back'} in {_took(after_ns)}"
    return words


def _plain(event: str) -> str:
    return re.sub("(?<=[a-z])(?=[A-Z])", " ", event).lower()


def _goal_value(goal: Goal) -> str:
    if goal.value is Special.ABSENT:
        return "taken back"
    if goal.target.kind == "offer":
        return "changed"  # each id with its health, as JSON
    is_misc = goal.target.kind == "misc.max"
    return _value(f"{goal.target.resource} {goal.value}" if is_misc else str(goal.value))


def _value(text: str) -> str:
    """A value for people; of a misc resource its name and amount."""
    name, space, value = text.partition(" ")
    if space and value.isascii() and value.isdigit():
        return f"{'EPC' if name == 'sgx_epc' else name} {amount(name, int(value))}"
    return text


def _took(ns: int) -> str:
    return f"{ns / 1e6:.0f} ms" if ns >= 1e6 else "less than 1 ms"


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
