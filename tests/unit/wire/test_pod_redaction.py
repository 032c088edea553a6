"""Redaction of pods: no planted secret leaves, what a VM runtime needs stays, and each withheld value says its rule."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.wire.errors import WireError
from nodeward.wire.pod_redaction import MAX_BYTES, MAX_DEPTH, MAX_ITEMS, decode, redacted

CANARY = "c4n4ry"
SECRET = st.sampled_from((CANARY, f"--password={CANARY}", f"https://me:{CANARY}@host/", f'{{"auth": "{CANARY}"}}'))
FIELDS = st.sampled_from(
    ("value", "headers", "httpGet", "exec", "secretRef", "data", "newField", "containers", "image", "a.*.image", "*")
)
ANYTHING = st.recursive(SECRET, lambda below: st.lists(below, max_size=3) | st.dictionaries(FIELDS, below, max_size=3))
PARTS = ("command", "args", "envFrom", "livenessProbe", "startupProbe", "lifecycle", "securityContext", "x")
CONTAINER = st.fixed_dictionaries(
    {
        "name": st.just("app"),
        "image": st.just("reg.io/app:1"),
        "env": st.lists(st.fixed_dictionaries({"value": SECRET})),
    },
    optional=dict.fromkeys(PARTS, ANYTHING),
)
POD = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries({"name": st.just("web"), "annotations": ANYTHING, "labels": ANYTHING}),
        "spec": st.fixed_dictionaries(
            {"containers": st.lists(CONTAINER, min_size=1, max_size=2), "imagePullSecrets": ANYTHING},
            optional={
                "volumes": st.lists(st.dictionaries(st.sampled_from(("csi", "secret", "flexVolume")), ANYTHING)),
                "ephemeralContainers": st.lists(CONTAINER, max_size=1),
                "newField": ANYTHING,
                "a.*.image": ANYTHING,
            },
        ),
        "status": st.fixed_dictionaries({"message": SECRET}),
        "newField": ANYTHING,
    }
)


@given(POD)
def test_no_planted_secret_leaves(pod: object) -> None:
    shown = json.dumps(redacted(pod))
    assert CANARY not in shown
    assert "reg.io/app:1" in shown


@given(st.dictionaries(st.sampled_from((f" {CANARY}", f"{CANARY}=1", f"$withheld{CANARY}")), SECRET, min_size=1))
def test_a_key_that_is_no_fields_name_is_withheld_too(pod: dict[str, str]) -> None:
    assert CANARY not in json.dumps(redacted({"metadata": {"annotations": pod}}))


@pytest.mark.parametrize(
    ("pod", "shown"),
    [
        pytest.param(
            {"spec": {"containers": [{"name": "a", "resources": {"limits": {"x.com/gpu": "1", "memory": "2Gi"}}}]}},
            {"spec": {"containers": [{"name": "a", "resources": {"limits": {"x.com/gpu": "1", "memory": "2Gi"}}}]}},
            id="resources stay, with dots in their names",
        ),
        pytest.param(
            {"spec": {"containers": [{"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"key": "k"}}}]}]}},
            {
                "spec": {
                    "containers": [
                        {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"key": {"$withheld": "env"}}}}]}
                    ]
                }
            },
            id="env keeps its name and origin",
        ),
        pytest.param(
            {"spec": {"volumes": [{"name": "v", "csi": {"driver": "d.io", "volumeAttributes": {"a": "b"}}}]}},
            {
                "spec": {
                    "volumes": [
                        {"name": "v", "csi": {"driver": "d.io", "volumeAttributes": {"a": {"$withheld": "volumes"}}}}
                    ]
                }
            },
            id="volumes keep name and driver",
        ),
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
