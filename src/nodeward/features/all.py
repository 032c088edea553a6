"""The list of features, in the order in which they hear each event."""

from collections.abc import Mapping
from typing import Final

from nodeward.core import events
from nodeward.core.apply import Engine
from nodeward.core.feature import Feature
from nodeward.features.cpus.step import CPUS
from nodeward.features.cpus.values import CpusRecalled
from nodeward.features.gate.step import GATE
from nodeward.features.keys.step import KEYS
from nodeward.features.lately.step import noted
from nodeward.features.limits.step import LIMITS
from nodeward.features.notices.step import NOTICES
from nodeward.features.pods.step import PODS
from nodeward.features.root import SettingsChanged, State
from nodeward.features.sandboxes.step import SANDBOXES

FEATURES: Final[tuple[Feature[State], ...]] = (NOTICES, PODS, LIMITS, KEYS, CPUS, SANDBOXES, GATE)
"""Notices come first: what an event changes is seen by what was before it."""
EVENTS: Final[Mapping[str, type[events.Event]]] = {
    kind.__name__: kind
    for kind in (*vars(events).values(), SettingsChanged, CpusRecalled)
    if isinstance(kind, type) and issubclass(kind, events.Event)
}
"""What can be told to this engine, by name."""
ENGINE: Final = Engine(FEATURES, noted)
apply = ENGINE.apply
