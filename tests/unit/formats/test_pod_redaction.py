"""Redaction of pods: no planted secret leaves, what a VM runtime needs stays, and each withheld value says its rule.

And the Pod API's messages: what is no request is refused unsaid."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.contracts import podapi_pb2
from nodeward.core.errors import WireError
from nodeward.features.podapi import rows as model
from nodeward.features.podapi.door import messages as codec
from nodeward.features.podapi.effects.redaction import MAX_BYTES, MAX_DEPTH, MAX_ITEMS, decode, redacted
from tests.pod_fields import NUMBERS, WORD, Planted

CANARY = "c4n4ry"
SHOWN_OF_CONTAINERS = (
    *("name", "image", "imagePullPolicy", "restartPolicy", "terminationMessagePolicy", "env[].name"),
    *("ports[].name", "ports[].protocol", "ports[].containerPort", "ports[].hostPort"),
    *("resources.limits{}", "resources.requests{}", "volumeDevices[].name", "volumeDevices[].devicePath"),
    *("volumeMounts[].name", "volumeMounts[].mountPath", "volumeMounts[].mountPropagation"),
)
SHOWN = {
    *("apiVersion", "kind", "metadata.name", "metadata.namespace", "metadata.generateName", "metadata.uid"),
    *("metadata.resourceVersion", "metadata.generation", "metadata.creationTimestamp", "metadata.deletionTimestamp"),
    *("spec.nodeName", "spec.runtimeClassName", "spec.schedulerName", "spec.serviceAccountName"),
    *("spec.priorityClassName", "spec.priority", "spec.preemptionPolicy", "spec.restartPolicy", "spec.dnsPolicy"),
    *("spec.terminationGracePeriodSeconds", "spec.overhead{}", "spec.resources.limits{}", "spec.resources.requests{}"),
    *("spec.volumes[].name", "spec.volumes[].persistentVolumeClaim.claimName", "spec.volumes[].csi.driver"),
    *("spec.volumes[].emptyDir.medium", "spec.volumes[].emptyDir.sizeLimit", "status.phase", "status.qosClass"),
    *(
        f"spec.{kind}[].{name}"
        for kind in ("containers", "initContainers", "ephemeralContainers")
        for name in SHOWN_OF_CONTAINERS
    ),
}
"""Every value of a v1.Pod that is public: this list is the rule, for a person to read and to change."""
SHAPES = (WORD, f"/{WORD}", NUMBERS)
SHAPELESS = (
    f" {WORD}",
    f"--password={WORD}",
    f"https://me:{WORD}@host/",
    f'{{{{"auth": "{WORD}"}}}}',
    f"{WORD}\n",
    f"é{WORD}",
)
PLACES: tuple[tuple[str | int, ...], ...] = (
    *((), ("metadata",), ("metadata", "annotations"), ("metadata", "managedFields", 0), ("spec",), ("status",)),
    *(("spec", "containers", 0), ("spec", "containers", 0, "env", 0), ("spec", "initContainers", 0, "lifecycle")),
    *(("spec", "volumes", 0), ("spec", "volumes", 0, "csi"), ("spec", "volumes", 0, "csi", "volumeAttributes")),
)
UNKNOWN = st.sampled_from(
    ("newField", "a.*.image", "*", f" {CANARY}", f"{CANARY}=1", f"$withheld{CANARY}", f"é{CANARY}")
)
FIELDS = st.sampled_from(("name", "env", "value", "image", "containers", "ports", "csi", "secretRef", "key")) | UNKNOWN
WORDS = st.sampled_from((CANARY, f"/{CANARY}"))
TEXTS = st.sampled_from([form.replace(WORD, CANARY) for form in SHAPELESS])


def anything(leaf: st.SearchStrategy[str]) -> st.SearchStrategy[object]:
    return st.recursive(leaf, lambda below: st.lists(below, max_size=3) | st.dictionaries(FIELDS, below, max_size=3))


def test_of_all_fields_of_a_pod_these_are_shown_and_no_other() -> None:
    shown = set[str]()
    for shape in SHAPES:
        planted = Planted(shape)
        shown |= planted.found_in(json.dumps(redacted(planted.pod)))
    assert shown == SHOWN


@given(
    st.sampled_from(SHAPELESS),
    st.tuples(st.sampled_from(PLACES), st.tuples(UNKNOWN, anything(WORDS)) | st.tuples(FIELDS, anything(TEXTS))),
)
def test_no_planted_secret_leaves(form: str, strange: tuple[tuple[str | int, ...], tuple[str, object]]) -> None:
    planted = Planted(form)
    place, (key, value) = strange
    at: Any = planted.pod
    for name in place:
        at = at[name]
    at[key] = value
    assert CANARY not in json.dumps(redacted(planted.pod), ensure_ascii=False)


LIMITED = {"spec": {"containers": [{"name": "a", "resources": {"limits": {"x.com/gpu": "1", "memory": "2Gi"}}}]}}


def env(key: object) -> object:
    return {"spec": {"containers": [{"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"key": key}}}]}]}}


def volume(value: object) -> object:
    return {"spec": {"volumes": [{"name": "v", "csi": {"driver": "d.io", "volumeAttributes": {"a": value}}}]}}


@pytest.mark.parametrize(
    ("pod", "shown"),
    [
        pytest.param(LIMITED, LIMITED, id="resources stay, with dots in their names"),
        pytest.param(env("k"), env({"$withheld": "env"}), id="env keeps its name and origin"),
        pytest.param(volume("b"), volume({"$withheld": "volumes"}), id="volumes keep name and driver"),
        pytest.param({"new": [1, True, None]}, {"new": [{"$withheld": "not-allowed"}, True, None]}, id="unknown field"),
        pytest.param(
            {"spec": {"nodeName": "a b"}}, {"spec": {"nodeName": {"$withheld": "not-allowed"}}}, id="not of its shape"
        ),
        pytest.param(
            {"spec": {"imagePullSecrets": [{"name": "s"}]}},
            {"spec": {"imagePullSecrets": [{"name": {"$withheld": "image-pull-secrets"}}]}},
            id="pull secrets",
        ),
    ],
)
def test_what_stays_and_what_is_withheld(pod: object, shown: object) -> None:
    assert redacted(pod) == shown


def test_a_pod_of_3_mib_is_read_and_a_larger_one_is_refused() -> None:
    filler = b'{"new":"' + b"x" * (MAX_BYTES - 10) + b'"}'
    assert redacted(decode(filler)) == {"new": {"$withheld": "not-allowed"}}
    with pytest.raises(WireError, match="at most"):
        decode(filler + b" ")


@pytest.mark.parametrize("data", [b'{"a": "c4n4ry', b"[" * 100_000], ids=["cut", "nested"])
def test_what_is_no_json_is_refused_without_its_text(data: bytes) -> None:
    with pytest.raises(WireError) as refused:
        decode(data)
    assert CANARY not in str(refused.value)


def test_depth_and_number_of_values_are_bounded() -> None:
    deep: object = "x"
    for _ in range(MAX_DEPTH + 1):
        deep = [deep]
    for pod in (deep, [None] * MAX_ITEMS):
        with pytest.raises(WireError, match="it is not shown"):
            redacted(pod)


WRONG = {
    "cut": (b'{"selector":{"uid":', "no JSON"),
    "deep": (b"[" * 20_000, "no JSON, or nested too deeply"),
    "no object": (b"[]", "the request: Expected `object`, got `array`"),
    "unknown field": (b'{"selector":{"s3cret":1}}', "selector: has an unknown field; known are uid"),
    "wrong type": (b'{"wait_ms":"s3cret"}', "wait_ms: Expected `int`, got `str`"),
    "bad text": (b'{"selector":{"uid":"\\ud800"}}', "no JSON"),
}


@pytest.mark.parametrize(("data", "why"), WRONG.values(), ids=WRONG)
def test_json_that_is_no_request_is_refused_with_its_path_and_without_an_echo(data: bytes, why: str) -> None:
    with pytest.raises(WireError) as refused:
        codec.request_of_json(model.DescribePodRequest, data)
    assert why in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_protobuf_is_read_as_its_rules_say_and_refused_where_it_is_cut() -> None:
    """Doubled, the last value counts; a field that this version does not know is passed over."""
    sent = podapi_pb2.DescribePodRequest(selector=podapi_pb2.Selector(uid="u1"), fields=["spec"], wait_ms=7)
    data = sent.SerializeToString()
    asked = model.DescribePodRequest(model.Selector("u1"), ("spec",), 7)
    assert codec.request_of_message("DescribePod", model.DescribePodRequest, data) == asked
    assert codec.request_of_message("DescribePod", model.DescribePodRequest, data + b"\xf8\x07\x01") == asked
    twice = codec.request_of_message("DescribePod", model.DescribePodRequest, data * 2)
    assert (twice.selector, twice.wait_ms) == (asked.selector, 7)
    with pytest.raises(WireError, match="no DescribePodRequest"):
        codec.request_of_message("DescribePod", model.DescribePodRequest, data[:-1])


def test_what_is_not_known_is_null_in_json_and_absent_in_protobuf_and_a_spec_keeps_its_numbers() -> None:
    large = b'{"n":9007199254740993}'
    checkpoint = model.Section(model.PodCheckpoint(None), "x", False, "why", 1 << 62)
    sums = model.Section(model.PodTotals(None, 0, 1, 1 << 64, False, True), "x")
    answer = model.PodDescription(checkpoint=checkpoint, totals=sums, spec=model.Section(model.Json(large), "x"))
    told = msgspec.json.decode(codec.json_of(answer))
    assert told["identity"] is None
    assert told["checkpoint"]["value"] == {"possible": None}
    assert told["spec"]["value"] == {"n": 9007199254740993}
    message = podapi_pb2.PodDescription.FromString(codec.message_of("DescribePod", answer))
    assert not message.HasField("identity")
    assert not message.checkpoint.value.HasField("possible")
    assert (message.checkpoint.observed_at, message.spec.value) == (1 << 62, large.decode())
    assert (message.totals.value.memory_limit, message.totals.value.all_memory_limited) == ((1 << 63) - 1, True)
