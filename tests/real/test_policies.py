"""The shipped policies in a real kube-apiserver: pods that pass and pods that are refused, changes, and the webhook.

The pods are data, in tests/real/policies, one file a policy. Creates are dry runs, except where a change of a pod is
the story; for a while there are other parameters, or the webhook in front.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import yaml

from nodeward.core.annotations import KATA_CONFIG, KATA_ONLY
from nodeward.core.finding import RuntimeClass
from nodeward.features.admission.door.server import PATH
from nodeward.features.sandboxes.findings import OUR_POLICY
from nodeward.neighbours.kubernetes import cluster as kube_neighbours
from tests.component.webhook.support import WITHIN_S, install, make_pki, port_of
from tests.component.webhook.support import program as webhook_program
from tests.peers.controllers import running_controllers
from tests.peers.daemon import until
from tests.peers.kubeclient import STRATEGIC
from tests.peers.nriside import Record
from tests.real.test_webhook import at_the_loopback, objects
from tests.rigs import cluster as rigs
from tests.rigs.cluster import DEPLOY, PODS, record
from tests.unit.features.admission.rounds import at, container, notes, pod_of

DATA = Path(__file__).parent / "policies"
NAMES = ("cpu-claims", "epc-amounts", "epc-annotations", "kata-annotations", "sgx-devices", "sgx-provision")
SUBRESOURCES = "epc-subresources"
"""The policy that is asked of no pod that is made, so it has no file of pods."""
NAMESPACES: Mapping[str, Mapping[str, str]] = {
    "default": {},
    "nodeward-system": {},
    "nodeward": {},
    "restricted": {"nodeward.io/sgx-devices": "restricted", "nodeward.io/sgx-provision": "allowed"},
    "provisioned": {"nodeward.io/sgx-provision": "allowed"},
    "asked": {"nodeward.io/sgx-provision": "please"},
}
OVERHEAD: Mapping[str, object] = {"podFixed": {"sgx.intel.com/epc": "1Mi"}}
LARGE: Mapping[str, object] = {"metadata": {"name": "large"}, "handler": "large", "overhead": OVERHEAD}
CLAIMED: Mapping[str, Sequence[tuple[str, Mapping[str, str]]]] = {
    "four": (("cpus", {"cpu": "3"}), ("cpus", {"cpu": "1"})),
    "one": (("cpus", {}),),
    "named": (("dra.cpu", {"dra.cpu/cpu": "4"}),),
    "key": (("tdx", {}),),
    "part": (("cpus", {"cpu": "1500m"}),),
}
"""Templates of claims: of each request the class and the amounts."""
BOTH = "nodeward-policies must have container-max and pod-max"
PARAMETERS_SAID: Mapping[str, tuple[Mapping[str, str], str]] = {
    "small container": (
        {"container-max": "2Ki", "pod-max": "1Gi", "annotations": "optional"},
        "must be at most 2Ki (container-max)",
    ),
    "small pod": (
        {"container-max": "1Gi", "pod-max": "2Ki", "annotations": "optional"},
        "must be at most 2Ki (pod-max)",
    ),
    "no pod-max": ({"container-max": "1Gi", "annotations": "optional"}, BOTH),
    "no quantity": ({"container-max": "1GB", "pod-max": "1Gi", "annotations": "optional"}, BOTH),
    "annotations required": (
        {"container-max": "1Gi", "pod-max": "1Gi", "annotations": "required"},
        "container 'app': resources.limits[sgx.intel.com/epc] is 4096 bytes, and metadata.annotations must have it",
    ),
}
"""Other parameters, and part of what the author of a pod of one page then reads."""
MOST_ANNOTATIONS = 256 * 1024
"""What the API server lets all annotations of a pod be, keys included."""


def _filled(key: str, head: str, again: str, tail: str) -> tuple[str, str]:
    """An annotation as long as may be: its middle is so much of the same."""
    room = MOST_ANNOTATIONS - len(key) - len(head) - len(tail)
    return key, head + again * (room // len(again)) + tail


_LIMITS, _RIGHT = "nodeward.io/limits", '"app":{"sgx_epc":"4096"}'
LONG: Mapping[str, tuple[str, str, str]] = {
    "somebody else's": (*_filled("example.com/mine", "", "a", ""), ""),
    "limits of one letter": (*_filled(_LIMITS, "", "a", ""), "must have the containers 'app' once each"),
    "limits that open only": (*_filled(_LIMITS, "", "{", ""), "must have the containers 'app' once each"),
    "limits with an amount of many digits": (*_filled(_LIMITS, '{"app":{"sgx_epc":"', "0", '4096"}}'), "must say"),
    "limits with many resources": (*_filled(_LIMITS, '{"app":{"sgx_epc":"4096"', ',"tdx":"1"', "}}"), ""),
    "limits of many containers": (*_filled(_LIMITS, "{" + _RIGHT, "," + _RIGHT, "}"), "once each"),
    "limits that nearly end": (*_filled(_LIMITS, "{" + _RIGHT, "," + _RIGHT, ""), "once each"),
    "the container's own key": (*_filled("epc-limit.nri.io/container.app", "", "4096", ""), "must be what"),
    "the pod's key": (*_filled("epc-limit.nri.io/pod", "", "4", ""), "444', its key must be"),
    "the pod's key in lines": (*_filled("epc-limit.nri.io/pod", "4", "\n", ""), "is '4', its key must be"),
    "CRI-O's": (*_filled("unified-cgroup.crio.io/app", "", "x", ""), "xxx', must not be there"),
}
"""Annotations as long as may be of a pod of one page (container `app`), and part of what its author then reads."""


@dataclass(frozen=True, slots=True)
class Case:
    """A pod, and parts of the text with which it is refused; none where it passes."""

    policy: str
    title: str
    namespace: str
    pod: Record
    refused: tuple[str, ...]


def cases() -> list[Case]:
    return [_case(policy, one) for policy in NAMES for one in yaml.safe_load((DATA / f"{policy}.yaml").read_text())]


def _case(policy: str, told: Mapping[str, object]) -> Case:
    refused = told.get("refused", [])
    assert isinstance(refused, list)
    spec = json.loads(json.dumps(told["spec"]))
    assert isinstance(spec, dict)
    for field in ("containers", "initContainers"):
        members = spec.get(field, [])
        assert isinstance(members, list)
        for one in members:
            assert isinstance(one, dict)
            one["image"] = "localhost/none:1"
    pod: Record = {"metadata": {"name": "tried", "annotations": _annotations(told)}, "spec": spec}
    return Case(policy, str(told["id"]), str(told.get("namespace", "default")), pod, tuple(map(str, refused)))


def _annotations(told: Mapping[str, object]) -> Record:
    found = told.get("annotations", {})
    assert isinstance(found, dict)
    return found


EPC, PROVISION, LIMITS = "sgx.intel.com/epc", "sgx.intel.com/provision", "nodeward.io/limits"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICIES = f"{ADMISSION}/validatingadmissionpolicies"
BINDINGS = f"{ADMISSION}/validatingadmissionpolicybindings"
PARAMETERS = "/api/v1/namespaces/nodeward-system/configmaps"
RESTRICTED = "/api/v1/namespaces/restricted/pods"
CASES = cases()
REFUSED = [case for case in CASES if case.refused]
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
PAGE = pod_of(container("app", {EPC: "4Ki"}))
KEY = "epc-limit.nri.io/container.app"
LIVING: Mapping[str, Mapping[str, str]] = {
    "before": {"epc-limit.nri.io/pod": "1", KEY: "99", "unified-cgroup.crio.io/app": "x"},
    "right": {KEY: "4096", LIMITS: '{"app":{"sgx_epc":"4096"}}'},
    "long": {LIMITS: "x" * 9999},
    "kata": {KATA_ONLY: "false"},
    "bare": {},
}
"""Annotations of pods that live when the policies come."""
STRONG = container("strong", securityContext={"privileged": True})
"""An ephemeral container that a pod of the namespace `restricted`, `opened`, has by then."""


@dataclass(frozen=True, slots=True)
class Cluster(rigs.Cluster):
    def said(self, pod: Mapping[str, object], namespace: str = "default") -> str:
        """The refusal of a pod that somebody tries to create; empty where it passes."""
        return self.answer("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)

    def answer(self, verb: str, path: str, body: Mapping[str, object], kind: str = "application/json") -> str:
        """The server's message where it says no; empty where it does it."""
        return rigs.refusal(self.client, verb, path, body, kind)

    def noted(self, name: str, annotations: Mapping[str, object]) -> str:
        """The refusal of a change of a pod's annotations."""
        return self.answer("PATCH", f"{PODS}/{name}", {"metadata": {"annotations": annotations}}, STRATEGIC)

    def status(self, annotations: Mapping[str, object], name: str = "before") -> str:
        """The refusal of an update of the status of a pod that was there before, which brings annotations too."""
        body = {"metadata": {"annotations": annotations}, "status": {"message": "from kubelet"}}
        return self.answer("PATCH", f"{PODS}/{name}/status?dryRun=All", body, STRATEGIC)

    def binding(self, annotations: Mapping[str, object], path: str = "before/binding") -> str:
        """The refusal of that pod's binding to a node, which brings annotations too."""
        body = {"metadata": {"name": "before", "annotations": annotations}, "target": {"kind": "Node", "name": "one"}}
        place = f"{PODS}/{path}" if path else PODS.replace("pods", "bindings")
        return self.answer("POST", f"{place}?dryRun=All", body)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with rigs.running_cluster() as made:
        client = made.client
        for name, labels in NAMESPACES.items():
            if name != "default":
                client.call("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": dict(labels)}})
        client.call("POST", "/apis/node.k8s.io/v1/runtimeclasses", record(LARGE))
        for name, annotations in LIVING.items():
            client.call("POST", PODS, record(named({**PAGE, "metadata": {"annotations": annotations}}, name)))
        client.call("POST", RESTRICTED, record(named(PAGE, "opened")))
        debugged = record({"spec": {"ephemeralContainers": [STRONG]}})
        client.call("PATCH", f"{RESTRICTED}/opened/ephemeralcontainers", debugged, STRATEGIC)
        for name, asked in CLAIMED.items():
            client.call("POST", TEMPLATES, record(template(name, asked)))
        found = Cluster(made.server, client)
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


