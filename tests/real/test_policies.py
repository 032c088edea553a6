"""The shipped policies in a real kube-apiserver: pods that pass and pods that are refused, mutants, and the webhook.

The pods are data, in tests/real/policies, one file a policy. Creates are dry runs, except where a change of a pod is
the story. tests/unit/policies asks another engine about the same pods: what is true of both, this one says.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from nodeward.edges.webhook.server import PATH
from tests.component.webhook.support import WITHIN_S, install, make_pki, port_of
from tests.component.webhook.support import program as webhook_program
from tests.peers.controllers import running_controllers
from tests.peers.kube import ApiServer, running_apiserver
from tests.peers.kubeclient import MERGE, STRATEGIC, ApiError, KubeClient
from tests.peers.nriside import Record
from tests.real.policycases import (
    LARGE,
    LONG,
    MOST_ANNOTATIONS,
    NAMES,
    NAMESPACES,
    PARAMETERS_SAID,
    SUBRESOURCES,
    Case,
    cases,
)
from tests.real.test_webhook import at_the_loopback, objects, record, until
from tests.unit.edges.webhook.rounds import at, container, notes, pod_of

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
EPC, PROVISION, LIMITS = "sgx.intel.com/epc", "sgx.intel.com/provision", "nodeward.io/limits"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICIES = f"{ADMISSION}/validatingadmissionpolicies"
BINDINGS = f"{ADMISSION}/validatingadmissionpolicybindings"
PARAMETERS = "/api/v1/namespaces/nodeward-system/configmaps"
PODS = "/api/v1/namespaces/default/pods"
CASES = cases()
REFUSED = [case for case in CASES if case.refused]


@dataclass(frozen=True, slots=True)
class Cluster:
    """An API server with the policies in force."""

    server: ApiServer
    client: KubeClient

    def said(self, pod: Mapping[str, object], namespace: str = "default") -> str:
        """The refusal of a pod that somebody tries to create; empty where it passes."""
        return self.answer("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)

    def answer(self, verb: str, path: str, body: Mapping[str, object], kind: str = "application/json") -> str:
        """The server's message where it says no; empty where it does it."""
        try:
            self.client.call(verb, path, record(body), kind)
        except ApiError as error:
            return str(error).replace("\\u003c", "<").replace("\\u003e", ">").replace("\\\\", "\\")
        return ""

    def noted(self, name: str, annotations: Mapping[str, object]) -> str:
        """The refusal of a change of a pod's annotations."""
        return self.answer("PATCH", f"{PODS}/{name}", {"metadata": {"annotations": annotations}}, STRATEGIC)

    def status(self, annotations: Mapping[str, object]) -> str:
        """The refusal of an update of the status of the pod that was there before, which brings annotations too."""
        body = {"metadata": {"annotations": annotations}, "status": {"message": "from kubelet"}}
        return self.answer("PATCH", f"{PODS}/before/status?dryRun=All", body, STRATEGIC)

    def binding(self, annotations: Mapping[str, object], path: str = "before/binding") -> str:
        """The refusal of that pod's binding to a node, which brings annotations too."""
        body = {"metadata": {"name": "before", "annotations": annotations}, "target": {"kind": "Node", "name": "one"}}
        place = f"{PODS}/{path}" if path else PODS.replace("pods", "bindings")
        return self.answer("POST", f"{place}?dryRun=All", body)


def policy(name: str) -> tuple[Record, Record]:
    """The policy of a manifest and its binding."""
    found, binding = objects(f"{name}.yaml", DEPLOY / "policies")
    return found, binding


