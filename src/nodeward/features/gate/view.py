"""Makes the rows of gates: each condition, the verdict, and how many pods wait."""

from nodeward.core.gating import Verdict
from nodeward.core.modes import Mode
from nodeward.core.workload import PodUid
from nodeward.features.gate.rows import DENIED, PASSED, GatedRow, GatesView
from nodeward.features.gate.rule import is_over, shut
from nodeward.features.root import State

SOURCE = "the node daemon's gates"
PENDING, EXPIRED = "PENDING", "EXPIRED"
_NO_VERDICT = Verdict(False, by=-1)


def word(state: State, uid: PodUid, wall_ns: int) -> str:
    """The verdict on a pod."""
    said = state.gate.verdicts.get(uid)
    if said is None:
        return PENDING
    if not said.verdict.passed:
        return DENIED
    return EXPIRED if is_over(said.verdict, wall_ns) else PASSED


def gates_view(state: State, wall_ns: int) -> GatesView | None:
    """The pods at a gate; None while gates are off."""
    rule, gate = state.settings.gate, state.gate
    if rule.mode is Mode.OFF:
        return None
    rows = (
        GatedRow(one.pod.namespace, one.pod.name, uid, word(state, uid, wall_ns), shut(state, one.pod, wall_ns))
        for uid, one in gate.pods.items()
    )
    return GatesView(rule.mode.value, tuple(rows), gate.refused, gate.fault)
