"""What people are told unasked: what the engine takes of this folder."""

from nodeward.core.feature import Feature
from nodeward.features.notices.step import HEARS
from nodeward.features.root import State

NOTICES: Feature[State] = Feature("notices", HEARS)
