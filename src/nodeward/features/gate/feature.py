"""Gates of pods: what the engine and people take of this folder."""

from nodeward.core.feature import Feature
from nodeward.features.gate.step import HEARS, on_fault
from nodeward.features.root import State

GATE: Feature[State] = Feature("gate", HEARS, on_fault=on_fault, shown_as="gates")
