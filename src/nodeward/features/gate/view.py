"""Gates as people and the Pod API are shown them: each condition, the verdict, and how many pods wait."""

from nodeward.core.gating import Verdict
from nodeward.core.workload import PodUid
from nodeward.features.gate.rows import DENIED, PASSED, GateCondition, PodGate
from nodeward.features.gate.rule import conditions, is_over, shut
from nodeward.features.podapi.rows import Section
from nodeward.features.root import State
from nodeward.features.settings import Mode
from nodeward.people.rows import GatedRow, GatesView

SOURCE = "the node daemon's gates"
PENDING, EXPIRED = "PENDING", "EXPIRED"
_NO_VERDICT = Verdict(False, by=-1)


def pod_gate(state: State, uid: PodUid, wall_ns: int) -> Section[PodGate]:
    """The section `gate` of a pod."""
    mode, at_gate, said = state.settings.gate.mode, state.gate.pods.get(uid), state.gate.verdicts.get(uid)
    if mode is Mode.OFF:
        return Section(None, SOURCE, False, "gate.mode is off")
    if at_gate is None and said is None:
        return Section(None, SOURCE, False, "no start of this pod has asked at a gate; it may have none")
    verdict = said.verdict if said is not None else _NO_VERDICT
    found = conditions(state, at_gate.pod, wall_ns) if at_gate is not None else ()
    why = "" if at_gate is not None else "its conditions are known once its start is asked for"
    rows = tuple(GateCondition(one.name, one.open, one.why) for one in found)
    is_open = at_gate is not None and not shut(state, at_gate.pod, wall_ns)
    said_so = verdict.reason, verdict.evidence_digest, verdict.by, verdict.at_ns, verdict.expires_ns
    gate = PodGate(mode.value, is_open, rows, word(state, uid, wall_ns), *said_so)
    return Section(gate, SOURCE, not why, why, wall_ns)


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


def gate_sentences(view: GatesView | None, what: str) -> list[str]:
    """What there is to be said of the gate of NAMESPACE/POD."""
    found = [row for row in view.rows if what == f"{row.namespace}/{row.pod}"] if view is not None else []
    return [f"gate of {what}: {f'shut: {row.why}' if row.why else 'open'}." for row in found]
