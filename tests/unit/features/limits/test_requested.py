"""What a container requests of the CPUs, by whose word; and what a pod is promised of limits."""

import json
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.core import quantity
from nodeward.core.annotations import CPU_REQUESTS, MAX_VALUE, OWN_LIMITS, TOO_LONG, UPSTREAM_EPC
from nodeward.core.workload import ContainerSpec, CpuRecord, PodSpec, Qos, Role, Source
from nodeward.features.cpus.requested import ESTIMATE, UNTOLD, Requested, Scope, flag, requested, scoped, shares_of
from nodeward.features.limits.promise import promise
from nodeward.features.limits.settings import LimitsSettings, UnknownPod
from nodeward.features.pods.budget import budget_of_all, declares, pod_budget
from tests.unit.features.build import EPC, RULE, container_spec, pod_spec

GUARANTEED, BURSTABLE, BEST_EFFORT = "/kubepods/podu", "/kubepods/burstable/podu", "/kubepods.slice/kubepods-besteffort"
NEW, OLD = CPU_REQUESTS
ASKED = CpuRecord(2048, 200_000, 100_000)
"""2 CPUs and a limit of as much."""


def said(container: object, section: str = "containers") -> str:
    return json.dumps({section: {"app": container}})


TWO = said({"requests": {"cpu": "2"}, "limits": {"cpu": 3}})


def test_the_spec_comes_first() -> None:
    spec = replace(
        pod_spec("u", replace(container_spec("app", role=Role.SIDECAR), cpu_m=1500, cpu_limit_m=2000)),
        qos=Qos.BURSTABLE,
        pod_level=True,
    )
    found = requested(spec, {NEW: TWO}, "app", ASKED, GUARANTEED)
    assert found == Requested(1500, 2000, Qos.BURSTABLE, Role.SIDECAR, Source.API.value, True, True)


def test_a_spec_that_does_not_tell_it_leaves_it_to_the_others() -> None:
    spec = replace(pod_spec("u", container_spec("app", role=Role.INIT)), qos=Qos.GUARANTEED)
    assert requested(spec, {}, "app", ASKED, BURSTABLE).source == ESTIMATE
    assert requested(spec, {}, "app", ASKED, BURSTABLE).qos is Qos.GUARANTEED
    assert requested(spec, {NEW: TWO}, "app", ASKED, BURSTABLE).role is Role.INIT
    assert requested(spec, {}, "debug", CpuRecord(2), GUARANTEED).request_m == 0


def test_the_annotation_comes_before_the_estimate_and_the_newer_key_before_the_older() -> None:
    found = requested(None, {NEW: TWO, OLD: said({})}, "app", ASKED, BURSTABLE)
    assert found == Requested(2000, 3000, Qos.BURSTABLE, Role.REGULAR, f"annotation {NEW}")
    init = requested(None, {OLD: said({"limits": {"cpu": "1.5"}}, "initContainers")}, "app", CpuRecord(1536), "")
    assert init == Requested(1500, 1500, Qos.BURSTABLE, Role.INIT, f"annotation {OLD}")
    assert requested(None, {NEW: said({"limits": {"memory": "1Gi"}})}, "app", CpuRecord(2), "").source != ESTIMATE
    assert requested(None, {NEW: TWO}, "other", ASKED, GUARANTEED).source == ESTIMATE


NINE = said({"requests": {"cpu": "9"}, "limits": {"cpu": "9"}})


@pytest.mark.parametrize(
    ("record", "parent", "request_m"),
    [
        (CpuRecord(512), BURSTABLE, 500),
        (ASKED, GUARANTEED, 2000),
        (CpuRecord(9216, 200_000, 100_000), GUARANTEED, 9000),
        (CpuRecord(2), BEST_EFFORT, 0),
    ],
    ids=["Burstable, by the shares", "Guaranteed", "Guaranteed, by the quota though the shares fit", "BestEffort"],
)
def test_an_annotation_of_more_than_kubelet_asked_for_is_void(record: CpuRecord, parent: str, request_m: int) -> None:
    found = requested(None, {NEW: NINE}, "app", record, parent)

    assert (found.request_m, found.source) == (request_m, ESTIMATE)
    assert found.known is (request_m != 9000)  # nothing is a container's own by what contradicts itself
    assert "says 9000m CPU, and kubelet asked the runtime for" in found.faults[0]
    assert requested(None, {NEW: NINE}, "app", record, parent, lambda *_: True).request_m == 9000


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param("[" * 100_000, "is no JSON (RecursionError)", id="too deep"),
        pytest.param("[]", "is no JSON object", id="a list"),
        pytest.param(said({"requests": []}), "containers.app is no object of", id="requests are a list"),
        pytest.param(TOO_LONG, "is longer than 262144 characters", id="too long"),
        pytest.param('{"containers": []}', "containers is no object of containers", id="containers are a list"),
        pytest.param(said("2"), "containers.app is no object of requests and limits", id="a container is a text"),
        pytest.param(said({"requests": {"cpu": None}}), "containers.app.requests.cpu is neither a text", id="null"),
        pytest.param(said({"requests": {"cpu": "two"}}), "containers.app.requests.cpu: 'two' is not", id="a word"),
        pytest.param(said({"limits": {"cpu": -1}}), "containers.app.limits.cpu: '-1' is negative", id="negative"),
        pytest.param(
            said({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
            "containers.app requests 2000m CPU, more than its limit of 1000m",
            id="contradicts itself",
        ),
        pytest.param(
            json.dumps({"containers": {"app": {}}, "initContainers": {"app": {}}}),
            "'app' is both an init container and a container",
            id="twice",
        ),
    ],
)
def test_a_bad_annotation_counts_as_not_there_and_a_sentence_says_what_to_write(text: str, fault: str) -> None:
    found = requested(None, {NEW: text}, "app", ASKED, GUARANTEED)
    assert (found.request_m, found.source, found.known) == (2000, ESTIMATE, True)
    (sentence,) = found.faults
    assert sentence.startswith(f"annotation {NEW}: {fault}")
    assert "write" in sentence
    assert len(sentence) < 400
    assert requested(None, {NEW: text, OLD: TWO}, "app", ASKED, GUARANTEED).source == f"annotation {OLD}"


