"""What a container and its pod were promised: the truth order, values made to hurt, and the budget by an oracle."""

import json
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.engine.limits.promise import promise
from nodeward.engine.pods.budget import budget_of_all, declares, pod_budget
from nodeward.model import quantity
from nodeward.model.annotations import MAX_VALUE, OWN_LIMITS, TOO_LONG, UPSTREAM_EPC
from nodeward.model.settings import LimitsSettings, UnknownPod
from nodeward.model.workload import ContainerSpec, PodSpec, Role
from tests.unit.engine.build import EPC, RULE, container_spec, pod_spec

OWN = {OWN_LIMITS: '{"app":{"sgx_epc":"20"}}'}
UPSTREAM = {f"{UPSTREAM_EPC}/container.app": "30"}


def test_the_spec_wins_over_every_annotation_and_our_own_over_upstreams() -> None:
    found = promise(pod_spec("1", container_spec("app", 10)), OWN | UPSTREAM, "app", RULE)
    assert (found.values, found.known) == ({EPC: 10}, True)
    assert promise(pod_spec("1", container_spec("app")), OWN | UPSTREAM, "app", RULE).values == {}
    assert promise(None, UPSTREAM | OWN, "app", RULE).values == {EPC: 20}


@pytest.mark.parametrize(
    ("annotations", "values"),
    [
        pytest.param({"/container.app": "1", "/pod": "2", "": "3"}, {EPC: 1}, id="container first"),
        pytest.param({"/pod": "2", "": "3"}, {EPC: 2}, id="then pod, for each container"),
        pytest.param({"": "3"}, {EPC: 3}, id="then the bare key"),
        pytest.param({"/container.other": "1", "": "3"}, {EPC: 3}, id="another container's key is not ours"),
    ],
)
def test_upstream_annotations_first_present_wins(annotations: dict[str, str], values: dict[str, int]) -> None:
    found = promise(None, {UPSTREAM_EPC + key: text for key, text in annotations.items()}, "app", RULE)
    assert (found.values, found.known) == (values, True)


@pytest.mark.parametrize("text", ["1Mi", "-1", "", " 1", "0x10", "1\x00", "18446744073709551616", TOO_LONG])
def test_a_bad_upstream_value_is_a_fault_and_no_other_key_is_tried(text: str) -> None:
    found = promise(None, {f"{UPSTREAM_EPC}/pod": text, UPSTREAM_EPC: "3"}, "app", RULE)
    assert (found.values, found.known) == ({}, False)
    assert "epc-limit.nri.io/pod" in found.faults[0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"app":[]}',
        '{"app":{"sgx_epc":"1Mi"}}',
        '{"app":{"sgx_epc":-1}}',
        '{"app":{"sgx_epc":true}}',
        '{"app":{"sgx_epc":1.5}}',
        '{"app":{"sgx_epc":"1\x00"}}',
        '{"app":{"sgx_epc":NaN}}',
        '{"app":{"sgx_epc":1e3}}',
        '{"app":{"sgx_epc":"18446744073709551616"}}',
        '{"app":{"sgx_epc":' + "9" * 5000 + "}}",
        '{"app":{"sgx_epc 5\\nsev":"1"}}',
        '{"app":{"":"1"}}',
        '{"app":{"\\ud800":"1"}}',
        "[" * 100_000,
        '{"app":{"sgx_epc":"1"}}' + " " * MAX_VALUE,
        TOO_LONG,
        json.dumps({"a" * 9_000: 1}),
        json.dumps({"a" * 9_000: {"b" * 9_000: "-1"}}),
    ],
    ids=lambda text: text[:40],
)
def test_a_hostile_own_annotation_is_a_fault_and_says_nothing(text: str) -> None:
    found = promise(None, {OWN_LIMITS: text}, "app", RULE)
    assert (found.values, found.known) == ({}, False)
    assert found.faults[0].startswith(f"annotation {OWN_LIMITS}")
    assert len(found.faults[0]) < 500


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec=None)), inner, max_size=3),
    max_leaves=8,
)


@given(json_values | st.dictionaries(st.sampled_from(["app", "db"]), st.dictionaries(st.text(), st.text("0123456789"))))
def test_whatever_the_own_annotation_holds_the_promise_can_be_recorded(value: object) -> None:
    found = promise(None, {OWN_LIMITS: json.dumps(value)}, "app", RULE)
    assert all(0 <= amount < 2**64 for amount in found.values.values())
    msgspec.json.encode(found)


def test_own_annotation_denies_containers_it_does_not_name() -> None:
    assert promise(None, OWN, "db", RULE).values == {EPC: 0}
    assert promise(None, {OWN_LIMITS: '{"app":{"sgx_epc":"0"}}'}, "app", RULE).values == {EPC: 0}
    assert promise(None, {OWN_LIMITS: "{}"}, "app", RULE).values == {}


@pytest.mark.parametrize(
    ("mate", "strict", "values", "code"),
    [
        pytest.param(5, False, {EPC: 0}, "undeclared", id="beside a declaring container: 0"),
        pytest.param(None, False, {}, "none-declared", id="nobody declares: left alone"),
        pytest.param(None, True, {EPC: 0}, "strict", id="nobody declares, strict: 0"),
        pytest.param(5, True, {EPC: 0}, "undeclared", id="declaring pod under strict"),
    ],
)
def test_a_container_that_declares_nothing(mate: int | None, strict: bool, values: dict[str, int], code: str) -> None:
    spec = pod_spec("1", container_spec("app"), container_spec("mate", mate))
    for name in ("app", "ephemeral-not-in-spec"):
        found = promise(spec, {}, name, LimitsSettings(strict=strict))
        assert (found.values, found.reason.code) == (values, code)


