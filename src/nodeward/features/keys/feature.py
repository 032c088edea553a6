"""TEE keys: what the engine and people take of this folder."""

from nodeward.core.feature import Feature
from nodeward.features.keys.findings import of_offers
from nodeward.features.keys.step import HEARS, next_wake, on_fault
from nodeward.features.keys.view import key_rows
from nodeward.features.root import State

KEYS: Feature[State] = Feature(
    "keys",
    HEARS,
    next_wake,
    on_fault,
    kinds=("offer", "nfd", "keys-slice"),
    view=key_rows,
    findings=of_offers,
)
