"""The expressions of deploy/policies on the pods of tests/real/policies, in seconds and without an API server.

Verdicts and words are those that tests/real/test_policies.py hears from a real kube-apiserver; a shim that were wrong
would disagree with them. The engine evaluates every expression. What only the API server can say stays there: costs and
types, what it says before it asks a policy, and what it says where the parameters are not there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from celpy.adapter import json_to_cel
from celpy.evaluation import CELEvalError

from nodeward.model.annotations import KATA_CONFIG, KATA_ONLY
from tests.real.policycases import LONG, NAMES, NAMESPACES, OVERHEAD, PARAMETERS_SAID, SUBRESOURCES, Case, cases
from tests.unit.edges.webhook.rounds import admitted, container, pod_of
from tests.unit.policies.kubernetes_cel import Variables, evaluate, quantity

POLICIES = Path(__file__).resolve().parents[3] / "deploy" / "policies"
SHIPPED = yaml.safe_load((POLICIES / "parameters.yaml").read_text())
CASES = cases()
MOST_WORDS = 5 * 1024
"""Longer words, or some with a line break, the API server shows to nobody."""
PAGE: Mapping[str, Any] = {
    "metadata": {"name": "tried"},
    "spec": {"containers": [{"name": "app", "resources": {"limits": {"sgx.intel.com/epc": "4Ki"}}}]},
}


@cache
def manifest(name: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The spec of a policy and that of its binding."""
    found, binding = yaml.safe_load_all((POLICIES / f"{name}.yaml").read_text())
    return found["spec"], binding["spec"]


def stored(pod: Mapping[str, Any]) -> dict[str, Any]:
    """A pod as policies see it: quantities in their one form, no empty annotations, its RuntimeClass's overhead."""
    found: dict[str, Any] = json.loads(json.dumps(pod))
    if not found["metadata"].get("annotations"):
        found["metadata"].pop("annotations", None)
    spec = found["spec"]
    if spec.get("runtimeClassName") == "large":
        spec["overhead"] = dict(OVERHEAD)
    for one in (*spec["containers"], *spec.get("initContainers", [])):
        limits = one.get("resources", {}).get("limits", {})
        limits.update({key: str(quantity(str(value))) for key, value in limits.items()})
    return found


def is_bound(binding: Mapping[str, Any], namespace: str) -> bool:
    """Whether a binding holds in a namespace."""
    labels = {**NAMESPACES[namespace], "kubernetes.io/metadata.name": namespace}
    selector = binding["matchResources"]["namespaceSelector"]
    assert all(one["operator"] == "NotIn" for one in selector.get("matchExpressions", []))
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()) and not any(
        labels.get(one["key"]) in one["values"] for one in selector.get("matchExpressions", [])
    )


def is_matched(spec: Mapping[str, Any], operation: str, resource: str) -> bool:
    """Whether a policy is asked about such a request."""
    rules = spec["matchConstraints"]["resourceRules"]
    return any(operation in rule["operations"] and resource in rule["resources"] for rule in rules)


def said(
    name: str,
    pod: Mapping[str, Any],
    namespace: str = "default",
    *,
    old: Mapping[str, Any] | None = None,
    resource: str = "pods",
    data: Mapping[str, str] = SHIPPED["data"],
) -> str:
    """The words with which a policy refuses a pod, or its change from an old one; empty where it passes."""
    spec, binding = manifest(name)
    operation = "CREATE" if old is None else "UPDATE"
    if not is_bound(binding, namespace) or not is_matched(spec, operation, resource):
        return ""
    labels = {**NAMESPACES[namespace], "kubernetes.io/metadata.name": namespace}
    known = {
        "object": stored(pod),
        "oldObject": None if old is None else stored(old),
        "request": {"operation": operation},
        "namespaceObject": {"metadata": {"name": namespace, "labels": labels}},
        "params": {**SHIPPED, "data": data},
    }
    return refusal(spec, {key: json_to_cel(value) for key, value in known.items()})


