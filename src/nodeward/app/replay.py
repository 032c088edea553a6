"""Decides a record's events again and compares the decisions byte for byte."""

from collections.abc import Iterable
from dataclasses import dataclass

from nodeward.engine.apply import apply
from nodeward.engine.state import State
from nodeward.model.events import Event
from nodeward.wire import record


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay found. `difference` names the first event whose decision differs, empty for none."""

    segments: int
    events: int
    torn: int
    difference: str = ""


def replay(lines: Iterable[bytes]) -> Replayed:
    """Replays every segment from its own checkpoint. Raises RecordError for a record that cannot be read."""
    segments = events = torn = 0
    state: State | None = None
    expected: bytes | None = None
    last: Event | None = None
    for line in record.read(iter(lines)):
        match line:
            case record.Segment():
                segments += 1
                state, expected = record.decode_state(line.state, State), None
            case record.Torn():
                torn, state, expected = torn + 1, None, None
            case record.Decided():
                if expected is not None and line.encoded != expected and last is not None:
                    what = f"seq {last.seq}, {type(last).__name__}: recorded {line.encoded!r}, decided {expected!r}"
                    return Replayed(segments, events, torn, what)
                expected = None
            case Event() if state is not None and line.seq > state.seq + 1:
                torn, state, expected = torn + 1, None, None
            case Event() if state is not None and line.seq == state.seq + 1:
                events += 1
                last = line
                state, decision = apply(state, line)
                expected = record.encode_decision(decision)
            case Event():
                expected = None  # of no segment, or written late by a job that was given up
            case _:
                pass
    return Replayed(segments, events, torn)
