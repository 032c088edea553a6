"""The shipped policies in a real kube-apiserver: pods that pass and pods that are refused, changes, and the webhook.

The pods are data, in tests/real/policies, one file a policy.
"""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from nodeward.core.annotations import KATA_CONFIG, KATA_ONLY
from nodeward.core.finding import RuntimeClass
from nodeward.features.sandboxes.findings import OUR_POLICY
from nodeward.neighbours.kubernetes import cluster as kube_neighbours
from tests.peers.controllers import running_controllers
from tests.peers.kubeclient import STRATEGIC
from tests.peers.nriside import Record
from tests.real import policy_cluster
from tests.real.policy_cluster import (
    BINDINGS,
    CASES,
    EPC,
    KEY,
    LIMITS,
    LONG,
    MOST_ANNOTATIONS,
    NAMES,
    PAGE,
    PARAMETERS_SAID,
    POLICIES,
    PROVISION,
    RESTRICTED,
    STRONG,
    SUBRESOURCES,
    Case,
    Cluster,
    is_refused,
    named,
    parameters,
    policy,
    wait,
    webhook,
)
from tests.rigs.cluster import PODS, record
from tests.unit.features.admission.rounds import at, container, notes, pod_of

cluster = policy_cluster.cluster


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.policy}: {case.title}")
def test_a_pod_passes_or_is_refused_with_the_reason(cluster: Cluster, case: Case) -> None:
    said = cluster.said(case.pod, case.namespace)
    print(said)

    if case.refused:
        assert is_refused(cluster, case), said
        assert ": 403 {" in said, said
    else:
        assert said == ""


def test_a_pod_of_many_containers_passes_and_one_of_too_many_costs_more_than_the_api_server_allows(
    cluster: Cluster,
) -> None:
    def said(count: int) -> str:
        names = [f"container-number-{number}" for number in range(count)]
        limits = ",".join(f'"{name}":{{"sgx_epc":"4096"}}' for name in names)
        many = pod_of(
            *(container(name, {EPC: "4Ki"}) for name in names),
            annotations={"nodeward.io/limits": f"{{{limits}}}"},
        )
        return cluster.said(named(many, "tried"))

    assert said(300) == ""
    assert "actual cost limit exceeded" in said(500)


@pytest.mark.parametrize(("key", "text", "words"), LONG.values(), ids=LONG)
def test_annotations_as_long_as_they_may_be_are_looked_at_or_refused(
    cluster: Cluster, key: str, text: str, words: str
) -> None:
    """The API server lets all annotations of a pod, keys included, be 256 KiB."""
    assert len(key) + len(text) <= MOST_ANNOTATIONS
    said = cluster.said(named({**PAGE, "metadata": {"annotations": {key: text}}}, "tried"))
    print(said[:1000])

    assert words in said
    assert bool(said) is bool(words)
    assert len(said) < 4096


def test_annotations_that_are_longer_the_api_server_refuses_itself(cluster: Cluster) -> None:
    long = {"metadata": {"annotations": {LIMITS: "a" * MOST_ANNOTATIONS}}}
    assert "Too long: may not be more than 262144 bytes" in cluster.said(named({**PAGE, **long}, "tried"))


OWN: Mapping[str, tuple[Mapping[str, object], str]] = {
    "unequal": ({"limits": {EPC: "8Ki"}, "requests": {EPC: "4Ki"}}, "must be equal to sgx.intel.com/epc limit of 8Ki"),
    "no limit": ({"requests": {EPC: "4Ki"}}, "Limit must be set for non overcommitable resources"),
    "a fraction": ({"limits": {EPC: "1500m"}}, "must be an integer"),
    "negative": ({"limits": {EPC: "-4096"}}, "must be greater than or equal to 0"),
}


@pytest.mark.parametrize(("resources", "words"), OWN.values(), ids=OWN)
def test_what_no_policy_says_the_api_server_says_itself_and_first(
    cluster: Cluster, resources: Mapping[str, object], words: str
) -> None:
    said = cluster.said(named(pod_of(container("app", resources=resources)), "tried"))
    print(said)

    assert words in said
    assert "ValidatingAdmissionPolicy" not in said


def test_without_the_parameters_even_pods_without_epc_wait_outside_the_namespaces_left_out(cluster: Cluster) -> None:
    plain = record(named(pod_of(container("app")), "tried"))
    with parameters(cluster, None):
        probe = partial(cluster.said, plain)
        wait(lambda: "no params found" in probe(), probe)
        assert [cluster.said(plain, name) for name in ("nodeward-system", "nodeward")] == ["", ""]
        assert cluster.status({}) == "", "kubelet's updates wait for no parameters"
    wait(lambda: probe() == "", probe)


