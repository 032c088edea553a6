"""The part of the state that every engine has: its settings, its open questions and its time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from nodeward.core.events import Allocating, Creating, Preparing, Question, Starting, Updating


@dataclass(frozen=True, slots=True)
class OpenAsk:
    """A question whose answer waits for a fact or for a commit. Exactly one of the first five is there."""

    creating: Creating | None = None
    updating: Updating | None = None
    allocating: Allocating | None = None
    starting: Starting | None = None
    preparing: Preparing | None = None
    needs: int = 0
    expired: bool = False
    committed: bool = False
    """Its Commit is durable."""
    commit_error: str = ""
    """Why its Commit failed: who reserved something for it gives it back."""

    @property
    def question(self) -> Question:
        """The question as it was asked."""
        question = self.creating or self.updating or self.allocating or self.starting or self.preparing
        if question is None:
            raise ValueError("an open ask without its question")
        return question


@dataclass(frozen=True, slots=True)
class Root:
    """What an engine itself reads and sets of a state; a slice for each feature is beside it."""

    settings: object
    asks: Mapping[int, OpenAsk] = field(default_factory=dict)
    seq: int = 0
    at_ns: int = 0


S = TypeVar("S", bound=Root)
