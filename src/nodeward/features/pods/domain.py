"""The domain `pods`: what is known of pods and containers, and by whom."""

from nodeward.core.decision import Fault, Final
from nodeward.core.events import Question
from nodeward.core.feature import Domain
from nodeward.features.pods.fault import passed_or_refused
from nodeward.features.pods.step import TENTATIVE_NS, answered, step
from nodeward.features.root import State


def _next_wake(state: State) -> int | None:
    oldest = next(iter(state.pods.creating.values()), None)
    return None if oldest is None else oldest.at_ns + TENTATIVE_NS


def _on_fault(state: State, question: Question, fault: Fault) -> Final | None:
    return passed_or_refused(state, question, fault, state.settings.pods.on_error, state.settings.limits.mode)


PODS = Domain("pods", step, _next_wake, _on_fault, answered=answered)
