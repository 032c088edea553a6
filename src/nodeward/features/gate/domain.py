"""The domain `gate`: a pod does not start before its conditions are met."""

from nodeward.core.decision import Fault, Final
from nodeward.core.events import Creating, Question
from nodeward.core.feature import Domain
from nodeward.core.modes import Mode
from nodeward.core.refusal import Reason, Refusal, Refused
from nodeward.features.gate.step import gate_of, step
from nodeward.features.root import State


def _on_fault(state: State, question: Question, fault: Fault) -> Final | None:
    """A pod with a gate is refused, since nobody knows whether its gate is open. Others have no part in it."""
    pod = gate_of(state, question) if isinstance(question, Creating) else None
    if pod is None or state.settings.gate.mode is not Mode.ENFORCE:
        return None
    text = f"{pod.namespace}/{pod.name}: whether its gate is open is not known: the domain gate failed ({fault.error})"
    return Final(Refusal(text, Refused.FAULT), Reason("fault", (fault.domain,)))


GATE = Domain("gate", step, on_fault=_on_fault)