def test_a_pod_from_before_the_policies_stays_mendable(cluster: Cluster) -> None:
    """What was wrong in it may stay, become right or go."""
    assert cluster.noted("before", {"mine": "1"}) == ""
    finalizers = {"metadata": {"finalizers": ["example.com/mine"]}}
    assert cluster.answer("PATCH", f"{PODS}/before", finalizers, STRATEGIC) == ""
    assert "is '98'" in cluster.noted("before", {"epc-limit.nri.io/container.app": "98"})
    assert cluster.noted("before", {"epc-limit.nri.io/pod": None, "unified-cgroup.crio.io/app": None}) == ""
    assert cluster.noted("before", {"epc-limit.nri.io/container.app": "4096"}) == ""


REQUIRED = "required-plugins.noderesource.dev"
OURS = (
    LIMITS, EPC, "epc-limit.nri.io", "epc-limit.nri.io/pod.new", REQUIRED, f"{REQUIRED}/pod",
    f"{REQUIRED}/container.new", "unified-cgroup.crio.io", "unified-cgroup.crio.io/new",
    "io.kubernetes.cri-o.UnifiedCgroup", "io.kubernetes.cri-o.UnifiedCgroup.new",
)  # fmt: skip
NOBODYS = (
    f"{LIMITS}-of-mine", "sgx.intel.com/epcs", "epc-limit.nri.iot/pod", f"{REQUIRED}elopment/pod", f"my-{REQUIRED}",
    "io.kubernetes.cri-o.Other",
)  # fmt: skip


@pytest.mark.parametrize("key", [*OURS, *NOBODYS])
def test_no_annotation_of_ours_comes_by_a_status_or_a_binding(cluster: Cluster, key: str) -> None:
    said = [cluster.status({key: "1"}), *(cluster.binding({key: "1"}, path) for path in ("before/binding", ""))]
    print(said)
    for one, way in zip(said, ("an update of the pod's status", "a binding", "a binding"), strict=True):
        assert (f"metadata.annotations[{key}] is '1', must not change by {way}" in one) is (key in OURS)
        assert bool(one) is (key in OURS)


ANNOTATION, KATAS = "metadata.annotations", "must not be there, since"
CHANGES: Mapping[str, tuple[str, str, Mapping[str, str | None], str]] = {
    "another amount": ("change", "right", {KEY: "8192"}, f"container 'app': {ANNOTATION}[{KEY}] is '8192'"),
    "another key": ("change", "right", {"epc-limit.nri.io/pod": "8192"}, "[epc-limit.nri.io/pod] is '8192'"),
    "key removed": ("change", "right", {KEY: None}, f"{ANNOTATION}[{KEY}] was '4096' and is removed, must stay"),
    "limits removed": ("change", "right", {LIMITS: None}, f"{ANNOTATION}[{LIMITS}] was '"),
    "limits say less": ("change", "right", {LIMITS: '{"app":{"sgx_epc":"1"}}'}, "must say sgx_epc 4096 of it"),
    "CRI-O's": ("change", "right", {"unified-cgroup.crio.io/app": "x"}, "CRI-O would write it"),
    "another's": ("change", "right", {"mine": "1"}, ""),
    "wrong before": ("change", "wrong", {"mine": "1"}, ""),
    "wrong otherwise": ("change", "wrong", {KEY: "98"}, "is '98'"),
    "mended": ("change", "wrong", {KEY: "4096", "epc-limit.nri.io/pod": None}, ""),
    "long, removed": ("change", "long", {LIMITS: None}, "xxx' and is removed, must stay"),
    "two lines": ("change", "bare", {LIMITS: "{}\n"}, f"{ANNOTATION}[{LIMITS}] is '{{}}', must have the containers"),
    "Kata's": ("change", "bare", {KATA_ONLY: "false"}, KATAS),
    "Kata's, otherwise": ("change", "kata", {KATA_ONLY: "true"}, KATAS),
    "Kata's, another one": ("change", "kata", {KATA_CONFIG: "/tmp/kata.toml"}, KATAS),
    "beside Kata's": ("change", "kata", {"mine": "1"}, ""),
    "Kata's, removed": ("change", "kata", {KATA_ONLY: None}, ""),
    "status: another amount": ("status", "right", {KEY: "8192"}, f"[{KEY}] is '8192', must not change by an update"),
    "status: limits removed": ("status", "right", {LIMITS: None}, f"[{LIMITS}] is removed, must not change by"),
    "status: all removed": ("status", "right", {KEY: None, LIMITS: None}, "is removed, must not change by"),
    "status: lines": ("status", "bare", {KEY: "4\n" * 9999}, f"[{KEY}] is '4', must not change by an update"),
    "status: another's": ("status", "right", {"mine": "1"}, ""),
    "status: wrong before": ("status", "wrong", {}, ""),
    "status: Kata's": ("status", "bare", {KATA_ONLY: "false"}, KATAS),
    "status: Kata's, otherwise": ("status", "kata", {KATA_ONLY: "true"}, KATAS),
    "status: beside Kata's": ("status", "kata", {"mine": "1"}, ""),
    "status: Kata's, removed": ("status", "kata", {KATA_ONLY: None}, ""),
    "binding: long": ("binding", "", {KEY: "4" * 9999}, "444', must not change by a binding"),
    "binding: Kata's": ("binding", "", {KATA_ONLY: "false"}, KATAS),
    "binding: Kata's, long": ("binding", "", {KATA_CONFIG: "4" * 9999 + "\n"}, KATAS),
    "binding: another's": ("binding", "", {"mine": "1"}, ""),
    "binding: none": ("binding", "", {}, ""),
}
"""How, of which pod that lives, which annotations change, and what its author then reads."""