def refusal(spec: Mapping[str, Any], names: Mapping[str, Any]) -> str:
    """What the first rule that is broken says."""
    if not all(evaluate(one["expression"], names) for one in spec.get("matchConditions", [])):
        return ""
    variables = Variables({one["name"]: one["expression"] for one in spec.get("variables", [])}, names)
    names = {**names, "variables": variables}
    for rule in spec["validations"]:
        verdict = evaluate(rule["expression"], names)
        assert isinstance(verdict, int), verdict
        if not verdict:
            text = str(evaluate(rule["messageExpression"], names))
            shown = len(text) <= MOST_WORDS and "\n" not in text
            return text if shown else f"failed expression: {rule['expression']}"
    return ""


def broken(words: Sequence[str], text: str) -> list[str]:
    """The words that a refusal lacks."""
    return [part for part in words if part not in text]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.policy}: {case.title}")
def test_a_pod_passes_or_is_refused_with_the_words_of_the_api_server(case: Case) -> None:
    text = said(case.policy, case.pod, case.namespace)
    print(text)

    assert bool(text) == bool(case.refused)
    assert broken(case.refused, text) == []


@pytest.mark.parametrize("case", [case for case in CASES if not case.refused], ids=lambda case: case.title)
def test_a_pod_that_passes_passes_every_policy(case: Case) -> None:
    assert {name: said(name, case.pod, case.namespace) for name in NAMES} == dict.fromkeys(NAMES, "")


@pytest.mark.parametrize("name", [*NAMES, SUBRESOURCES])
def test_a_refusal_is_forbidden_as_the_webhooks_is(name: str) -> None:
    """Kubernetes' own default is Invalid, which kubectl shows as `The pods "app" is invalid: : Validating...`."""
    rules = manifest(name)[0]["validations"]

    assert [rule.get("reason") for rule in rules] == ["Forbidden"] * len(rules)


@pytest.mark.parametrize(("data", "words"), PARAMETERS_SAID.values(), ids=PARAMETERS_SAID)
def test_the_parameters_are_what_the_policies_ask_for(data: Mapping[str, str], words: str) -> None:
    texts = [text for name in NAMES if (text := said(name, PAGE, data=data))]
    print(texts)

    assert any(words in text for text in texts)


def noted(annotations: Mapping[str, str]) -> Mapping[str, Any]:
    """The pod of one page with these annotations."""
    return {**PAGE, "metadata": {"name": "tried", "annotations": annotations}}


@pytest.mark.parametrize("folder", ["node", "exporter", "webhook"])
def test_pods_of_nodeward_itself_wait_for_no_parameters(folder: str) -> None:
    """While the ConfigMap is missing, whoever is bound by a policy that names it cannot be created."""
    place = yaml.safe_load((POLICIES.parent / folder / "namespace.yaml").read_text())["metadata"]["name"]
    waiting = [name for name in NAMES if "paramRef" in manifest(name)[1] and is_bound(manifest(name)[1], place)]

    assert waiting == []


@pytest.mark.parametrize("amounts", [("4Ki",), ("4Ki", None), (None,)], ids=str)
def test_what_the_webhook_writes_is_what_the_policy_on_annotations_wants(amounts: Sequence[str | None]) -> None:
    asked = [container(f"c{at}", {"sgx.intel.com/epc": one} if one else {}) for at, one in enumerate(amounts)]
    made = admitted(pod_of(*asked)).pod

    assert said("epc-annotations", made, data={**SHIPPED["data"], "annotations": "required"}) == ""


@pytest.mark.parametrize(("key", "text", "words"), LONG.values(), ids=LONG)
def test_annotations_as_long_as_they_may_be_are_looked_at_or_refused(key: str, text: str, words: str) -> None:
    told = said("epc-annotations", noted({key: text}))
    print(told[:1000])

    assert words in told
    assert bool(told) is bool(words)


