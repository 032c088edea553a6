"""Gates: when each condition is met, whom a shut gate stops, and how long a verdict holds."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from nodeward.core import events as ev
from nodeward.core.annotations import GATE
from nodeward.core.decision import Decision
from nodeward.core.gating import Gated, Verdict, gated
from nodeward.core.modes import Mode
from nodeward.core.refusal import Refusal, Refused
from nodeward.core.workload import ContainerSpec, PodSpec, PodUid
from nodeward.features.all import apply
from nodeward.features.gate.rule import shut
from nodeward.features.gate.settings import GateSettings
from nodeward.features.keys.settings import Attestation, KeyKind, KeysSettings, Publisher
from nodeward.features.podapi.view import pod_gate
from nodeward.features.root import State
from nodeward.features.settings import EngineSettings
from tests.unit.features.build import SECOND, Told, creating, sandbox, there, value_of

U = PodUid("u")
TDX = "devices.kubevirt.io/tdx"
PASSED, DENIED = Verdict(True, "fine", at_ns=1), Verdict(False, "another image", at_ns=1)


def node(mode: Mode = Mode.ENFORCE, **handlers: tuple[str, ...]) -> Told:
    """A node whose handlers have these conditions, and which offers TDX keys."""
    row = KeyKind((TDX,), publisher=Publisher.DEVICE_PLUGIN, publish=TDX, attestation=Attestation.OBSERVE)
    keys = KeysSettings(Mode.ENFORCE, {"tdx": row})
    return Told(State(settings=EngineSettings(keys=keys, gate=GateSettings(mode, handlers))))


def make(told: Told, handler: str = "kata", notes: Mapping[str, str] | None = None) -> Decision:
    asked = creating("u", "app", annotations=dict(notes or {}))
    return told(replace(asked, sandbox=replace(asked.sandbox, handler=handler)))


def refusal(decision: Decision) -> str:
    value = value_of(decision)
    assert not isinstance(value, Refusal) or value.kind is Refused.FOR_NOW
    return value.message if isinstance(value, Refusal) else ""


def test_a_container_is_refused_for_now_until_the_verdict_and_again_once_that_has_expired() -> None:
    told = node(kata=("verdict",))
    assert refusal(make(told)).startswith("shop/pod-u: its gate is shut: verdict: no verdict was set yet")
    assert refusal(make(told, "runc")) == ""
    told(ev.GateSet(U, replace(PASSED, expires_ns=5 * SECOND)))
    assert refusal(make(told)) == ""
    told.at_ns = 5 * SECOND
    assert "PASSED (fine) has expired" in refusal(make(told))
    shown = there(pod_gate(told.state, U, told.at_ns).value)
    assert (shown.open, shown.verdict, shown.reason, shown.set_by) == (False, "EXPIRED", "fine", 0)
    assert [(one.name, one.open) for one in shown.conditions] == [("verdict", False)]
    assert told.state.gate.refused == 2


def test_a_denied_pod_stays_denied_and_a_pod_that_ended_is_forgotten() -> None:
    told = node(kata=("verdict",))
    told(ev.GateSet(U, DENIED))
    told(ev.GateSet(U, PASSED))
    assert refusal(make(told)).count("verdict: DENIED (another image), which is final") == 1
    told(ev.PodsListed((), as_of=0))
    told(ev.PodsListed((), as_of=told.state.seq))
    assert U in told.state.gate.verdicts, "the first list is of before, and by the second its sandbox stands"
    told(ev.SandboxRemoved(sandbox("u")))
    told(ev.PodsListed((), as_of=told.state.seq))
    assert (told.state.gate.verdicts, told.state.gate.pods) == ({}, {})


def test_quotes_wait_for_the_service_of_the_keys_and_a_denied_pod_is_kept_by_every_gate() -> None:
    """Also by one whose conditions have no verdict and are met."""
    told = node(kata=("quotes",))
    assert "quotes: the service at" in refusal(make(told))
    told(ev.QuotesTold("tdx", False, "connection refused"))
    assert "does not answer (connection refused)" in refusal(make(told))
    told(ev.QuotesTold("tdx", True))
    assert refusal(make(told)) == ""
    told(ev.GateSet(U, DENIED))
    assert "verdict: DENIED (another image), which is final" in refusal(make(told))
    for name in ("key", "quotes"):
        off = Told(State(settings=EngineSettings(gate=GateSettings(Mode.ENFORCE, {"kata": (name,)}))))
        assert f"{name}: keys.mode is off" in refusal(make(off))


def test_observe_says_what_it_would_refuse_and_refuses_nothing() -> None:
    told = node(Mode.OBSERVE, kata=("verdict",))
    decision = make(told)
    assert refusal(decision) == ""
    assert "no verdict was set yet" in str(decision.notes[0].values[0])
    assert make(node(Mode.OFF, kata=("verdict",))).notes == ()


def test_a_pod_adds_conditions_to_its_gate_and_takes_none_away() -> None:
    handlers, pod = {"kata": ("verdict",)}, ("u", "shop", "web")
    assert gated(handlers, "kata", {GATE: "key"}, pod) == Gated(*pod, ("key", "verdict"))
    assert gated(handlers, "runc", {GATE: " quotes, key"}, pod) == Gated(*pod, ("key", "quotes"))
    assert gated(handlers, "runc", {}, pod) is None
    for wrong in ("secret", "verdict,", "", ",".join(["key"] * 99) + ",x"):
        found = there(gated(handlers, "runc", {GATE: wrong}, pod))
        assert "is no condition; write one or more of key, quotes, verdict" in found.fault
        assert "secret" not in found.fault
        assert found.fault in shut(node().state, found, 0)


def holds(told: Told, *ids: str) -> None:
    """Kubelet's word of the pod's ids, after the kernel's of a node with two keys."""
    told(ev.KeysRead(told.state.seq, {"tdx": 2}, {"tdx": (0, 0)}))
    told(ev.KeysHeld(told.state.seq, {U: {TDX: ids}} if ids else {}, {TDX: ("tdx-0", "tdx-1")}))


