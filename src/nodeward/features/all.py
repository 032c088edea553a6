"""The list of features, in the order in which they hear each event."""

from collections.abc import Mapping
from typing import Final

from nodeward.core import events
from nodeward.core.apply import Engine
from nodeward.core.feature import Feature
from nodeward.features.cpus.feature import CPUS
from nodeward.features.cpus.values import CpusRecalled
from nodeward.features.gate.feature import GATE
from nodeward.features.keys.feature import KEYS
from nodeward.features.lately.step import NOTES, noted
from nodeward.features.limits.feature import LIMITS
from nodeward.features.notices.feature import NOTICES
from nodeward.features.pods.feature import PODS
from nodeward.features.root import SettingsChanged, State
from nodeward.features.sandboxes.feature import SANDBOXES

FEATURES: Final[tuple[Feature[State], ...]] = (NOTICES, PODS, LIMITS, KEYS, CPUS, SANDBOXES, GATE)
"""Notices come first: what an event changes is seen by what was before it."""
EVENTS: Final[Mapping[str, type[events.Event]]] = {
    kind.__name__: kind
    for kind in (*vars(events).values(), SettingsChanged, CpusRecalled)
    if isinstance(kind, type) and issubclass(kind, events.Event)
}
"""What can be told to this engine, by name."""
ENGINE: Final = Engine(FEATURES, noted, NOTES)
apply = ENGINE.apply