KEY, LIMITS = "epc-limit.nri.io/container.app", "nodeward.io/limits"
RIGHT = {KEY: "4096", LIMITS: '{"app":{"sgx_epc":"4096"}}'}
LEFT_WRONG = {"epc-limit.nri.io/pod": "1", KEY: "99"}


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (RIGHT, {**RIGHT, KEY: "8192"}, f"container 'app': metadata.annotations[{KEY}] is '8192'"),
        (RIGHT, {**RIGHT, "epc-limit.nri.io/pod": "8192"}, "metadata.annotations[epc-limit.nri.io/pod] is '8192'"),
        (RIGHT, {LIMITS: RIGHT[LIMITS]}, f"metadata.annotations[{KEY}] was '4096' and is removed, must stay"),
        (RIGHT, {KEY: "4096"}, f"metadata.annotations[{LIMITS}] was '"),
        (RIGHT, {**RIGHT, LIMITS: '{"app":{"sgx_epc":"1"}}'}, "must say sgx_epc 4096 of it"),
        (RIGHT, {**RIGHT, "unified-cgroup.crio.io/app": "x"}, "CRI-O would write it"),
        (RIGHT, {**RIGHT, "mine": "1"}, ""),
        (LEFT_WRONG, {**LEFT_WRONG, "mine": "1"}, ""),
        (LEFT_WRONG, LEFT_WRONG, ""),
        (LEFT_WRONG, {**LEFT_WRONG, KEY: "98"}, "is '98'"),
        (LEFT_WRONG, {KEY: "4096"}, ""),
        ({LIMITS: "x" * 9999}, {}, "xxx' and is removed, must stay"),
        ({}, {LIMITS: "{}\n"}, "metadata.annotations[nodeward.io/limits] is '{}', must have the containers"),
    ],
    ids=[
        "another amount", "another key", "key removed", "limits removed", "limits say less", "CRI-O's", "another's",
        "wrong before", "unchanged", "wrong otherwise", "mended", "long, removed", "two lines",
    ],
)  # fmt: skip
def test_annotations_of_a_pod_that_lives_change_to_the_truth_only(
    before: Mapping[str, str], after: Mapping[str, str], words: str
) -> None:
    text = said("epc-annotations", noted(after), old=noted(before))
    print(text)

    assert words in text
    assert bool(text) == bool(words)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (RIGHT, {**RIGHT, "sgx.intel.com/epc": "1"}, "annotations[sgx.intel.com/epc] is '1', must not change by"),
        (RIGHT, {**RIGHT, KEY: "8192"}, f"metadata.annotations[{KEY}] is '8192', must not change by an update"),
        (RIGHT, {KEY: "4096"}, f"metadata.annotations[{LIMITS}] is removed, must not change by"),
        (RIGHT, {}, "is removed, must not change by"),
        ({}, {"unified-cgroup.crio.io/app": "x"}, "metadata.annotations[unified-cgroup.crio.io/app] is 'x'"),
        (None, {KEY: "4096"}, f"metadata.annotations[{KEY}] is '4096', must not change by a binding"),
        ({}, {KEY: "4\n" * 9999}, f"metadata.annotations[{KEY}] is '4', must not change by an update"),
        (None, {KEY: "4" * 9999}, "444', must not change by a binding"),
        (LEFT_WRONG, LEFT_WRONG, ""),
        (RIGHT, {**RIGHT, "mine": "1"}, ""),
        ({}, {}, ""),
        (None, {"mine": "1"}, ""),
        (None, {}, ""),
    ],
    ids=[
        "Kata's", "another amount", "limits removed", "all removed", "CRI-O's", "bound", "lines", "long",
        "wrong before", "another's", "none", "bound with another's", "bound with none",
    ],
)  # fmt: skip
def test_annotations_of_ours_neither_come_nor_go_by_a_status_or_a_binding(
    before: Mapping[str, str] | None, after: Mapping[str, str], words: str
) -> None:
    """Of a binding, which has another spec, only the annotations are looked at."""
    resources = ("pods/binding", "bindings") if before is None else ("pods/status",)
    old = None if before is None else noted(before)
    texts = [said(SUBRESOURCES, noted(after), old=old, resource=one) for one in resources]
    print(texts)

    for text in texts:
        assert words in text
        assert bool(text) == bool(words)


