"""Every rule of the shipped policies is needed, in a real kube-apiserver: each is turned round, and each is left out,
and some pod then fares otherwise. And Kubernetes' own check of the rules' types finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.peers.controllers import running_controllers
from tests.peers.kubeclient import MERGE, STRATEGIC
from tests.peers.nriside import Record
from tests.real import policy_cluster
from tests.real.policy_cluster import (
    CASES,
    EPC,
    LIMITS,
    PAGE,
    PODS,
    POLICIES,
    REFUSED,
    Cluster,
    is_refused,
    named,
    parameters,
    policy,
    wait,
)
from tests.real.policycases import NAMES, SUBRESOURCES
from tests.real.test_webhook import record
from tests.unit.edges.webhook.rounds import at, container, notes

cluster = policy_cluster.cluster


def validations(name: str) -> list[Record]:
    """The rules of a policy."""
    found = at(policy(name)[0], "spec", "validations")
    assert isinstance(found, list)
    return [dict(one) for one in found if isinstance(one, dict)]


@contextmanager
def mutated(cluster: Cluster, name: str, index: int, expression: str) -> Iterator[None]:
    """Another expression in the place of one; the shipped one afterwards."""
    place, rules = f"{POLICIES}/nodeward-{name}", validations(name)
    changed = [{**rule, "expression": expression} if which == index else rule for which, rule in enumerate(rules)]
    cluster.client.call("PATCH", place, record({"spec": {"validations": changed}}), MERGE)
    try:
        yield
    finally:
        cluster.client.call("PATCH", place, record({"spec": {"validations": rules}}), MERGE)
        wait(lambda: wrong(cluster, name) == [], lambda: str(wrong(cluster, name)))


def wrong(cluster: Cluster, name: str) -> list[str]:
    """The titles of the pods of a policy's file with which it no longer does what it says there."""
    mine = [case for case in CASES if case.policy == name]
    return [
        case.title
        for case in mine
        if (not is_refused(cluster, case) if case.refused else cluster.said(case.pod, case.namespace) != "")
    ]


RULES = [(name, index) for name in NAMES for index in range(len(validations(name)))]
IN_STORIES = {("epc-amounts", 0), ("epc-annotations", 2), ("epc-annotations", 5), ("sgx-devices", 3)}
"""Rules on parameters, changes and ephemeral containers, which no created pod with the shipped parameters breaks."""


@pytest.mark.parametrize(("name", "index"), RULES)
def test_a_rule_that_is_turned_round_refuses_what_should_pass(cluster: Cluster, name: str, index: int) -> None:
    passing = {case.title for case in CASES if case.policy == name and not case.refused}
    expression = str(validations(name)[index]["expression"])
    with mutated(cluster, name, index, f"!({expression})"):
        wait(lambda: bool(passing & set(wrong(cluster, name))), lambda: "every pod that should pass does")


@pytest.mark.parametrize(("name", "index"), sorted(set(RULES) - IN_STORIES))
def test_without_a_rule_some_pod_is_not_refused_as_it_should(cluster: Cluster, name: str, index: int) -> None:
    refused = {case.title for case in REFUSED if case.policy == name}
    with mutated(cluster, name, index, "true"):
        wait(lambda: bool(refused & set(wrong(cluster, name))), lambda: "no pod is missed")
        assert set(wrong(cluster, name)) <= refused


def test_without_the_rule_on_the_parameters_the_author_is_not_told_which_one_is_missing(cluster: Cluster) -> None:
    probe = partial(cluster.said, record(named(PAGE, "tried")))
    # Annotations stay optional, or the other policy refuses as well, and whose refusal is shown varies.
    lacking = {"container-max": "1Gi", "annotations": "optional"}
    with mutated(cluster, "epc-amounts", 0, "true"), parameters(cluster, lacking):
        wait(lambda: "resulted in error: no such key: pod-max" in probe(), probe)


