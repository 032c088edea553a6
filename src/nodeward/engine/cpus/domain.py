"""The domain `cpus`: CPUs of containers by a policy."""

from nodeward.engine.cpus.memory import KIND as MEMORY
from nodeward.engine.cpus.step import KIND, step
from nodeward.engine.domain import Domain
from nodeward.engine.pods.fault import passed_or_refused
from nodeward.engine.state.root import State
from nodeward.model.decision import Fault, Final
from nodeward.model.events import Question


def _on_fault(state: State, question: Question, fault: Fault) -> Final | None:
    return passed_or_refused(state, question, fault, state.settings.cpus.on_error, state.settings.cpus.mode)


CPUS = Domain("cpus", step, on_fault=_on_fault, kinds=(KIND, MEMORY))
