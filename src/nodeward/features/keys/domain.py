"""The domain `ledger`: TEE keys, what may still be sold of them, and who holds what."""

from nodeward.core.decision import Fault, Final
from nodeward.core.events import Admitted, Question
from nodeward.core.feature import Domain
from nodeward.core.refusal import Reason, Refusal, Refused
from nodeward.features.keys.step import next_wake, step
from nodeward.features.root import State


def _on_fault(_: State, question: Question, fault: Fault) -> Final | None:
    """An id given out without being counted could be one that the kernel cannot honour, so kubelet is refused. A
    runtime waits for nothing of the ledger's, so no container pays for its fault."""
    if not isinstance(question, Admitted):
        return None
    message = f"Nodeward's domain ledger failed ({fault.error}), so no key is given out; see nodeward status"
    return Final(Refusal(message, Refused.FAULT), Reason("fault", ("ledger",)))


LEDGER = Domain("ledger", step, next_wake, _on_fault, kinds=("offer", "nfd"))
