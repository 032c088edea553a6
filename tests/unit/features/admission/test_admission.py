"""What a pod gets at admission, why one is refused, and how that is told."""

import asyncio
import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nodeward.cli.cri_resmgr.webhook import pairs_of
from nodeward.core.errors import WireError
from nodeward.features.admission.door.refusal_log import APART_S, RefusalLog
from nodeward.features.admission.requests import MAX_TEXT
from nodeward.features.admission.values import AdmissionRule, Verdict
from nodeward.features.limits.promise import promise
from nodeward.features.limits.settings import LimitsSettings
from nodeward.neighbours.formats.kube_objects import decode_pod
from nodeward.neighbours.kubernetes.mapping import pod_spec
from tests.unit.features.admission.rounds import Json, admitted, at, container, notes, pod_of

EPC, ENCLAVE = "sgx.intel.com/epc", "sgx.intel.com/enclave"
QUOTE, LIMITS, UPSTREAM = "sgx.intel.com/quote-provider", "nodeward.io/limits", "epc-limit.nri.io"
REQUIRED = "required-plugins.noderesource.dev"


@dataclass(frozen=True, slots=True)
class Case:
    case: str
    containers: list[Json]
    init_containers: list[Json] | None = None
    annotations: Json | None = None
    spec: Json = field(default_factory=dict)
    operation: str = "CREATE"
    sub_resource: str = ""
    required: str = ""
    by_nri: bool = False
    resources: dict[str, str] = field(default_factory=lambda: {EPC: "sgx_epc"})
    then: Json | None = None
    adds: list[tuple[str, object]] = field(default_factory=list)
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def pod(self) -> Json:
        inits = {} if self.init_containers is None else {"initContainers": [*map(written, self.init_containers)]}
        return pod_of(*map(written, self.containers), annotations=self.annotations, **inits, **self.spec)


def written(row: Json) -> Json:
    limits = row.get("limits")
    resources = {} if limits is None else {"resources": {"limits": limits, "requests": copy.deepcopy(limits)}}
    return container(str(row["name"])) | {key: value for key, value in row.items() if key != "limits"} | resources


