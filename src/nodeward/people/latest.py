"""The latest decisions, for people who follow the daemon: event, decision, write, read back, with how long each took.

Promises: bounded, and next to nothing for each decision; sentences are made when somebody asks. It keeps no state of
the engine, nor an event that may be large (a sample of all pods), and decides nothing.
"""

import logging
from collections import deque
from dataclasses import dataclass, replace

from nodeward.core.decision import NOTHING, Decision, Target
from nodeward.core.events import Event, Missed, Reached
from nodeward.people.decisions import about, sentences
from nodeward.people.explain import note_sentence

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