def validations(name: str) -> list[Record]:
    """The rules of a policy."""
    found = at(policy(name)[0], "spec", "validations")
    assert isinstance(found, list)
    return [dict(one) for one in found if isinstance(one, dict)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Namespaces, a RuntimeClass, a pod that was there before, and then the policies, each in force."""
    with tempfile.TemporaryDirectory(prefix="nwk") as kube, running_apiserver(Path(kube)) as server:
        client = KubeClient(server.base_url, server.ca_file, server.token)
        for name, labels in NAMESPACES.items():
            if name == "default":
                until(lambda: client.find("/api/v1/namespaces/default") is not None, "the default namespace is there")
            else:
                client.call("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": dict(labels)}})
        client.call("POST", "/apis/node.k8s.io/v1/runtimeclasses", record(LARGE))
        client.call("POST", PODS, record(named(BEFORE, "before")))
        found = Cluster(server, client)
        (parameters,) = objects("parameters.yaml", DEPLOY / "policies")
        client.call("POST", f"{PARAMETERS}?fieldValidation=Strict", parameters)
        for name in (*NAMES, SUBRESOURCES):
            for place, one in zip((POLICIES, BINDINGS), policy(name), strict=True):
                client.call("POST", f"{place}?fieldValidation=Strict", one)
        for name in NAMES:
            probe = next(case for case in REFUSED if case.policy == name)
            wait(partial(is_refused, found, probe), partial(found.said, probe.pod, probe.namespace))
        wait(lambda: bool(found.status({EPC: "1"})), lambda: "an annotation comes by a status")
        yield found


def wait(true: Callable[[], bool], said: Callable[[], str]) -> None:
    """Until the API server has noticed a change of policies; it has caches, and no event tells that they are filled."""
    end = time.monotonic() + 2 * WITHIN_S
    while not true():
        assert time.monotonic() < end, f"not within {2 * WITHIN_S:.0f} s; last said: {said() or 'nothing'}"
        time.sleep(0.05)


BEFORE = pod_of(
    container("app", {EPC: "4Ki"}),
    annotations={
        "epc-limit.nri.io/pod": "1",
        "epc-limit.nri.io/container.app": "99",
        "unified-cgroup.crio.io/app": "x",
    },
)


def named(pod: Mapping[str, object], name: str) -> Mapping[str, object]:
    """The pod under that name."""
    return {**pod, "metadata": {"name": name, "annotations": notes(pod)}}


def is_refused(cluster: Cluster, case: Case) -> bool:
    """Whether the refusal is the expected one."""
    said = cluster.said(case.pod, case.namespace)
    return f"ValidatingAdmissionPolicy 'nodeward-{case.policy}'" in said and all(part in said for part in case.refused)


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


@contextmanager
def parameters(cluster: Cluster, data: Mapping[str, str] | None) -> Iterator[None]:
    """Other parameters, or none; the shipped ones afterwards."""
    (shipped,) = objects("parameters.yaml", DEPLOY / "policies")
    place = f"{PARAMETERS}/nodeward-policies"
    cluster.client.call("DELETE", place)
    if data is not None:
        cluster.client.call("POST", PARAMETERS, record({**shipped, "data": data}))
    try:
        yield
    finally:
        if data is not None:
            cluster.client.call("DELETE", place)
        cluster.client.call("POST", PARAMETERS, shipped)
        probe = partial(cluster.said, record(named(PAGE, "tried")))
        wait(lambda: probe() == "", probe)


PAGE = pod_of(container("app", {EPC: "4Ki"}))


@pytest.mark.parametrize(
    ("data", "words"),
    PARAMETERS_SAID.values(),
    ids=PARAMETERS_SAID,
)
def test_the_parameters_are_what_the_policies_ask_for(
    cluster: Cluster, data: Mapping[str, str] | None, words: str
) -> None:
    with parameters(cluster, data):
        probe = partial(cluster.said, record(named(PAGE, "tried")))
        wait(lambda: words in probe(), probe)
        print(probe())


def test_without_the_parameters_even_pods_without_epc_wait_outside_the_namespaces_left_out(cluster: Cluster) -> None:
    plain = record(named(pod_of(container("app")), "tried"))
    with parameters(cluster, None):
        probe = partial(cluster.said, plain)
        wait(lambda: "no params found" in probe(), probe)
        assert [cluster.said(plain, name) for name in ("nodeward-system", "nodeward")] == ["", ""]
        assert cluster.status({}) == "", "kubelet's updates wait for no parameters"
    wait(lambda: probe() == "", probe)


def test_the_annotations_of_a_pod_that_lives_change_to_the_truth_only(cluster: Cluster) -> None:
    right = {"epc-limit.nri.io/container.app": "4096", LIMITS: '{"app":{"sgx_epc":"4096"}}'}
    cluster.client.call("POST", PODS, record(named({**PAGE, "metadata": {"annotations": right}}, "living")))

    changed = cluster.noted("living", {"epc-limit.nri.io/container.app": "8192"})
    print(changed)
    assert "container 'app': metadata.annotations[epc-limit.nri.io/container.app] is '8192'" in changed
    added = cluster.noted("living", {"epc-limit.nri.io/pod": "8192"})
    print(added)
    assert "metadata.annotations[epc-limit.nri.io/pod] is '8192'" in added
    for key in right:
        removed = cluster.noted("living", {key: None})
        print(removed)
        assert f"metadata.annotations[{key}] was '" in removed
        assert "must stay while the pod lives" in removed
    assert "write '4096'" in changed
    assert "remove" not in changed
    assert "must say sgx_epc 4096 of it" in cluster.noted("living", {"nodeward.io/limits": '{"app":{"sgx_epc":"1"}}'})
    assert "CRI-O would write it" in cluster.noted("living", {"unified-cgroup.crio.io/app": "x"})
    assert cluster.noted("living", {"mine": "1"}) == ""


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


def test_a_privileged_ephemeral_container_is_refused_and_an_earlier_one_is_not_held_against_the_pod(
    cluster: Cluster,
) -> None:
    place = "/api/v1/namespaces/restricted/pods/debugged"
    cluster.client.call("POST", place.removesuffix("/debugged"), record(named(PAGE, "debugged")))

    def debug(name: str, privileged: bool) -> str:
        one = container(name, securityContext={"privileged": privileged})
        return cluster.answer(
            "PATCH", f"{place}/ephemeralcontainers", {"spec": {"ephemeralContainers": [one]}}, STRATEGIC
        )

    said = debug("strong", True)
    print(said)
    assert "ephemeral container 'strong': securityContext.privileged is true, must be false" in said
    assert debug("weak", False) == ""
    label: Record = {"metadata": {"labels": {"nodeward.io/sgx-devices": None}}}
    cluster.client.call("PATCH", "/api/v1/namespaces/restricted", label, STRATEGIC)
    wait(partial(lambda: debug("strong", True) == ""), lambda: "still refused")
    label = {"metadata": {"labels": {"nodeward.io/sgx-devices": "restricted"}}}
    cluster.client.call("PATCH", "/api/v1/namespaces/restricted", label, STRATEGIC)
    wait(lambda: "'tried'" in cluster.said(STRONG, "restricted"), lambda: "not refused")
    assert debug("later", False) == ""


STRONG = {"metadata": {"name": "t"}, "spec": {"containers": [container("tried", securityContext={"privileged": True})]}}


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


@contextmanager
def webhook(cluster: Cluster, folder: Path) -> Iterator[None]:
    """The real webhook in front of the policies, for as long as the block."""
    pki = make_pki(folder)
    install(pki, "first", pki / "tls")
    place = f"{ADMISSION}/mutatingwebhookconfigurations"
    (configuration,) = objects("webhook.yaml")
    probe = record(named(PAGE, "tried"))
    with webhook_program(pki / "tls") as running:
        at_the_loopback(configuration, f"https://127.0.0.1:{port_of(running)}{PATH}", (pki / "ca.crt").read_bytes())
        cluster.client.call("POST", place, configuration)

        def changed() -> bool:
            return "nodeward.io/limits" in notes(cluster.client.call("POST", f"{PODS}?dryRun=All", probe))

        until(changed, "the API server calls the webhook")
        try:
            yield
        finally:
            cluster.client.call("DELETE", f"{place}/nodeward")
            until(lambda: not changed(), "the API server calls the webhook no more")


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
        none = cluster.said(named(pod_of(container("app", {EPC: "0"})), "tried"))
        print(none)
        assert "container 'app': resources.limits[sgx.intel.com/epc] is '0', must be more than 0; leave it out" in none
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