WORDS = st.sampled_from(["containers", "app", "requests", "limits", "cpu", "x"])
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda one: st.lists(one, max_size=2) | st.dictionaries(WORDS, one, max_size=3),
)


@given(JSON.map(json.dumps) | st.text())
def test_no_annotation_raises(text: str) -> None:
    found = requested(None, {NEW: text}, "app", CpuRecord(), "")
    assert found.source != UNTOLD or not found.known


@given(st.integers(1, 256_000))
def test_an_estimate_is_a_thousandth_off_at_most_and_exact_for_whole_cpus(request_m: int) -> None:
    found = requested(None, {}, "app", CpuRecord(shares_of(request_m)), BURSTABLE)
    assert found.request_m == 0 if request_m < 3 else abs(found.request_m - request_m) <= 1
    assert 2 <= shares_of(request_m * 2000) <= 262_144
    whole = requested(None, {}, "app", CpuRecord(shares_of(request_m // 1000 * 1000)), BURSTABLE)
    assert whole.request_m == request_m // 1000 * 1000


@pytest.mark.parametrize(
    ("record", "parent", "request_m", "limit_m", "qos", "known"),
    [
        pytest.param(ASKED, GUARANTEED, 2000, 2000, Qos.GUARANTEED, True, id="Guaranteed"),
        pytest.param(CpuRecord(2048, -1, 100_000), GUARANTEED, 2000, 2000, Qos.GUARANTEED, True, id="without a quota"),
        pytest.param(
            CpuRecord(1536, 150_000, 100_000), GUARANTEED, 1500, 1500, Qos.GUARANTEED, True, id="Guaranteed, in part"
        ),
        pytest.param(
            CpuRecord(2048, 400_000, 100_000), GUARANTEED, 2000, 4000, Qos.GUARANTEED, False, id="another limit"
        ),
        pytest.param(CpuRecord(512, 100_000, 100_000), BURSTABLE, 500, 1000, Qos.BURSTABLE, True, id="Burstable"),
        pytest.param(CpuRecord(512, 33_333, 100_000), BURSTABLE, 500, 333, Qos.BURSTABLE, True, id="rounded"),
        pytest.param(CpuRecord(2), BEST_EFFORT, 0, 0, Qos.BEST_EFFORT, True, id="BestEffort"),
        pytest.param(ASKED, "", 2000, 2000, Qos.BURSTABLE, False, id="no cgroup is told"),
        pytest.param(ASKED, "/system.slice", 2000, 2000, Qos.BURSTABLE, False, id="no cgroup of kubelet's"),
        pytest.param(CpuRecord(), GUARANTEED, 0, 0, Qos.GUARANTEED, False, id="no shares are told"),
    ],
)
def test_an_estimate_follows_the_shares_the_quota_and_the_pods_cgroup(
    record: CpuRecord, parent: str, request_m: int, limit_m: int, qos: Qos, known: bool
) -> None:
    found = requested(None, {}, "app", record, parent)
    assert (found.request_m, found.limit_m, found.qos, found.known) == (request_m, limit_m, qos, known)


def test_the_narrowest_scope_of_an_annotation_counts() -> None:
    given = {"k": "1", "k/pod": "false", "k/container.app": "True"}
    assert scoped(given, "k", "app") == ("True", Scope.CONTAINER)
    assert [flag(given, "k", name) for name in ("app", "other")] == [True, False]
    assert flag({"k": "1"}, "k", "app") is True
    assert flag({}, "k", "app") is None
    assert flag({"k": "yes"}, "k", "app") == "annotation k: 'yes' is no boolean; write true or false"


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
    beside = promise(None, {OWN_LIMITS: text, UPSTREAM_EPC: "5"}, "app", RULE)
    assert (beside.values, beside.known, beside.faults) == ({EPC: 5}, True, found.faults)
    assert beside.reason.values == ("app", *found.faults)


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


def test_a_counted_tee_key_is_not_a_limit() -> None:
    """Given a VM that was promised a TEE key and EPC, then only EPC, which the limits speak of, is limited: the kernel
    takes a refused TDX charge back twice (features/keys, K5)."""
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
