"""The state of the engine: a frozen root with one frozen slice for each feature. A snapshot is a reference.

Every field is a plain value, so that a record's checkpoint can hold it (core.record).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeward.core.events import NewSettings
from nodeward.core.state import Root
from nodeward.features.cpus.state import Cpus
from nodeward.features.gate.state import Gate
from nodeward.features.keys.state import Keys
from nodeward.features.lately.state import Happening
from nodeward.features.limits.state import Limits
from nodeward.features.notices.state import Notices
from nodeward.features.pods.state import Pods
from nodeward.features.sandboxes.state import Sandboxes
from nodeward.features.settings import EngineSettings


@dataclass(frozen=True, slots=True)
class SettingsChanged(NewSettings):
    """The operator's settings were read again and accepted; everything is decided by these from here on."""

    settings: EngineSettings


@dataclass(frozen=True, slots=True)
class State(Root):
    """The root."""

    settings: EngineSettings = field(default_factory=EngineSettings)
    pods: Pods = field(default_factory=Pods)
    limits: Limits = field(default_factory=Limits)
    keys: Keys = field(default_factory=Keys)
    notices: Notices = field(default_factory=Notices)
    cpus: Cpus = field(default_factory=Cpus)
    sandboxes: Sandboxes = field(default_factory=Sandboxes)
    gate: Gate = field(default_factory=Gate)
    lately: Mapping[str, Happening] = field(default_factory=dict)
    """What happened lately, by code and pod (features.lately.step)."""
