"""The whole of what the engine remembers: a frozen root with one frozen slice a domain. A snapshot is a reference.

Every field is a plain value, so that a record's checkpoint can hold it (wire.record).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeward.engine.root import Root
from nodeward.engine.state.cpus import Cpus
from nodeward.engine.state.gate import Gate
from nodeward.engine.state.lately import Happening
from nodeward.engine.state.ledger import Ledger
from nodeward.engine.state.limits import Limits
from nodeward.engine.state.notices import Notices
from nodeward.engine.state.pods import Pods
from nodeward.engine.state.sandboxes import Sandboxes
from nodeward.model.settings import EngineSettings


@dataclass(frozen=True, slots=True)
class State(Root):
    """The root."""

    settings: EngineSettings = field(default_factory=EngineSettings)
    pods: Pods = field(default_factory=Pods)
    limits: Limits = field(default_factory=Limits)
    ledger: Ledger = field(default_factory=Ledger)
    notices: Notices = field(default_factory=Notices)
    cpus: Cpus = field(default_factory=Cpus)
    sandboxes: Sandboxes = field(default_factory=Sandboxes)
    gate: Gate = field(default_factory=Gate)
    lately: Mapping[str, Happening] = field(default_factory=dict)
    """What happened lately, by code and pod (engine.lately)."""
