"""CPUs and memory nodes: what the engine and people take of this folder."""

from nodeward.core.feature import Feature
from nodeward.features.cpus.claims import KIND as SLICE
from nodeward.features.cpus.memory import KIND as MEMORY
from nodeward.features.cpus.step.asked import on_fault
from nodeward.features.cpus.step.goals import KIND
from nodeward.features.cpus.step.heard import HEARS, next_wake
from nodeward.features.cpus.view import cpus_view
from nodeward.features.root import State

CPUS: Feature[State] = Feature("cpus", HEARS, next_wake, on_fault=on_fault, kinds=(KIND, MEMORY, SLICE), view=cpus_view)
