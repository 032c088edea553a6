"""Decides a record's events again and compares the decisions byte for byte."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from nodeward.core import record
from nodeward.core.decision import Decision
from nodeward.core.events import Event
from nodeward.features.all import EVENTS, apply
from nodeward.features.root import State


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay found. `difference` names the first event whose decision differs, empty for none."""

    segments: int
    events: int
    torn: int
    difference: str = ""


@dataclass(frozen=True, slots=True)
class Opened:
    """A segment begins with this state."""

    state: State


@dataclass(frozen=True, slots=True)
class Lost:
    """Something is missing here; nothing is decided until the next segment."""


@dataclass(frozen=True, slots=True)
class Again:
    """An event, decided again. `recorded` is what the record says was decided, None where it does not say."""

    event: Event
    decision: Decision
    recorded: bytes | None
    state: State
    """After it."""

    @property
    def is_same(self) -> bool:
        """Whether the record says nothing else."""
        return self.recorded is None or record.encode_decision(self.decision) == self.recorded


def walk(lines: Iterable[bytes]) -> Iterator[Opened | Lost | Again]:
    """What a record holds, decided again from each segment's own checkpoint. Raises RecordError."""
    state: State | None = None
    waiting: Again | None = None
    for line in record.read(iter(lines), EVENTS):
        if waiting is not None:
            recorded = line.encoded if isinstance(line, record.Decided) else None
            yield replace(waiting, recorded=recorded)
            waiting = None
        match line:
            case record.Segment():
                state = record.decode_state(line.state, State)
                yield Opened(state)
            case record.Torn():
                state = None
                yield Lost()
            case Event() if state is not None and line.seq > state.seq + 1:
                state = None
                yield Lost()
            case Event() if state is not None and line.seq == state.seq + 1:
                state, decision = apply(state, line)
                waiting = Again(line, decision, None, state)
            case _:
                pass  # of no segment, or written late by a job that was given up
    if waiting is not None:
        yield waiting


def replay(lines: Iterable[bytes]) -> Replayed:
    """Replays every segment from its own checkpoint. Raises RecordError for a record that cannot be read."""
    segments = events = torn = 0
    for step in walk(lines):
        match step:
            case Opened():
                segments += 1
            case Lost():
                torn += 1
            case Again():
                events += 1
                if not step.is_same:
                    return Replayed(segments, events, torn, described(step))
    return Replayed(segments, events, torn)


def described(step: Again) -> str:
    """A step with a decision that differs from the recorded one."""
    what = f"seq {step.event.seq}, {type(step.event).__name__}"
    return f"{what}: recorded {step.recorded!r}, decided {record.encode_decision(step.decision)!r}"
