"""What the engine needs of a feature: a slice of the state, and a function for each event that it hears.

`core.apply` has every feature hear an event, in their order. A new one is a folder below `features` and one line in
`features.all` (docs/architecture.md).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic

from nodeward.core.decision import Decision, Fault, Final
from nodeward.core.events import Event, Question
from nodeward.core.finding import Finding
from nodeward.core.ports import Pace
from nodeward.core.state import S

Hear = Callable[[S, Any], tuple[object, Decision]]
"""The feature's slice after an event, and what follows. Pure; earlier features have heard the event already."""


def _never(_: S) -> int | None:
    return None


def _answers_nobody(_: S, __: Question, ___: Fault) -> Final | None:
    return None


@dataclass(frozen=True, slots=True)
class Feature(Generic[S]):
    """One feature of the engine."""

    name: str
    """The field of State that holds its slice."""
    hears: Mapping[type[Event], Hear[S]] = field(default_factory=dict)
    """By the class of an event, the function that takes it. An event of another class costs the feature nothing."""
    next_wake: Callable[[S], int | None] = _never
    """When it wants its next Tick (CLOCK_BOOTTIME nanoseconds), None for never."""
    on_fault: Callable[[S, Question, Fault], Final | None] = _answers_nobody
    """The answer to a question at which the feature raised; None where nobody waits for it."""
    kinds: tuple[str, ...] = ()
    """The kinds of goals that it gives. It hears of the outcomes of these and of no others; one without kinds hears of
    all."""
    answered: Callable[[S, Question, Final], object] | None = None
    """The feature's slice once a question has its answer, where that changes it."""
    view: Callable[[S, int, Pace], object] | None = None
    """Its rows in the picture of a node, at CLOCK_BOOTTIME nanoseconds."""
    shown_as: str = ""
    """The field of that picture, where it is not the name."""
    findings: Callable[[Any], Iterable[Finding]] | None = None
    """What `nodeward doctor` finds in its rows alone."""

    @property
    def shown(self) -> str:
        """The field of the picture of a node that has its rows."""
        return self.shown_as or self.name
