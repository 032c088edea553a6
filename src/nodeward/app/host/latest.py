"""The latest decisions, for people who follow the daemon: event, decision, write, read back, with how long each took.

Promises: bounded, and next to nothing for each decision; words are made when somebody asks. It keeps no state of the
engine and decides nothing.
"""

from collections import deque
from dataclasses import dataclass

from nodeward.engine.show.decision_words import about, sentences
from nodeward.model.decision import NOTHING, Decision, Target
from nodeward.model.events import Event, Missed, Reached

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
        self._kept: deque[tuple[Event, Decision, int]] = deque(maxlen=KEPT)

    def add(self, event: Event, decision: Decision, took_ns: int) -> None:
        """One more, if there is anything to say of it."""
        if decision != NOTHING or isinstance(event, Reached | Missed):
            self._kept.append((event, decision, took_ns))

    def rows(self, after: int) -> tuple[DecisionRow, ...]:
        """Those with a higher number, oldest first."""
        given: dict[Target, int] = {}
        rows = list[DecisionRow]()
        for event, decision, took_ns in self._kept:
            if event.seq > after:
                rows.append(_row(event, decision, took_ns, given))
            given |= {target: event.at_ns for goal in decision.goals for target in goal.targets()}
        return tuple(rows)


def _row(event: Event, decision: Decision, took_ns: int, given: dict[Target, int]) -> DecisionRow:
    match event:
        case Reached():
            since = [given[target] for target in event.targets if target in given]
            after_ns = event.at_ns - min(since) if since else 0
            outcomes = [f"{'wrote and read back' if one in event.written else 'is so'}: {one}" for one in event.targets]
        case Missed():
            after_ns, outcomes = 0, [f"could not be reached: {target}: {why}" for target, why in event.why]
        case _:
            after_ns, outcomes = 0, []
    said = [*outcomes, *sentences(decision)]
    more = [f"and {len(said) - MOST_SENTENCES} more"] if len(said) > MOST_SENTENCES else []
    shown = tuple(one[:MOST_CHARACTERS] for one in (*said[:MOST_SENTENCES], *more))
    return DecisionRow(event.seq, event.wall_ns, type(event).__name__, about(event), took_ns, after_ns, shown)