def template(name: str, asked: Sequence[tuple[str, Mapping[str, str]]]) -> Mapping[str, object]:
    requests = [
        {"name": f"r{number}", "exactly": {"deviceClassName": kind, **({"capacity": {"requests": of}} if of else {})}}
        for number, (kind, of) in enumerate(asked)
    ]
    return {"metadata": {"name": name}, "spec": {"spec": {"devices": {"requests": requests}}}}


def policy(name: str) -> tuple[Record, Record]:
    found, binding = objects(f"{name}.yaml", DEPLOY / "policies")
    return found, binding


def named(pod: Mapping[str, object], name: str) -> Mapping[str, object]:
    return {**pod, "metadata": {"name": name, "annotations": notes(pod)}}


def is_refused(cluster: Cluster, case: Case) -> bool:
    said = cluster.said(case.pod, case.namespace)
    return f"ValidatingAdmissionPolicy 'nodeward-{case.policy}'" in said and all(part in said for part in case.refused)


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


@contextmanager
def webhook(cluster: Cluster, folder: Path) -> Iterator[None]:
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
        many = [container(name, {EPC: "4Ki"}) for name in names]
        return cluster.said(named(pod_of(*many, annotations={LIMITS: f"{{{limits}}}"}), "tried"))

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


REQUIRED = "required-plugins.noderesource.dev"
OURS = (
    LIMITS, EPC, "epc-limit.nri.io", "epc-limit.nri.io/pod.new", REQUIRED, f"{REQUIRED}/pod",
    f"{REQUIRED}/container.new", "unified-cgroup.crio.io", "unified-cgroup.crio.io/new",
    "io.kubernetes.cri-o.UnifiedCgroup", "io.kubernetes.cri-o.UnifiedCgroup.new",
)  # fmt: skip
NOBODYS = (
    "mine", f"{LIMITS}-of-mine", "sgx.intel.com/epcs", "epc-limit.nri.iot/pod", f"{REQUIRED}elopment/pod",
    f"my-{REQUIRED}", "io.kubernetes.cri-o.Other",
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
    "wrong before": ("change", "before", {"mine": "1"}, ""),
    "wrong otherwise": ("change", "before", {KEY: "98"}, "is '98'"),
    "mended": ("change", "before", {KEY: "4096", "epc-limit.nri.io/pod": None}, ""),
    "removed": ("change", "before", {"epc-limit.nri.io/pod": None, "unified-cgroup.crio.io/app": None}, ""),
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
    "status: wrong before": ("status", "before", {}, ""),
    "status: Kata's": ("status", "bare", {KATA_ONLY: "false"}, KATAS),
    "status: Kata's, otherwise": ("status", "kata", {KATA_ONLY: "true"}, KATAS),
    "status: beside Kata's": ("status", "kata", {"mine": "1"}, ""),
    "status: Kata's, removed": ("status", "kata", {KATA_ONLY: None}, ""),
    "binding: long": ("binding", "", {KEY: "4" * 9999}, "444', must not change by a binding"),
    "binding: Kata's": ("binding", "", {KATA_ONLY: "false"}, KATAS),
    "binding: Kata's, long": ("binding", "", {KATA_CONFIG: "4" * 9999 + "\n"}, KATAS),
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
        annotations={"epc-limit.nri.io/pod": "99999999", KEY: "99999999", "sgx.intel.com/quote-provider": "app"},
        initContainers=[container("proxy", {EPC: "8Ki"}, restartPolicy="Always"), container("setup", {EPC: "1Mi"})],
    )
    here, there = record(named(asked, "whole")), "/api/v1/namespaces/provisioned/pods"
    alone = cluster.said(here, "provisioned")
    print(alone)
    assert "denied request: metadata.annotations[epc-limit.nri.io/pod] is '99999999'" in alone
    with webhook(cluster, tmp_path), parameters(cluster, shipped):
        refusal = partial(cluster.said, here)
        wait(lambda: "ValidatingAdmissionPolicy" in refusal(), refusal)
        said = refusal()
        print(said)
        assert "container 'app': resources.limits[sgx.intel.com/provision] is '1', must be declared only in" in said
        probe = partial(cluster.said, here, "provisioned")
        wait(lambda: probe() == "", probe)
        found = cluster.client.call("POST", there, here)
        print(notes(found))
        assert at(found, "spec", "containers", 0, "resources", "limits", PROVISION) == "1"
        assert notes(found)["epc-limit.nri.io/container.setup"] == "1048576"
        change: Record = {"metadata": {"annotations": {KEY: "1", "mine": "1"}}}
        after = cluster.client.call("PATCH", f"{there}/whole", change, STRATEGIC)
        assert notes(after) == {**notes(found), "mine": "1"}
    said = cluster.answer("PATCH", f"{there}/whole", change, STRATEGIC)
    print(said)
    assert "container 'app': metadata.annotations[epc-limit.nri.io/container.app] is '1'" in said


