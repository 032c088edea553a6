"""What is known of pods: what the engine takes of this folder."""

from nodeward.core.feature import Feature
from nodeward.features.pods.step import HEARS, answered, next_wake, on_fault
from nodeward.features.root import State

PODS: Feature[State] = Feature("pods", HEARS, next_wake, on_fault, answered=answered)
