"""How events change what is known of gates, and when a container's creation is refused."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from nodeward.core import events as ev
from nodeward.core.decision import NOTHING, Decision, Fault, Final
from nodeward.core.events import Creating, Question
from nodeward.core.feature import Hear
from nodeward.core.gating import Gated, gated, refusal
from nodeward.core.modes import Mode
from nodeward.core.refusal import Reason, Refusal, Refused
from nodeward.core.tables import put, without
from nodeward.core.workload import PodUid
from nodeward.features.gate.rule import is_denied, shut
from nodeward.features.gate.state import AtGate, Gate, Said
from nodeward.features.root import State

MOST_PODS = 1024
"""At the gate; of more the one that asked first is forgotten. It asks again."""
_Entry = TypeVar("_Entry", AtGate, Said)


def gate_of(state: State, event: ev.Creating) -> Gated | None:
    """The gate of the container's pod, None for none."""
    home = event.sandbox
    named = home.pod_uid, home.namespace, home.name
    return gated(state.settings.gate.handlers, home.handler, home.annotations, named)


def on_fault(state: State, question: Question, fault: Fault) -> Final | None:
    """Refuses a pod with a gate, since the state of its gate is not known. Others have no part in it."""
    pod = gate_of(state, question) if isinstance(question, Creating) else None
    if pod is None or state.settings.gate.mode is not Mode.ENFORCE:
        return None
    text = f"{pod.namespace}/{pod.name}: whether its gate is open is not known: the feature gate failed ({fault.error})"
    return Final(Refusal(text, Refused.FAULT), Reason("fault", (fault.feature,)))


def _creating(state: State, event: ev.Creating) -> tuple[Gate, Decision]:
    """A refusal where the container is created too soon."""
    rule, pod = state.settings.gate, gate_of(state, event)
    if pod is None or rule.mode is Mode.OFF:
        return state.gate, NOTHING
    gate, why = _at_gate(state.gate, pod, event.seq), shut(state, pod, event.wall_ns)
    if not why:
        return gate, NOTHING
    gate, text = replace(gate, refused=gate.refused + 1), refusal(pod, why)
    if rule.mode is Mode.OBSERVE:
        return gate, Decision(notes=(Reason("gate", (f"{text}; gate.mode is observe, so it starts",)),))
    return gate, Decision(Final(Refusal(text), Reason("gate", (text,))))


def _at_gate(gate: Gate, pod: Gated, seq: int) -> Gate:
    uid = PodUid(pod.uid)
    pods = {**without(gate.pods, (uid,)), uid: AtGate(pod, seq)}  # the newest is the last
    while len(pods) > MOST_PODS:
        del pods[next(iter(pods))]
    return replace(gate, pods=pods)


def _absent(state: State, as_of: int) -> list[PodUid]:
    """The pods that a list proves to be gone: not those that the runtime has, such as a static pod without a mirror."""
    pods = state.pods

    def gone(table: Mapping[PodUid, _Entry]) -> list[PodUid]:
        late = (uid for uid, one in table.items() if one.seq <= as_of)
        return [uid for uid in late if uid not in pods.specs and uid not in pods.sandbox_of]

    return [*gone(state.gate.pods), *gone(state.gate.verdicts)]


def _without(gate: Gate, uids: Iterable[PodUid]) -> Gate:
    gone = tuple(uids)
    pods, verdicts = without(gate.pods, gone), without(gate.verdicts, gone)
    if pods is gate.pods and verdicts is gate.verdicts:
        return gate
    return replace(gate, pods=pods, verdicts=verdicts)


def _asked(state: State, event: ev.GateAsked) -> tuple[Gate, Decision]:
    is_off = state.settings.gate.mode is Mode.OFF
    return state.gate if is_off else _at_gate(state.gate, event.pod, event.seq), NOTHING


def _set(state: State, event: ev.GateSet) -> tuple[Gate, Decision]:
    gate = state.gate
    if is_denied(state, event.uid):
        return gate, NOTHING
    return replace(gate, verdicts=put(gate.verdicts, event.uid, Said(event.verdict, event.seq))), NOTHING


def _recalled(_: State, event: ev.GateRecalled) -> tuple[Gate, Decision]:
    return Gate(verdicts={uid: Said(one, event.seq) for uid, one in event.verdicts.items()}, fault=event.fault), NOTHING


HEARS: Mapping[type[ev.Event], Hear[State]] = {
    ev.Creating: _creating,
    ev.GateAsked: _asked,
    ev.GateSet: _set,
    ev.GateRecalled: _recalled,
    ev.PodGone: lambda state, event: (_without(state.gate, (event.uid,)), NOTHING),
    ev.PodsListed: lambda state, event: (_without(state.gate, _absent(state, event.as_of)), NOTHING),
}