@pytest.mark.parametrize(("way", "name", "annotations", "words"), CHANGES.values(), ids=CHANGES)
def test_annotations_of_a_pod_that_lives_change_to_the_truth_only(
    cluster: Cluster, way: str, name: str, annotations: Mapping[str, str | None], words: str
) -> None:
    """By a status or a binding those of ours do not change at all."""
    if way == "change":
        said = [cluster.noted(f"{name}?dryRun=All", annotations)]
    elif way == "status":
        said = [cluster.status(annotations, name)]
    else:
        said = [cluster.binding(annotations, path) for path in ("before/binding", "")]
    print(said)
    for one in said:
        assert words in one
        assert bool(one) is bool(words)


@pytest.mark.parametrize(("data", "words"), PARAMETERS_SAID.values(), ids=PARAMETERS_SAID)
def test_the_parameters_are_what_the_policies_ask_for(cluster: Cluster, data: Mapping[str, str], words: str) -> None:
    probe = partial(cluster.said, record(named(PAGE, "tried")))
    with parameters(cluster, data):
        wait(lambda: words in probe(), probe)


def test_a_privileged_ephemeral_container_is_refused_and_an_earlier_one_is_not_held_against_the_pod(
    cluster: Cluster,
) -> None:
    def debug(name: str, privileged: bool) -> str:
        later = container(name, securityContext={"privileged": privileged})
        body = {"spec": {"ephemeralContainers": [STRONG, later]}}
        return cluster.answer("PATCH", f"{RESTRICTED}/opened/ephemeralcontainers?dryRun=All", body, STRATEGIC)

    said = debug("later", True)
    print(said)
    assert "ephemeral container 'later': securityContext.privileged is true, must be false" in said
    assert debug("weak", False) == ""


def test_the_controller_that_checks_types_has_nothing_to_say(cluster: Cluster, tmp_path: Path) -> None:
    """And it does say something of a policy with a field that pods do not have."""
    bad, _ = policy("sgx-provision")
    spec = bad["spec"]
    assert isinstance(spec, dict)
    wrong: Record = {"variables": [], "validations": [{"expression": "has(object.spec.kontainers)"}]}
    bad["metadata"], bad["spec"] = {"name": "misspelt"}, spec | wrong
    cluster.client.call("POST", POLICIES, bad)
    controllers = ("validatingadmissionpolicy-status-controller",)
    with running_controllers(cluster.server, tmp_path, controllers) as log:

        def checked(name: str) -> object:
            return at(cluster.client.call("GET", f"{POLICIES}/{name}"), "status", "typeChecking")

        names = [*(f"nodeward-{name}" for name in (*NAMES, SUBRESOURCES)), "misspelt"]
        wait(lambda: all(checked(name) is not None for name in names), log.read_text)
        found = {name: checked(name) for name in names}
    cluster.client.call("DELETE", f"{POLICIES}/misspelt")
    print(found)

    assert "undefined field 'kontainers'" in str(found.pop("misspelt"))
    assert found == {name: {} for name in found}


def test_doctor_reads_which_policies_are_bound_and_what_runtime_classes_declare(cluster: Cluster) -> None:
    kata = {"metadata": {"name": "kata"}, "handler": "kata-qemu", "overhead": {"podFixed": {"memory": "327680Ki"}}}
    place = "/apis/node.k8s.io/v1/runtimeclasses"
    cluster.client.call("POST", place, record(kata))
    classes = kube_neighbours.runtime_classes(json.dumps(cluster.client.call("GET", place)).encode())
    bound = kube_neighbours.bound_policies(json.dumps(cluster.client.call("GET", BINDINGS)).encode())

    assert classes == (RuntimeClass("kata", "kata-qemu", 320 << 20), RuntimeClass("large", "large"))
    assert OUR_POLICY in bound


