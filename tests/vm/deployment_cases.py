"""The whole chain as a user has it: a Deployment becomes a pod that the webhook and the policies let through, the
scheduler places, the kubelet starts and the kernel holds to its limit; and one that a policy refuses becomes none."""

import json
import os
from collections.abc import Mapping
from typing import Final

from tests.peers.kubeclient import ApiError
from tests.peers.nriside import Json, Record, member, text
from tests.vm.inside import EPC, KIB, RESOURCE, charge, limit, refused, until
from tests.vm.joined_node import ENCLAVE, NAME, PODS, Node, container, manifest

_LIMIT: Final = 20 * KIB
_EVENTS: Final = "/api/v1/namespaces/default/events"
_DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/default/deployments"
_WITHIN_S: Final = 20.0


def admission_is_installed(node: Node) -> list[str]:
    """The shipped policies and the webhook's configuration, created as an administrator would; both are in force."""
    applied: list[tuple[str, Record]] = json.loads(node.cluster.admission.read_text())
    for place, one in applied:
        node.api.call("POST", f"{place}?fieldValidation=Strict", one)

    def tried(epc: str) -> Record:
        return node.api.call("POST", f"{PODS}?dryRun=All", manifest("tried", [container("app", epc)]))

    def both() -> bool:
        try:
            tried("6Ki")
        except ApiError as error:
            return "nodeward-epc-amounts" in str(error) and "nodeward.io/limits" in _notes(tried("4Ki"))
        return False

    until(both, "webhook and policies are in force", _WITHIN_S)
    return [f"admission: {len(applied)} objects of deploy/policies and deploy/webhook created, strictly, and in force"]


def deployment_to_misc_max(node: Node) -> list[str]:
    """From Deployment to misc.max by all that lies between, and a charge above it, which the kernel refuses."""
    template = _deploy(node, "whole", str(_LIMIT // KIB) + "Ki")
    pod = _pod_of(node, "whole")
    name = _name(pod)
    runs = node.running(name, ["app", "side"])
    pod = node.api.call("GET", f"{PODS}/{name}")
    notes = _notes(pod)
    assert member(template, "metadata", "annotations") is None, template
    assert notes == {
        "nodeward.io/limits": f'{{"app":{{"sgx_epc":"{_LIMIT}"}},"side":{{"sgx_epc":"0"}}}}',
        "epc-limit.nri.io/container.app": str(_LIMIT),
        EPC: "20Ki",
    }
    app = _app(pod)
    assert member(app, "resources", "limits") == {EPC: "20Ki", ENCLAVE: "1"}
    placed = _said(node, name, "Scheduled")
    assert placed == f"Successfully assigned default/{name} to {NAME}"
    inside, side = runs.containers["app"], runs.containers["side"]
    assert (node.born_with(inside), node.born_with(side)) == (f"{RESOURCE} {_LIMIT}", f"{RESOURCE} 0")
    until(lambda: [limit(one) for one in (inside, side, runs.cgroup)] == [str(_LIMIT), "0", str(_LIMIT)], "all limits")
    held = charge(inside, _LIMIT)
    above = refused(inside, 1)
    os.close(held)
    node.daemon.enforced(name, "", "app", "side")
    row = node.daemon.row(name, "app")
    assert row is not None
    return [
        f"deployment: template of whole has annotations {member(template, 'metadata', 'annotations')}, and app "
        f"{json.dumps(_app(template).get('resources'))}",
        f"after admission: pod {name} has annotations {json.dumps(notes)}, and app {json.dumps(app.get('resources'))}",
        f"scheduler: {placed}",
        f"from birth: runc was given misc.max '{node.born_with(inside)}' for app, '{node.born_with(side)}' for side",
        f"kernel: app {limit(inside)}, side {limit(side)}, pod {limit(runs.cgroup)}; app holds {_LIMIT}, 1 more: "
        f"{above}",
        f"daemon: {name}/app {row.state}, source {row.source}",
    ]


def deployment_that_a_policy_refuses(node: Node) -> list[str]:
    """No pod; the author reads why in the ReplicaSet's event."""
    _deploy(node, "uneven", "6Ki")
    sets = "/apis/apps/v1/namespaces/default/replicasets?labelSelector=app%3Duneven"
    until(lambda: bool(_listed(node.api.call("GET", sets), "items")), "the ReplicaSet of uneven", _WITHIN_S)
    name = _name(_listed(node.api.call("GET", sets), "items")[0])
    said = _said(node, name, "FailedCreate")
    assert "ValidatingAdmissionPolicy 'nodeward-epc-amounts'" in said, said
    assert "container 'app': resources.limits[sgx.intel.com/epc] is '6Ki', must be a multiple of 4096" in said, said
    assert _pods(node, "uneven") == []
    return [f"refused: event FailedCreate of ReplicaSet {name}: {said}"]


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


def _name(of: Record) -> str:
    return str(member(of, "metadata", "name"))


def _app(of: Record) -> Record:
    """The container `app` of a pod or template."""
    return next(one for one in _listed(of, "spec", "containers") if text(one, "name") == "app")


def _listed(value: Record, *path: str) -> list[Record]:
    found = member(value, *path)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _notes(pod: Record) -> Mapping[str, Json]:
    found = member(pod, "metadata", "annotations")
    return found if isinstance(found, dict) else {}