def test_without_the_rule_on_removal_annotations_can_be_removed(cluster: Cluster) -> None:
    right = {"epc-limit.nri.io/container.app": "4096"}
    cluster.client.call("POST", PODS, record(named({**PAGE, "metadata": {"annotations": right}}, "kept")))
    remove = partial(cluster.noted, "kept", dict.fromkeys(right))
    assert "must stay while the pod lives" in remove()

    with mutated(cluster, "epc-annotations", 2, "true"):
        wait(lambda: remove() == "", remove)


def test_without_the_rule_on_missing_annotations_none_are_required(cluster: Cluster) -> None:
    probe = partial(cluster.said, record(named(PAGE, "tried")))
    with parameters(cluster, {"container-max": "1Gi", "pod-max": "1Gi", "annotations": "required"}):
        wait(lambda: "must have it too" in probe(), probe)
        place, rules = f"{POLICIES}/nodeward-epc-annotations", validations("epc-annotations")
        loose = [{**rule, "expression": "true"} if which == 5 else rule for which, rule in enumerate(rules)]
        cluster.client.call("PATCH", place, record({"spec": {"validations": loose}}), MERGE)
        wait(lambda: probe() == "", probe)
        cluster.client.call("PATCH", place, record({"spec": {"validations": rules}}), MERGE)
        wait(lambda: "must have it too" in probe(), probe)


def test_without_the_rule_on_ephemeral_containers_a_privileged_one_comes_in(cluster: Cluster) -> None:
    pods = "/api/v1/namespaces/restricted/pods"
    cluster.client.call("POST", pods, record(named(PAGE, "opened")))
    body = {"spec": {"ephemeralContainers": [container("strong", securityContext={"privileged": True})]}}
    debug = partial(cluster.answer, "PATCH", f"{pods}/opened/ephemeralcontainers?dryRun=All", body, STRATEGIC)
    assert "ephemeral container 'strong'" in debug()

    with mutated(cluster, "sgx-devices", 3, "true"):
        wait(lambda: debug() == "", debug)


def test_only_a_policy_keeps_the_api_server_from_storing_what_status_and_binding_bring(cluster: Cluster) -> None:
    """And it lets everything else pass, which it does not when it is turned round."""
    assert "container.app] is removed, must not" in cluster.status({"epc-limit.nri.io/container.app": None})
    for others in ({}, {"nobodys": "1"}):
        assert (cluster.status(others), cluster.binding(others)) == ("", "")
    with mutated(cluster, SUBRESOURCES, 0, "variables.ours.size() > 0"):
        wait(lambda: bool(cluster.status({"nobodys": "1"})), lambda: "another's annotation passes")
    wait(lambda: bool(cluster.status({EPC: "1"})), lambda: "an annotation comes by a status")
    cluster.client.call("POST", PODS, record(named(PAGE, "bound")))
    bound = {"metadata": {"name": "bound", "annotations": {LIMITS: "1"}}, "target": {"kind": "Node", "name": "one"}}
    with mutated(cluster, SUBRESOURCES, 0, "true"):
        status = partial(cluster.answer, "PATCH", f"{PODS}/bound/status", {"metadata": {"annotations": {EPC: "1"}}})
        wait(lambda: status(STRATEGIC) == "", lambda: "still refused")
        assert cluster.answer("POST", f"{PODS}/bound/binding", bound) == ""
        assert notes(cluster.client.call("GET", f"{PODS}/bound")) == {EPC: "1", LIMITS: "1"}
    wait(lambda: bool(cluster.status({EPC: "1"})), lambda: "an annotation comes by a status")


def test_the_controller_that_checks_types_has_nothing_to_say(cluster: Cluster, tmp_path: Path) -> None:
    """And it does say something of a policy with a field that pods do not have."""
    bad, _ = policy("sgx-provision")
    bad["metadata"] = {"name": "misspelt"}
    bad["spec"] = record(
        {**_spec(bad), "variables": [], "validations": [{"expression": "has(object.spec.kontainers)"}]}
    )
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


def _spec(of: Record) -> Record:
    found = of["spec"]
    assert isinstance(found, dict)
    return found
