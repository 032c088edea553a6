"""The whole chain as a user has it: a Deployment becomes a pod that the webhook and the policies let through, the
scheduler places, the kubelet starts, the kernel holds to its limit, and an Event tells of a charge that was refused."""

import json
import os
from collections.abc import Mapping
from typing import Final

from tests.peers.kubeclient import ApiError
from tests.peers.nriside import Json, Record, member, objects, text
from tests.vm.inside import EPC, KIB, RESOURCE, charge, limits, refused, until
from tests.vm.joined_node import ENCLAVE, NAME, PODS, Node, container, manifest

_LIMIT: Final = 20 * KIB
_EVENTS: Final = "/api/v1/namespaces/default/events"
_DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/default/deployments"
_WITHIN_S: Final = 20.0


def admission_is_installed(node: Node) -> None:
    """The webhook's configuration and the shipped policies, created as an administrator would: both are in force. The
    pod by which Intel's own end-to-end test tries EPC has no whole pages and is refused, as docs/webhook.md says."""
    listed: list[tuple[str, Record]] = json.loads(node.cluster.admission.read_text())
    for place, one in listed:
        node.api.call("POST", f"{place}?fieldValidation=Strict", one)

    def tried(epc: str) -> Record:
        """A pod as it would be stored."""
        return node.api.call("POST", f"{PODS}?dryRun=All", manifest("dry", [container("app", epc)]))

    def said() -> str:
        try:
            tried("42")
        except ApiError as error:
            return str(error)
        return ""

    until(lambda: "nodeward-epc-amounts" in said(), "the policies are in force", _WITHIN_S)
    wanted = "is '42', must be a multiple of 4096, since EPC comes in pages; write 4096"
    assert f"container 'app': resources.limits[{EPC}] {wanted}" in said(), said()
    until(lambda: "nodeward.io/limits" in _notes(tried("4Ki")), "the webhook is in force", _WITHIN_S)


def deployment_to_misc_max(node: Node) -> None:
    """From Deployment to misc.max by all that lies between; a charge above it the kernel refuses, and an Event tells of
    it."""
    template = _deploy(node, "whole", str(_LIMIT // KIB) + "Ki")
    name = str(member(_pod_of(node, "whole"), "metadata", "name"))
    runs = node.running(name, ["app", "side"])
    pod = node.api.call("GET", f"{PODS}/{name}")
    notes = _notes(pod)
    assert member(template, "metadata", "annotations") is None, template
    assert notes == {
        "nodeward.io/limits": f'{{"app":{{"sgx_epc":"{_LIMIT}"}},"side":{{"sgx_epc":"0"}}}}',
        "epc-limit.nri.io/container.app": str(_LIMIT),
        EPC: "20Ki",
    }
    app = _container(pod, "app")
    assert member(app, "resources", "limits") == {EPC: "20Ki", ENCLAVE: "1"}
    placed = _said(node, name, "Scheduled")
    assert placed == f"Successfully assigned default/{name} to {NAME}"
    inside, side = runs.containers["app"], runs.containers["side"]
    assert (node.born_with(inside), node.born_with(side)) == (f"{RESOURCE} {_LIMIT}", f"{RESOURCE} 0")
    until(lambda: limits(inside, side, runs.cgroup) == [_LIMIT, 0, _LIMIT], "all limits")
    node.daemon.enforced(name, "", "app", "side")
    held = charge(inside, _LIMIT)
    refused(inside, 1)
    told = _said(node, name, "ChargeRefused")
    os.close(held)
    met = f"The limit of {RESOURCE} of container app was reached: it is {_LIMIT} bytes and {_LIMIT} are in use."
    assert told.startswith(met), told


def _deploy(node: Node, name: str, epc: str) -> Record:
    """Creates a Deployment of one pod; its template as the API server has stored it."""
    spec = member(manifest(name, [container("app", epc), container("side")]), "spec")
    labels: Json = {"app": name}
    body: Record = {
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    found = member(node.api.call("POST", f"{_DEPLOYMENTS}?fieldValidation=Strict", body), "spec", "template")
    assert isinstance(found, dict)
    return found


def _pods(node: Node, app: str) -> list[Record]:
    return _listed(node.api.call("GET", f"{PODS}?labelSelector=app%3D{app}"), "items")


def _pod_of(node: Node, app: str) -> Record:
    until(lambda: bool(_pods(node, app)), f"a pod of the Deployment {app}", _WITHIN_S)
    return _pods(node, app)[0]


def _said(node: Node, name: str, reason: str) -> str:
    """The text of an event on that object, once there is one."""
    place = f"{_EVENTS}?fieldSelector=involvedObject.name%3D{name}%2Creason%3D{reason}"
    until(lambda: bool(_listed(node.api.call("GET", place), "items")), f"an event {reason} of {name}", _WITHIN_S)
    return text(_listed(node.api.call("GET", place), "items")[0], "message")


def _container(of: Record, name: str) -> Record:
    return next(one for one in _listed(of, "spec", "containers") if text(one, "name") == name)


def _listed(value: Record, *path: str) -> list[Record]:
    return objects(member(value, *path))


def _notes(pod: Record) -> Mapping[str, Json]:
    found = member(pod, "metadata", "annotations")
    return found if isinstance(found, dict) else {}
