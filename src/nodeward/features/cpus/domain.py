"""The domain `cpus`: CPUs of containers by a policy."""

from nodeward.core.decision import Fault, Final
from nodeward.core.events import Question
from nodeward.core.feature import Domain
from nodeward.features.cpus.memory import KIND as MEMORY
from nodeward.features.cpus.step import KIND, step
from nodeward.features.pods.fault import passed_or_refused
from nodeward.features.root import State


def _on_fault(state: State, question: Question, fault: Fault) -> Final | None:
    return passed_or_refused(state, question, fault, state.settings.cpus.on_error, state.settings.cpus.mode)


CPUS = Domain("cpus", step, on_fault=_on_fault, kinds=(KIND, MEMORY))