def test_a_key_is_there_once_kubelet_has_given_the_pod_what_its_spec_asks_for() -> None:
    told = node(kata=("key",))
    assert "key: the pod's spec is not known yet" in refusal(make(told))
    spec = PodSpec(U, "shop", "pod-u", (ContainerSpec("app", declared={TDX: 1}),))
    told(ev.PodSeen(spec))
    holds(told)
    assert f"key: kubelet has given it 0 of 1 {TDX}, 1 of 2 are free" in refusal(make(told))
    holds(told, "tdx-1")
    assert refusal(make(told)) == ""
    told(ev.PodSeen(replace(spec, containers=(ContainerSpec("app"),))))
    assert "its spec asks for no TEE key" in refusal(make(told))


@pytest.mark.parametrize(("capacity", "free"), [(2, True), (1, False)])
def test_where_only_nfd_counts_a_key_is_there_while_no_more_are_promised_than_exist(capacity: int, free: bool) -> None:
    keys = KeysSettings(Mode.ENFORCE, {"tdx": KeyKind((TDX,))})
    told = Told(State(settings=EngineSettings(keys=keys, gate=GateSettings(Mode.ENFORCE, {"kata": ("key",)}))))
    told(ev.KeysRead(told.state.seq, {"tdx": capacity}, {"tdx": (0, 0)}))
    for pod in ("u", "v"):
        told(ev.PodSeen(PodSpec(PodUid(pod), "shop", pod, (ContainerSpec("app", declared={TDX: 1}),))))
    said = refusal(make(told))
    assert said == "" if free else "2 keys of tdx are promised and there are 1: none is free" in said


def test_where_the_feature_fails_pods_with_an_enforced_gate_are_refused_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("nodeward.features.gate.step.shut")
    for mode, handler, refused in (
        (Mode.ENFORCE, "kata", True),
        (Mode.ENFORCE, "runc", False),
        (Mode.OBSERVE, "kata", False),
    ):
        told = node(mode, kata=("verdict",))
        asked = replace(creating("u", "app"), seq=9)
        _, decision = apply(told.state, replace(asked, sandbox=replace(asked.sandbox, handler=handler)))
        assert [one.feature for one in decision.faults] == ["gate"] * (handler == "kata")
        value = value_of(decision)
        assert isinstance(value, Refusal) is refused
        assert not isinstance(value, Refusal) or "the feature gate failed (NameError: " in value.message


def test_quotes_are_asked_of_the_keys_that_the_pod_asks_for_else_of_all() -> None:
    rows = {
        key: KeyKind((name,), attestation=Attestation.OBSERVE if key == "tdx" else Attestation.OFF)
        for key, name in (("sev_es", "a.io/sev"), ("tdx", TDX))
    }
    gate = GateSettings(Mode.ENFORCE, {"kata": ("quotes",)})
    told = Told(State(settings=EngineSettings(keys=KeysSettings(Mode.ENFORCE, rows), gate=gate)))
    assert "the service at" in refusal(make(told))
    for name, said in (
        ("a.io/sev", "nobody asks a service that makes quotes: set keys.kinds.sev_es.attestation"),
        (TDX, "the service at"),
    ):
        told(ev.PodSeen(PodSpec(U, "shop", "pod-u", (ContainerSpec("app", declared={name: 1}),))))
        assert said in refusal(make(told))
