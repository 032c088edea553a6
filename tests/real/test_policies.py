"""The shipped policies in a real kube-apiserver: pods that pass and pods that are refused, changes, and the webhook.

The pods are data, in tests/real/policies, one file a policy. tests/unit/policies asks another engine about the same
pods: what is true of both, this one says. That each rule is needed: test_policy_rules.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from nodeward.engine.show.doctor_sandboxes import OUR_POLICY
from nodeward.model.annotations import KATA_CONFIG, KATA_ONLY
from nodeward.model.doctor import RuntimeClass
from nodeward.wire import kube_neighbours
from tests.peers.kubeclient import STRATEGIC
from tests.peers.nriside import Record
from tests.real import policy_cluster
from tests.real.policy_cluster import (
    BINDINGS,
    CASES,
    EPC,
    LIMITS,
    PAGE,
    PODS,
    PROVISION,
    Cluster,
    is_refused,
    named,
    parameters,
    wait,
    webhook,
)
from tests.real.policycases import LONG, MOST_ANNOTATIONS, Case
from tests.real.test_webhook import record
from tests.unit.edges.webhook.rounds import at, container, notes, pod_of

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
OURS = (LIMITS, EPC, "epc-limit.nri.io", "epc-limit.nri.io/pod.new", REQUIRED, f"{REQUIRED}/container.new")


@pytest.mark.parametrize("key", [*OURS, "unified-cgroup.crio.io/new", "io.kubernetes.cri-o.UnifiedCgroup.new"])
def test_no_annotation_of_ours_comes_by_a_status_or_a_binding(cluster: Cluster, key: str) -> None:
    said = [cluster.status({key: "1"}), *(cluster.binding({key: "1"}, path) for path in ("before/binding", ""))]
    print(said)
    for one, way in zip(said, ("an update of the pod's status", "a binding", "a binding"), strict=True):
        assert f"metadata.annotations[{key}] is '1', must not change by {way}" in one


@pytest.mark.parametrize("key", [KATA_ONLY, KATA_CONFIG])
def test_no_annotation_that_kata_obeys_unasked_comes_by_a_change_a_status_or_a_binding(
    cluster: Cluster, key: str
) -> None:
    bound = [cluster.binding({key: "1"}, path) for path in ("before/binding", "")]
    said = [cluster.noted("before", {key: "1"}), cluster.status({key: "1"}), *bound]
    print(said)
    assert [one for one in said if f"metadata.annotations[{key}] is '1', must not be there" not in one] == []


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
