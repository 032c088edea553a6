"""The whole of what the engine remembers: a frozen root with one frozen slice a domain. A snapshot is a reference.

Every field is a plain value, so that a record's checkpoint can hold it (wire.record).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeward.engine.state.cpus import Cpus
from nodeward.engine.state.gate import Gate
from nodeward.engine.state.lately import Happening
from nodeward.engine.state.ledger import Ledger
from nodeward.engine.state.limits import Limits
from nodeward.engine.state.notices import Notices
from nodeward.engine.state.pods import KnownContainer, Pods
from nodeward.engine.state.sandboxes import Sandboxes
from nodeward.model.events import (
    Allocating,
    Creating,
    Question,
    Starting,
    Updating,
)
from nodeward.model.settings import EngineSettings


@dataclass(frozen=True, slots=True)
class OpenAsk:
    """A question whose answer waits for a fact or for a commit. Exactly one of the first four is there."""

    creating: Creating | None = None
    updating: Updating | None = None
    allocating: Allocating | None = None
    starting: Starting | None = None
    needs: int = 0
    expired: bool = False
    committed: bool = False
    """Its Commit is durable."""
    commit_error: str = ""
    """Why its Commit failed: who reserved something for it gives it back."""
    was: KnownContainer | None = None
    """The container before an update, which it is again where that is refused."""

    @property
    def question(self) -> Question:
        """The question as it was asked."""
        question = self.creating or self.updating or self.allocating or self.starting
        if question is None:
            raise ValueError("an open ask without its question")
        return question


@dataclass(frozen=True, slots=True)
class State:
    """The root."""

    settings: EngineSettings = field(default_factory=EngineSettings)
    pods: Pods = field(default_factory=Pods)
    limits: Limits = field(default_factory=Limits)
    asks: Mapping[int, OpenAsk] = field(default_factory=dict)
    seq: int = 0
    at_ns: int = 0
    ledger: Ledger = field(default_factory=Ledger)
    notices: Notices = field(default_factory=Notices)
    cpus: Cpus = field(default_factory=Cpus)
    sandboxes: Sandboxes = field(default_factory=Sandboxes)
    gate: Gate = field(default_factory=Gate)
    lately: Mapping[str, Happening] = field(default_factory=dict)
    """What happened lately, by code and pod (engine.lately)."""