REQUIRED = "required-plugins.noderesource.dev"
OURS = [
    LIMITS, "sgx.intel.com/epc", "epc-limit.nri.io", "epc-limit.nri.io/pod", KEY,
    REQUIRED, f"{REQUIRED}/pod", f"{REQUIRED}/container.app", "unified-cgroup.crio.io", "unified-cgroup.crio.io/app",
    "io.kubernetes.cri-o.UnifiedCgroup", "io.kubernetes.cri-o.UnifiedCgroup.app",
]  # fmt: skip
NOBODYS = [
    f"{LIMITS}-of-mine", "sgx.intel.com/epcs", "epc-limit.nri.iot/pod", f"{REQUIRED}elopment/pod", f"my-{REQUIRED}",
    "io.kubernetes.cri-o.Other",
]  # fmt: skip


@pytest.mark.parametrize("resource", ["pods/status", "pods/binding", "bindings"])
@pytest.mark.parametrize("key", [*OURS, *NOBODYS])
def test_only_annotations_of_ours_are_kept_from_coming_by_a_status_or_a_binding(key: str, resource: str) -> None:
    old = noted({}) if resource == "pods/status" else None
    text = said(SUBRESOURCES, noted({key: "1"}), old=old, resource=resource)

    assert (f"metadata.annotations[{key}] is '1', must not change by" in text) is (key in OURS)
    assert bool(text) is (key in OURS)


MODE = {KATA_ONLY: "false"}


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        ({}, MODE, True),
        (MODE, {KATA_ONLY: "true"}, True),
        (MODE, {**MODE, KATA_CONFIG: "/tmp/kata.toml"}, True),
        (None, MODE, True),
        (None, {KATA_CONFIG: "4" * 9999 + "\n"}, True),
        (MODE, {**MODE, "mine": "1"}, False),
        (MODE, {}, False),
        ({}, {"mine": "1"}, False),
        (None, {"mine": "1"}, False),
        (None, {}, False),
    ],
    ids=[
        "new", "another mode", "another one", "bound", "bound, long", "there before", "removed", "another's",
        "bound with another's", "bound with none",
    ],
)  # fmt: skip
def test_annotations_that_kata_obeys_unasked_come_in_no_way(
    before: Mapping[str, str] | None, after: Mapping[str, str], refused: bool
) -> None:
    resources = ("pods/binding", "bindings") if before is None else ("pods", "pods/status")
    old = None if before is None else noted(before)
    for one in resources:
        text = said("kata-annotations", noted(after), old=old, resource=one)
        print(text)
        assert bool(text) is refused
        assert refused is ("must not be there, since" in text)


def test_a_privileged_ephemeral_container_is_refused_and_an_earlier_one_is_not_held_against_the_pod() -> None:
    def debugged(*names: str) -> Mapping[str, Any]:
        strong = [{"name": name, "securityContext": {"privileged": True}} for name in names]
        return {**PAGE, "spec": {**PAGE["spec"], "ephemeralContainers": strong}}

    def change(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
        return said("sgx-devices", new, "restricted", old=old, resource="pods/ephemeralcontainers")

    text = change(PAGE, debugged("strong"))
    assert "ephemeral container 'strong': securityContext.privileged is true, must be false" in text
    assert change(debugged("strong"), debugged("strong")) == ""
    assert "'later'" in change(debugged("strong"), debugged("strong", "later"))


@pytest.mark.parametrize(
    "expression",
    [
        "['1500m'].filter(e, quantity(e).asInteger() == 0)",
        "'abc'.substring(0, 4)",
        "['a'].map(e, e.unheard()).size()",
    ],
)
def test_what_has_no_value_is_an_error_and_not_a_verdict(expression: str) -> None:
    with pytest.raises(CELEvalError):
        evaluate(expression, {})
