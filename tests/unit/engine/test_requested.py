"""Who says what a container requests of the CPUs: its pod's spec, a webhook's annotation, or an estimate."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.engine.cpus.requested import ESTIMATE, UNTOLD, Requested, Scope, flag, requested, scoped, shares_of
from nodeward.model.annotations import CPU_REQUESTS, TOO_LONG
from nodeward.model.workload import CpuRecord, Qos, Role, Source
from tests.unit.engine.build import container_spec, pod_spec

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
def test_an_annotation_that_claims_more_than_kubelet_asked_for_gives_nothing(
    record: CpuRecord, parent: str, request_m: int
) -> None:
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