@pytest.mark.parametrize(
    ("setting", "values", "refuse"),
    [(UnknownPod.UNLIMITED, {}, False), (UnknownPod.ZERO, {EPC: 0}, False), (UnknownPod.REFUSE, {}, True)],
)
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    ("annotations", "others"),
    [
        pytest.param({}, {}, id="none"),
        pytest.param({OWN_LIMITS: "{}"}, {}, id="own of no container"),
        pytest.param({OWN_LIMITS: '{"app":{}}'}, {}, id="own of no resource"),
        pytest.param({OWN_LIMITS: '{"app":{"foo":"1"}}'}, {"foo": 1}, id="own of another resource"),
        pytest.param({f"{UPSTREAM_EPC}/pod": "0"}, {}, id="upstream's 0 for each container"),
        pytest.param({f"{UPSTREAM_EPC}/container.app": "0", UPSTREAM_EPC: "9"}, {}, id="upstream's 0 before others"),
        pytest.param({OWN_LIMITS: "{}", f"{UPSTREAM_EPC}/pod": "0"}, {}, id="both"),
    ],
)
def test_an_annotation_that_promises_nothing_does_not_pass_the_fallback(
    annotations: dict[str, str],
    others: dict[str, int],
    strict: bool,
    setting: UnknownPod,
    values: dict[str, int],
    refuse: bool,
) -> None:
    found = promise(None, annotations, "app", LimitsSettings(unknown_pod=setting, strict=strict))
    assert (found.values, found.refuse, found.known, found.reason.code) == (
        values | others,
        refuse,
        False,
        "pod-unknown",
    )


@pytest.mark.parametrize(
    ("rule", "rest"),
    [
        pytest.param(LimitsSettings(), {}, id="left alone"),
        pytest.param(LimitsSettings(unknown_pod=UnknownPod.REFUSE), {}, id="refuse: the pod is known"),
        pytest.param(LimitsSettings(strict=True), {"keys": 0}, id="strict"),
        pytest.param(LimitsSettings(unknown_pod=UnknownPod.ZERO), {"keys": 0}, id="zero"),
    ],
)
@pytest.mark.parametrize(
    ("annotations", "epc"),
    [
        pytest.param(OWN, 20, id="own"),
        pytest.param({OWN_LIMITS: '{"app":{"sgx_epc":"0"}}'}, 0, id="own denial"),
        pytest.param({OWN_LIMITS: '{"db":{"sgx_epc":"7"}}'}, 0, id="own of another container"),
        pytest.param(UPSTREAM, 30, id="upstream"),
        pytest.param(UPSTREAM | {OWN_LIMITS: "{}"}, 30, id="upstream beside an own one that says nothing"),
    ],
)
def test_what_an_annotation_leaves_open_is_denied_where_a_setting_asks_for_it(
    annotations: dict[str, str], epc: int, rule: LimitsSettings, rest: dict[str, int]
) -> None:
    found = promise(None, annotations, "app", replace(rule, resources={"a": EPC, "b": "keys"}))
    assert (found.values, found.refuse, found.known) == ({EPC: epc} | rest, False, True)


def test_a_key_that_the_ledger_counts_is_no_limit() -> None:
    """Given a VM that was promised a TEE key and EPC, then only EPC, which the limits speak of, is limited: the kernel
    takes a refused TDX charge back twice (docs/keys-rules.md, K5)."""
    spec = pod_spec("a", ContainerSpec("vm", declared={EPC: 4096, "tdx": 1}))
    assert promise(spec, {}, "vm", RULE).values == {EPC: 4096}
    bare = pod_spec("a", ContainerSpec("vm", declared={"tdx": 1}))
    found = promise(bare, {}, "vm", RULE)
    assert (found.values, found.reason.code) == ({}, "none-declared")


amounts = st.none() | st.integers(0, 100) | st.integers(0, 2**63 - 1)
first = st.builds(container_spec, st.just("i"), amounts, st.sampled_from([Role.INIT, Role.SIDECAR]))
second = st.builds(container_spec, st.just("c"), amounts, st.sampled_from([Role.REGULAR, Role.EPHEMERAL]))


def highest_moment(spec: PodSpec) -> int:
    """What runs at the same time, at every moment: one init after the other while earlier sidecars run, then all."""

    def amount(one: ContainerSpec) -> int:
        return one.declared.get(EPC, 0)

    moments: list[list[ContainerSpec]] = []
    for position, one in enumerate(spec.containers):
        if one.role is Role.INIT:
            moments.append([one, *(s for s in spec.containers[:position] if s.role is Role.SIDECAR)])
    moments.append([one for one in spec.containers if one.role in (Role.SIDECAR, Role.REGULAR)])
    return max(sum(amount(one) for one in moment) for moment in moments) + spec.overhead.get(EPC, 0)


@given(st.lists(first, max_size=5), st.lists(second, max_size=5), st.integers(0, 10))
def test_budget_is_the_highest_moment(inits: list[ContainerSpec], rest: list[ContainerSpec], overhead: int) -> None:
    spec = pod_spec("1", *inits, *rest, overhead=overhead)
    assert pod_budget(spec, EPC) == min(highest_moment(spec), quantity.MAX_VALUE)
    assert budget_of_all(spec, [EPC, "tdx"]) == pod_budget(spec, EPC)
    assert declares(spec, EPC) == (overhead > 0 or any(EPC in one.declared for one in spec.containers))
    assert not declares(spec, "tdx")
