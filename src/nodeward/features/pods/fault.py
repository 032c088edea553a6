"""The answer to a runtime whose container waits for a feature that failed."""

from nodeward.core import annotations as keys
from nodeward.core import events as ev
from nodeward.core.decision import Adjustment, Fault, Final
from nodeward.core.modes import Mode, OnError
from nodeward.core.refusal import Reason, Refusal, Refused
from nodeward.core.workload import Sandbox
from nodeward.features.root import State

_SHOWN = 128
"""Characters of an annotation, where it is shown as it stands."""


def passed_or_refused(state: State, question: ev.Question, fault: Fault, on_error: OnError, mode: Mode) -> Final | None:
    """No change, or a refusal where the feature's `on_error` asks for one. None for what kubelet asks."""
    if isinstance(question, ev.Admitted):
        return None
    reason = Reason("fault", (fault.feature,))
    if on_error is OnError.PASS or mode is not Mode.ENFORCE:  # who observes refuses nothing
        return Final(Adjustment(), reason)
    name = fault.feature
    message = f"Nodeward's feature {name} failed ({fault.error}) and {name}.on_error is refuse; see nodeward status"
    if isinstance(question, ev.Asked):
        home, container = question.sandbox, question.container.name
        who = f"{home.namespace}/{home.name}, container {container}"
        message = f"{who}, which declares {declaration(state, home, container)}: {message}"
    return Final(Refusal(message, Refused.FAULT), reason)


def declaration(state: State, home: Sandbox, container: str) -> str:
    """What is declared for the container as it is, for a caller that cannot decide it: nothing is read as an amount,
    since that may be what failed."""
    spec, notes = state.pods.specs.get(home.pod_uid), home.annotations
    if spec is not None:
        own = next((one.declared for one in spec.spec.containers if one.name == container), {})
        found = [f"{resource} {amount}" for resource, amount in own.items()]
    else:
        here = [key for key in (keys.OWN_LIMITS, *keys.upstream_epc_of(container)) if key in notes]
        found = [f"annotation {key} {notes[key][:_SHOWN]!r}" for key in here]
    return ", ".join(found) or "nothing"