def test_a_pod_as_the_webhook_makes_it_passes_the_policies(cluster: Cluster, tmp_path: Path) -> None:
    shipped = {"container-max": "64Mi", "pod-max": "128Mi", "annotations": "required"}
    asked = pod_of(
        container("app", {EPC: "4Ki"}),
        container("plain"),
        container("a-name-that-is-much-too-long-for-a-key-of-an-annotation-x", {EPC: "4Ki"}),
        annotations={
            "epc-limit.nri.io/pod": "99999999",
            "epc-limit.nri.io/container.app": "99999999",
            "sgx.intel.com/quote-provider": "app",
        },
        initContainers=[
            container("proxy", {EPC: "8Ki"}, restartPolicy="Always"),
            container("setup", {EPC: "1Mi"}),
        ],
    )
    here, there = record(named(asked, "whole")), "/api/v1/namespaces/provisioned/pods"
    alone = cluster.said(here, "provisioned")
    print(alone)
    assert "denied request: metadata.annotations[epc-limit.nri.io/pod] is '99999999'" in alone
    with webhook(cluster, tmp_path), parameters(cluster, shipped):
        refusal = partial(cluster.said, here)
        wait(lambda: "ValidatingAdmissionPolicy" in refusal(), refusal)
        print(refusal())
        assert (
            "container 'app': resources.limits[sgx.intel.com/provision] is '1', must be declared only in" in refusal()
        )
        probe = partial(cluster.said, here, "provisioned")
        wait(lambda: probe() == "", probe)
        found = cluster.client.call("POST", there, here)
        print(notes(found))
        assert at(found, "spec", "containers", 0, "resources", "limits", PROVISION) == "1"
        assert notes(found)["epc-limit.nri.io/container.setup"] == "1048576"
        change: Record = {"metadata": {"annotations": {"epc-limit.nri.io/container.app": "1", "mine": "1"}}}
        after = cluster.client.call("PATCH", f"{there}/whole", change, STRATEGIC)
        assert notes(after) == {**notes(found), "mine": "1"}
    said = cluster.answer("PATCH", f"{there}/whole", change, STRATEGIC)
    print(said)
    assert "container 'app': metadata.annotations[epc-limit.nri.io/container.app] is '1'" in said


def test_changes_and_sub_resources_pass_the_webhook_and_then_the_policies(cluster: Cluster, tmp_path: Path) -> None:
    """Create, update, ephemeralcontainers and resize, each let through once and refused once by whom it concerns."""

    def changed(verb: str, kind: str, spec: Mapping[str, object]) -> str:
        said = cluster.answer(verb, f"{RESTRICTED}/subject{kind}", {"spec": spec}, STRATEGIC)
        print(kind, said or "let through")
        return said

    def debug(more: Mapping[str, object]) -> str:
        one = {**container("debug"), **more}
        return changed("PATCH", "/ephemeralcontainers", {"ephemeralContainers": [one]})

    def resized(**limits: object) -> str:
        resources = {"limits": limits, "requests": limits}
        return changed("PATCH", "/resize", {"containers": [{"name": "app", "resources": resources}]})

    with webhook(cluster, tmp_path):
        made = pod_of(container("app", {EPC: "4Ki", "cpu": "1"}))
        cluster.client.call("POST", RESTRICTED, record(named(made, "subject")))
        said = cluster.said(named(pod_of(container("app", {EPC: "42"})), "tried"))
        assert "'42', must be a multiple of 4096" in said, "a policy has seen what the webhook let in"

        wrong: Record = {"metadata": {"annotations": {"nodeward.io/limits": "{}"}}}
        found = cluster.client.call("PATCH", f"{RESTRICTED}/subject", wrong, STRATEGIC)
        assert notes(found)["nodeward.io/limits"] == '{"app":{"sgx_epc":"4096"}}', "the webhook was first"
        foreign: Record = {"metadata": {"annotations": {"unified-cgroup.crio.io/app": "x"}}}
        assert "CRI-O would write it" in cluster.answer("PATCH", f"{RESTRICTED}/subject", foreign, STRATEGIC)

        assert "update.nodeward.io" in debug({"resources": {"limits": {EPC: "4Ki"}, "requests": {EPC: "4Ki"}}})
        assert "ephemeral container 'debug': securityContext.privileged" in debug(
            {"securityContext": {"privileged": True}}
        )
        assert debug({}) == ""
        assert resized(cpu="2") == ""
        assert "only cpu and memory resources are mutable" in resized(**{EPC: "8Ki"})
        now = cluster.client.call("GET", f"{RESTRICTED}/subject")
        assert at(now, "spec", "containers", 0, "resources", "limits") == {
            EPC: "4Ki",
            "sgx.intel.com/enclave": "1",
            "cpu": "2",
        }
        assert notes(now) == notes(found)