TOLD = yaml.safe_load(Path(__file__).with_name("pods.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", msgspec.convert(TOLD, list[Case]), ids=lambda case: case.case)
def test_what_a_pod_gets_at_admission_and_why_one_is_refused(case: Case) -> None:
    made, rule = case.pod(), AdmissionRule(case.resources, case.required, case.by_nri)
    found = admitted(made, case.operation, case.sub_resource, rule)

    others = tuple(one for one in found.verdict.warnings if "less than a page" not in one)  # amounts are small here
    assert (found.verdict.refusals, others) == (case.refusals, case.warnings)
    assert notes(found.pod) == (notes(made) if case.then is None else case.then)
    changes = [one for one in found.operations if not str(one["path"]).startswith("/metadata")]
    assert [(one["path"], one.get("value")) for one in changes] == case.adds
    assert not (case.refusals and found.operations)


@pytest.mark.parametrize(
    ("limit", "request_", "decimal", "total"),
    [
        ("1Mi", "1024Ki", "1048576", "1Mi"),
        ("1Mi", "1048576", "1048576", "1Mi"),
        ("0.5Gi", "512Mi", "536870912", "512Mi"),
        ("3000m", "3", "3", "3"),
        ("1e3", "1k", "1000", "1k"),
        ("1M", "1000000", "1000000", "1000000"),
        ("010", "10", "10", "10"),
        ("7Ei", "7Ei", "8070450532247928832", "7Ei"),
        ("9223372036854775807", "9223372036854775807", "9223372036854775807", "9223372036854775807"),
    ],
)
def test_amounts_are_compared_as_numbers(limit: str, request_: str, decimal: str, total: str) -> None:
    app = container("app", resources={"limits": {EPC: limit}, "requests": {EPC: request_}})
    found = admitted(pod_of(app))

    assert found.verdict.refusals == ()
    assert at(notes(found.pod), LIMITS) == f'{{"app":{{"sgx_epc":"{decimal}"}}}}'
    assert at(notes(found.pod), EPC) == total
    assert notes(found.pod).get(f"{UPSTREAM}/container.app") == decimal


def test_every_fault_is_told_at_once_and_not_more_than_ten() -> None:
    found = admitted(pod_of(*(container(f"c{number}", {EPC: "x"}) for number in range(30))))

    assert len(found.verdict.refusals) == 11
    assert found.verdict.refusals[-1] == "and 20 more"


def test_a_sum_of_very_many_containers_is_told_in_a_bounded_text() -> None:
    """The API server hands a refusal on to people: names and values are cut, and so is their list."""
    refusals = admitted(pod_of(*(container("c" * 63, {EPC: "4E"}) for _ in range(500)))).verdict.refusals

    assert len(refusals) == 1
    assert "(spec.containers[9])" in refusals[0]
    assert ", and 490 more: together 2000000000000000000000 at one time" in refusals[0]
    assert len(refusals[0]) < 4096


@pytest.mark.parametrize(("length", "fits"), [(53, True), (54, False), (63, False)])
def test_the_key_for_upstream_is_written_where_it_fits(length: int, fits: bool) -> None:
    name = "c" * length
    found = notes(admitted(pod_of(container(name, {EPC: "1"}))).pod)

    assert (at(found, f"{UPSTREAM}/container.{name}") == "1") is fits
    assert at(found, LIMITS) == f'{{"{name}":{{"sgx_epc":"1"}}}}'


@pytest.mark.parametrize(
    "metadata",
    [None, {}, {"annotations": None}, {"annotations": {}}, {"annotations": {"a/b~c": "d", QUOTE: "aesmd"}}],
    ids=str,
)
def test_the_patch_fits_whatever_is_absent_or_null(metadata: Json | None) -> None:
    app: Json = {"name": "app", "resources": {"limits": {EPC: "1"}, "requests": None}, "env": None}
    made: Json = {"spec": {"containers": [app], "initContainers": None, "volumes": None}}
    if metadata is not None:
        made["metadata"] = metadata
    found = admitted(made)

    assert at(found.pod, "spec", "containers", 0, "resources", "requests") == {ENCLAVE: "1"}
    assert at(notes(found.pod), EPC) == "1"
    assert admitted(found.pod).operations == []


@pytest.mark.parametrize(("amount", "is_told"), [("10", True), ("4095", True), ("4096", False), ("10Mi", False)])
def test_an_amount_below_a_page_is_let_in_with_a_warning(amount: str, is_told: bool) -> None:
    found = admitted(pod_of(container("app", {EPC: amount}))).verdict

    assert found.refusals == ()
    assert (found.warnings != ()) == is_told
    assert all("less than a page of 4096 bytes" in one and f"'{amount}'" in one for one in found.warnings)


def test_an_aesmd_that_came_after_the_volume_of_the_nodes_folder_is_warned_of() -> None:
    """Given a second round for a pod that had no aesmd in the first one, then its volume stays and its author is told:
    an aesmd there would take the place of the node's for all pods."""
    once = admitted(pod_of(container("app", {EPC: "1Mi"}), annotations={QUOTE: "aesmd"}))
    spec = once.pod["spec"]
    assert isinstance(spec, dict)
    spec["containers"].append(container("aesmd", {EPC: "1Mi"}))
    twice = admitted(once.pod)

    assert once.verdict.warnings == ()
    assert at(twice.pod, "spec", "volumes") == at(once.pod, "spec", "volumes")
    assert twice.verdict.warnings == (
        "spec.volumes[aesmd-socket] is the node's folder, and container 'aesmd' of this pod would serve it to every "
        "pod of the node; write emptyDir: {medium: Memory} for this volume",
    )


@pytest.mark.parametrize("length", [4096, 4097])
def test_a_list_of_plugins_is_read_up_to_a_length(length: int) -> None:
    rule = AdmissionRule(required_plugin="nodeward")
    other = "a" * (length - len("[]"))
    found = admitted(pod_of(container("app", {EPC: "1"}), annotations={REQUIRED: f"[{other}]"}), rule=rule)

    if length > 4096:
        assert found.verdict.refusals[0].startswith(f"metadata.annotations[{REQUIRED}] is '[aaa")
        assert len(found.verdict.refusals[0]) < 500
    else:
        assert at(notes(found.pod), REQUIRED) == f'["{other}","nodeward"]'


def test_an_ephemeral_container_with_a_resource_is_refused_and_one_without_changes_nothing() -> None:
    base = admitted(pod_of(container("app", {EPC: "4Ki"}))).pod
    plain, greedy = copy.deepcopy(base), copy.deepcopy(base)
    for made, debugger in ((plain, container("debug")), (greedy, container("debug", {EPC: "4Ki"}))):
        spec = made["spec"]
        assert isinstance(spec, dict)
        spec["ephemeralContainers"] = [debugger]

    assert admitted(plain, "UPDATE", "ephemeralcontainers").operations == []
    refused = admitted(greedy, "UPDATE", "ephemeralcontainers").verdict.refusals
    assert refused == (
        "ephemeral container 'debug' (spec.ephemeralContainers[0]): resources.limits[sgx.intel.com/epc] is '4Ki': an "
        "ephemeral container can have no resources; take it out, or declare it in a container of the pod",
    )


def test_annotations_that_were_changed_later_are_set_right_again() -> None:
    good = admitted(pod_of(container("app", {EPC: "4Ki"}))).pod
    bad = copy.deepcopy(good)
    bad["metadata"] = {"annotations": {LIMITS: "{}", f"{UPSTREAM}/pod": "99", "own": "stays"}}
    found = admitted(bad, "UPDATE")

    assert notes(found.pod) == {**notes(good), "own": "stays"}


PROVISION = "sgx.intel.com/provision"
KEYS = (QUOTE, LIMITS, UPSTREAM, f"{UPSTREAM}/pod", f"{UPSTREAM}/container.app", EPC, "a")
AMOUNTS = st.sampled_from(["1", "4096", "4Ki", "1Mi", "1048576", "1.5Ki", "1k", "3000m"])
NAMES = st.sampled_from(["app", "aesmd", "side", "x" * 53, "y" * 54])


@st.composite
def containers(draw: st.DrawFn) -> Json:
    limits: Json = {}
    if draw(st.booleans()):
        limits[EPC] = draw(AMOUNTS)
    if draw(st.booleans()):
        limits["cpu"] = "1"
    if draw(st.integers(0, 4)) == 0:
        limits[draw(st.sampled_from([ENCLAVE, PROVISION]))] = draw(st.sampled_from(["1", "2"]))
    found = container(draw(NAMES), limits or None)
    if draw(st.integers(0, 3)) == 0:
        found["env"] = draw(st.sampled_from([None, [], [{"name": "A", "value": "b"}], [{"name": "SGX_AESM_ADDR"}]]))
    if draw(st.integers(0, 3)) == 0:
        mount = {"name": draw(st.sampled_from(["aesmd-socket", "v"])), "mountPath": "/var/run/aesmd"}
        found["volumeMounts"] = draw(st.sampled_from([None, [], [mount], [{"name": "v", "mountPath": "/v"}]]))
    return found


@st.composite
def pods(draw: st.DrawFn) -> Json:
    regular = draw(st.lists(containers(), min_size=1, max_size=4, unique_by=lambda one: str(one["name"])))
    taken = [one["name"] for one in regular]
    drawn = draw(st.lists(containers(), max_size=3, unique_by=lambda one: str(one["name"])))
    init = [one for one in drawn if one["name"] not in taken]
    for one in init:
        if draw(st.booleans()):
            one["restartPolicy"] = "Always"
    annotations: Json | None = None
    if draw(st.booleans()):
        values = st.sampled_from(["", "1", "aesmd", "app", "[a]"])
        annotations = {key: draw(values) for key in draw(st.lists(st.sampled_from(KEYS), max_size=5))}
    return pod_of(*regular, annotations=annotations, initContainers=init)


@given(pods(), st.booleans())
def test_a_second_round_changes_nothing(made: Json, required: bool) -> None:
    rule = AdmissionRule(required_plugin="nodeward" if required else "")
    once = admitted(made, rule=rule)

    assert admitted(once.pod, rule=rule).operations == []
    assert admitted(once.pod, "UPDATE", rule=rule).operations == []


@given(pods())
def test_the_node_reads_from_the_annotation_what_it_reads_from_the_spec(made: Json) -> None:
    found = admitted(made).pod
    whole = copy.deepcopy(found)
    metadata = whole["metadata"]
    assert isinstance(metadata, dict)
    metadata["uid"] = "u"
    spec = pod_spec(decode_pod(json.dumps(whole).encode()))
    annotations = {key: str(value) for key, value in notes(found).items()}
    for one in spec.containers:
        told = promise(spec, {}, one.name, LimitsSettings())
        noted = promise(None, annotations, one.name, LimitsSettings())
        assert (noted.values, noted.faults) == (told.values, ())


NRI_PLUGINS, CRI_RM = "noderesource.dev/resources", "intel.com/resources"
APP = container("app", resources={"requests": {"memory": "1Gi", "cpu": "2"}, "limits": {"cpu": "2500m"}})
PLAIN = '"plain":{}'
SAID = '"app":{"limits":{"cpu":"2500m"},"requests":{"cpu":"2","memory":"1Gi"}}'


def answered(pod: Json, key: str, operation: str = "CREATE", sub_resource: str = "") -> tuple[Json, Verdict]:
    found = admitted(pod, operation, sub_resource, annotate=key)
    return notes(found.pod), found.verdict


@pytest.mark.parametrize(
    ("key", "init", "text"),
    [
        (NRI_PLUGINS, (), f'{{"containers":{{{SAID},{PLAIN}}}}}'),
        (CRI_RM, (), f'{{"initContainers":{{}},"containers":{{{SAID},{PLAIN}}}}}'),
        (
            NRI_PLUGINS,
            (container("setup", {"cpu": "1"}), container("side", restartPolicy="Always")),
            '{"initContainers":{"setup":{"limits":{"cpu":"1"},"requests":{"cpu":"1"}},"side":{}},'
            f'"containers":{{{SAID},{PLAIN}}}}}',
        ),
    ],
    ids=["nri-plugins", "CRI Resource Manager", "with init containers and sidecars"],
)
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_the_text_is_upstreams_whatever_was_there(operation: str, key: str, init: tuple[Json, ...], text: str) -> None:
    spec: Json = {"initContainers": list(init)} if init else {}
    lie: Json = {key: '{"containers":{"app":{"requests":{"cpu":"9"}}}}', "mine": "stays"}

    found, verdict = answered(made(spec, lie), key, operation)

    assert found == {key: text, "mine": "stays"}
    assert not verdict.refusals
    assert answered(made(spec, None), key)[0] == {key: text}
    assert answered(made(spec, found), key, operation)[1] == Verdict()


def made(spec: Json, annotations: Mapping[str, object] | None) -> Json:
    pod = pod_of(container("plain"), APP, annotations=annotations)
    return pod | {"spec": {"containers": [container("plain"), APP], **spec}}


def test_no_pod_is_lost_for_a_text_that_is_too_long() -> None:
    crowd = [container(f"container-number-{one:04}", {"cpu": "1"}) for one in range(MAX_TEXT // 60)]

    found, verdict = answered(pod_of(*crowd, annotations={NRI_PLUGINS: "{}"}), NRI_PLUGINS)

    assert found == {}
    assert "is not written" in verdict.warnings[0]


@pytest.mark.parametrize("sub_resource", ["ephemeralcontainers", "resize"])
def test_a_subresource_changes_no_annotation(sub_resource: str) -> None:
    assert answered(pod_of(APP), NRI_PLUGINS, "UPDATE", sub_resource) == ({}, Verdict())


def test_the_options_of_cri_resource_managers_webhook_are_settings() -> None:
    pairs = pairs_of(["-cert-file=/c/svc.crt", "--key-file", "/c/svc.key", "-port=8443"])

    assert pairs == {
        "webhook.port": "8443",
        "webhook.annotate": '["intel.com/resources"]',
        "webhook.certificate_file": "/c/svc.crt",
        "webhook.key_file": "/c/svc.key",
    }
    assert pairs_of(["-h"]) is None
    for words, said in (("-cert-file=/c", "-key-file: is missing"), ("x", "'x' is no option"), ("-ports=1", "port")):
        with pytest.raises(WireError, match=said):
            pairs_of([words])


class Later:
    """A loop's clock by hand: what was asked to be called, and in how many seconds."""

    def __init__(self) -> None:
        self.due: list[tuple[float, object, tuple[object, ...]]] = []

    def call_later(self, seconds: float, call: object, *args: object) -> None:
        self.due.append((seconds, call, args))

    def pass_(self) -> None:
        due, self.due = self.due, []
        for seconds, call, args in due:
            assert seconds == APART_S
            assert callable(call)
            call(*args)


def test_a_reason_is_one_bounded_line(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may name what a client sent."""
    monkeypatch.setattr(asyncio, "get_running_loop", Later)
    RefusalLog().tell("400", "not a review: a\nturned_away=b\x1b[2J" + "c" * 9999)
    (record,) = caplog.records

    said = record.getMessage()
    assert said.startswith("turned_away=400 times=1 because=not a review: a\\u000aturned_away=b\\u001b[2Jccc")
    assert said.endswith("c...")
    assert len(said) < 500


def test_the_first_is_told_at_once_and_the_rest_of_a_minute_in_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = Later()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: later)
    turned = RefusalLog()

    def lines() -> list[str]:
        said = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return said

    for _ in range(1000):
        turned.tell("503", "too many")
    turned.tell("415", "not JSON")
    assert lines() == ["turned_away=503 times=1 because=too many", "turned_away=415 times=1 because=not JSON"]
    later.pass_()
    assert lines() == ["turned_away=503 times=999 because=too many"]
    turned.tell("503", "too many")
    assert lines() == []
    later.pass_()
    assert lines() == ["turned_away=503 times=1 because=too many"]
    later.pass_()
    assert (lines(), later.due) == ([], [])
    turned.tell("503", "too many")
    assert lines() == ["turned_away=503 times=1 because=too many"]
