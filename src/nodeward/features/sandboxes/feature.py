"""VM sandboxes' share of the host: what the engine and people take of this folder."""

from nodeward.core.feature import Feature
from nodeward.features.root import State
from nodeward.features.sandboxes.pod_limits import KIND
from nodeward.features.sandboxes.step import HEARS
from nodeward.features.sandboxes.view import sandboxes_view

SANDBOXES: Feature[State] = Feature("sandboxes", HEARS, kinds=(KIND,), view=sandboxes_view)
