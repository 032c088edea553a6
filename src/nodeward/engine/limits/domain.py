"""The domain `limits`: misc limits of containers and pods."""

from nodeward.engine.domain import Domain
from nodeward.engine.limits.step import step
from nodeward.engine.pods.fault import passed_or_refused
from nodeward.engine.state.root import State
from nodeward.model.decision import Fault, Final
from nodeward.model.events import Question


def _on_fault(state: State, question: Question, fault: Fault) -> Final | None:
    return passed_or_refused(state, question, fault, state.settings.limits.on_error, state.settings.limits.mode)


LIMITS = Domain("limits", step, on_fault=_on_fault, kinds=("misc.max", "subtree"))
