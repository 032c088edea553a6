"""Limits of the misc controller: what the engine takes of this folder."""

from nodeward.core.feature import Feature
from nodeward.features.limits.findings import of_enclaves
from nodeward.features.limits.step import HEARS, on_fault
from nodeward.features.limits.view import enclaves
from nodeward.features.root import State

LIMITS: Feature[State] = Feature(
    "limits",
    HEARS,
    on_fault=on_fault,
    kinds=("misc.max", "subtree", "epc-slice", "sgx-offer"),
    view=enclaves,
    shown_as="enclaves",
    findings=of_enclaves,
)
