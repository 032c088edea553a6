"""A real kube-apiserver with the shipped policies in force, other parameters and the webhook in front for a while.

Creates are dry runs, except where a change of a pod is the story.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from nodeward.edges.webhook.server import PATH
from nodeward.model.annotations import KATA_ONLY
from tests.component.webhook.support import WITHIN_S, install, make_pki, port_of
from tests.component.webhook.support import program as webhook_program
from tests.peers.daemon import until
from tests.peers.kubeclient import STRATEGIC, ApiError
from tests.peers.nriside import Record
from tests.real.policycases import LARGE, NAMES, NAMESPACES, SUBRESOURCES, Case, cases
from tests.real.test_webhook import at_the_loopback, objects
from tests.rigs import cluster as rigs
from tests.rigs.cluster import DEPLOY, PODS, record
from tests.unit.edges.webhook.rounds import container, notes, pod_of

EPC, PROVISION, LIMITS = "sgx.intel.com/epc", "sgx.intel.com/provision", "nodeward.io/limits"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICIES = f"{ADMISSION}/validatingadmissionpolicies"
BINDINGS = f"{ADMISSION}/validatingadmissionpolicybindings"
PARAMETERS = "/api/v1/namespaces/nodeward-system/configmaps"
RESTRICTED = "/api/v1/namespaces/restricted/pods"
CASES = cases()
REFUSED = [case for case in CASES if case.refused]
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
    """An API server with the policies in force."""

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
    """Namespaces, a RuntimeClass, pods that were there before, and then the policies, each in force."""
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


def policy(name: str) -> tuple[Record, Record]:
    """The policy of a manifest and its binding."""
    found, binding = objects(f"{name}.yaml", DEPLOY / "policies")
    return found, binding


def named(pod: Mapping[str, object], name: str) -> Mapping[str, object]:
    """The pod under that name."""
    return {**pod, "metadata": {"name": name, "annotations": notes(pod)}}


def is_refused(cluster: Cluster, case: Case) -> bool:
    """Whether the refusal is the expected one."""
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