def test_sub_resources_pass_the_webhook_and_then_the_policies(cluster: Cluster, tmp_path: Path) -> None:
    """Ephemeral containers and resizes, each let through once and refused once by whom it concerns."""

    def is_said(kind: str, words: str, spec: Mapping[str, object]) -> None:
        said = cluster.answer("PATCH", f"{RESTRICTED}/subject/{kind}", {"spec": spec}, STRATEGIC)
        print(kind, said or "let through")
        assert words in said
        assert bool(said) is bool(words)

    with webhook(cluster, tmp_path):
        subject = record(named(pod_of(container("app", {EPC: "4Ki", "cpu": "1"})), "subject"))
        made = cluster.client.call("POST", RESTRICTED, subject)
        for words, more in (
            ("update.nodeward.io", {"resources": {"limits": {EPC: "4Ki"}, "requests": {EPC: "4Ki"}}}),
            ("ephemeral container 'debug': securityContext.privileged", {"securityContext": {"privileged": True}}),
            ("", {}),
        ):
            is_said("ephemeralcontainers", words, {"ephemeralContainers": [{**container("debug"), **more}]})
        for words, limits in (("", {"cpu": "2"}), ("only cpu and memory resources are mutable", {EPC: "8Ki"})):
            resources = {"limits": limits, "requests": limits}
            is_said("resize", words, {"containers": [{"name": "app", "resources": resources}]})
        now = cluster.client.call("GET", f"{RESTRICTED}/subject")
        limits = {EPC: "4Ki", "sgx.intel.com/enclave": "1", "cpu": "2"}
        assert at(now, "spec", "containers", 0, "resources", "limits") == limits
        assert notes(now) == notes(made)
