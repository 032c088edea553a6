"""The domain `limits`: misc limits of containers and pods."""

from nodeward.core.decision import Fault, Final
from nodeward.core.events import Question
from nodeward.core.feature import Domain
from nodeward.features.limits.step import step
from nodeward.features.pods.fault import passed_or_refused
from nodeward.features.root import State


def _on_fault(state: State, question: Question, fault: Fault) -> Final | None:
    return passed_or_refused(state, question, fault, state.settings.limits.on_error, state.settings.limits.mode)


LIMITS = Domain("limits", step, on_fault=_on_fault, kinds=("misc.max", "subtree"))
