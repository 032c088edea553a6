"""What a domain is: one room of the engine with its own slice of the state.

`core.apply` steps every domain with every event, in their order. A new domain is a folder below `engine`
with a `Domain` in its `domain.py`, its slice in `engine/state`, and one line in `features.all` (docs/add-a-domain.md).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

from nodeward.core.decision import Decision, Fault, Final
from nodeward.core.events import Event, Question
from nodeward.core.state import S

Step = Callable[[S, Event], tuple[object, Decision]]
"""The domain's slice after the event, and what follows. Pure; slices of earlier domains have seen the event already."""


def _never(_: S) -> int | None:
    return None


def _answers_nobody(_: S, __: Question, ___: Fault) -> Final | None:
    return None


@dataclass(frozen=True, slots=True)
class Domain(Generic[S]):
    """One domain of the engine."""

    name: str
    """The field of State that holds its slice."""
    step: Step[S]
    next_wake: Callable[[S], int | None] = _never
    """When it wants its next Tick (CLOCK_BOOTTIME nanoseconds), None for never."""
    on_fault: Callable[[S, Question, Fault], Final | None] = _answers_nobody
    """The answer to a question at which `step` raised; None where nobody waits for this domain."""
    kinds: tuple[str, ...] = ()
    """The kinds of goals that it gives. It hears of the outcomes of these and of no others; one without kinds hears of
    all."""
    answered: Callable[[S, Question, Final], object] | None = None
    """The domain's slice once a question has its answer, where that changes it."""
