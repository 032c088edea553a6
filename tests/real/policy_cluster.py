"""A real kube-apiserver with the shipped policies in force, other parameters and the webhook in front for a while.

Creates are dry runs, except where a change of a pod is the story.
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

from nodeward.core.annotations import KATA_ONLY
from nodeward.features.admission.door.server import PATH
from tests.component.webhook.support import WITHIN_S, install, make_pki, port_of
from tests.component.webhook.support import program as webhook_program
from tests.peers.daemon import until
from tests.peers.kubeclient import STRATEGIC, ApiError
from tests.peers.nriside import Record
from tests.real.test_webhook import at_the_loopback, objects
from tests.rigs import cluster as rigs
from tests.rigs.cluster import DEPLOY, PODS, record
from tests.unit.features.admission.rounds import container, notes, pod_of

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
OVERHEAD: Mapping[str, str] = {"sgx.intel.com/epc": "1Mi"}
LARGE: Mapping[str, object] = {
    "metadata": {"name": "large"},
    "handler": "large",
    "overhead": {"podFixed": OVERHEAD},
}
CLAIMED: Mapping[str, Sequence[tuple[str, Mapping[str, str]]]] = {
    "four": (("cpus", {"cpu": "3"}), ("cpus", {"cpu": "1"})),
    "one": (("cpus", {}),),
    "named": (("dra.cpu", {"dra.cpu/cpu": "4"}),),
    "key": (("tdx", {}),),
    "part": (("cpus", {"cpu": "1500m"}),),
}
"""Templates of claims: of each request the class and the amounts."""
PARAMETERS_SAID: Mapping[str, tuple[Mapping[str, str], str]] = {
    "small container": (
        {"container-max": "2Ki", "pod-max": "1Gi", "annotations": "optional"},
        "must be at most 2Ki (container-max)",
    ),
    "small pod": (
        {"container-max": "1Gi", "pod-max": "2Ki", "annotations": "optional"},
        "must be at most 2Ki (pod-max)",
    ),
    "no pod-max": (
        {"container-max": "1Gi", "annotations": "optional"},
        "nodeward-policies must have container-max and pod-max",
    ),
    "no quantity": (
        {"container-max": "1GB", "pod-max": "1Gi", "annotations": "optional"},
        "nodeward-policies must have container-max and pod-max",
    ),
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
    "limits of one container with many resources": (
        *_filled(_LIMITS, '{"app":{"sgx_epc":"4096"', ',"tdx":"1"', "}}"),
        "",
    ),
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
WRONG = {"epc-limit.nri.io/pod": "1", KEY: "99"}
LIVING: Mapping[str, Mapping[str, str]] = {
    "before": {**WRONG, "unified-cgroup.crio.io/app": "x"},
    "wrong": WRONG,
    "right": {KEY: "4096", LIMITS: '{"app":{"sgx_epc":"4096"}}'},
    "long": {LIMITS: "x" * 9999},
    "kata": {KATA_ONLY: "false"},
    "bare": {},
}
"""Annotations of pods that live when the policies come. One story changes `before`; the others stay as they are."""
STRONG = container("strong", securityContext={"privileged": True})
"""An ephemeral container that a pod of the namespace `restricted`, `opened`, has by then."""


@dataclass(frozen=True, slots=True)
class Cluster(rigs.Cluster):
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
