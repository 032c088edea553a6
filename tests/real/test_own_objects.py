"""The daemon's account on a real kube-apiserver, with the shipped rights and policy: its own node's objects."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import yaml

from tests.peers.daemon import until
from tests.peers.kube import running_apiserver
from tests.peers.kubeclient import MERGE, ApiError, KubeClient
from tests.peers.nriside import Record, member
from tests.real.nfd_cluster import CRDS, asked
from tests.real.test_agent import make

HERE = Path(__file__).resolve().parent
FILES = ("namespace.yaml", "rbac.yaml", "nfd.yaml", "topology-objects.yaml", "own-objects.yaml")
SPACE = "/api/v1/namespaces/nodeward"
LABEL = "nfd.node.kubernetes.io/node-name"
TOPOLOGY = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
TOPOLOGY_KIND: Record = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology"}
FEATURES = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/nodeward/nodefeatures"


def said(client: KubeClient, verb: str, path: str, body: Record | None = None) -> str:
    """Why it is refused, else nothing."""
    try:
        client.call(verb, f"{path}?dryRun=All", body, MERGE if verb == "PATCH" else "application/json")
    except ApiError as error:
        return f"{error.status} {error}"
    return ""


def bound_to(client: KubeClient, node: str) -> Record:
    """A daemon's pod there, as that to which a token is bound."""
    spec: Record = {
        "nodeName": node,
        "serviceAccountName": "nodeward-node",
        "containers": [{"name": "node", "image": "none"}],
    }
    made = client.call("POST", f"{SPACE}/pods", {"metadata": {"name": f"node-{node}"}, "spec": spec})
    pod: Record = {"kind": "Pod", "apiVersion": "v1", "name": f"node-{node}", "uid": member(made, "metadata", "uid")}
    return {"boundObjectRef": pod}


def _is_served(client: KubeClient, path: str) -> bool:
    return said(client, "GET", path) == ""


def feature(name: str, node: str) -> Record:
    metadata: Record = {"name": name, "labels": {LABEL: node}}
    return {"apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature", "metadata": metadata, "spec": {}}


def changes(client: KubeClient, node: str) -> tuple[tuple[str, str, Record | None], ...]:
    """What a daemon does with the objects of this node."""
    edit: Record = {"metadata": {"annotations": {"a": "b"}}}
    return (
        ("POST", FEATURES, feature(f"zzz-new-{node}", node)),
        ("PUT", f"{FEATURES}/zzz-{node}", client.call("GET", f"{FEATURES}/zzz-{node}")),
        ("DELETE", f"{FEATURES}/zzz-{node}", None),
        ("PATCH", f"{TOPOLOGY}/{node}", edit),
        ("DELETE", f"{TOPOLOGY}/{node}", None),
    )


def test_a_daemon_changes_objects_of_its_own_node_only() -> None:
    """Given tokens of daemons' pods on two nodes, and both nodes' objects, then each changes those of its own; the
    administrator and a token that is bound to no node change all."""
    with tempfile.TemporaryDirectory(prefix="nwo") as folder, running_apiserver(Path(folder)) as server:
        client = KubeClient(server.base_url, server.ca_file, server.token)
        for name in FILES:
            make(client, yaml.safe_load_all((HERE.parents[1] / "deploy" / "node" / name).read_text()))
        for name in ("nfd_crds.yaml", "topology_crd.yaml"):
            for one in yaml.safe_load_all((HERE / name).read_text()):
                client.call("POST", CRDS, one)
        for path in (TOPOLOGY, FEATURES):
            until(partial(_is_served, client, path), "the kind is served")
        users = [client]
        for node in ("node-1", "node-2", ""):
            spec: Record = {"expirationSeconds": 600}
            if node:
                client.call("POST", "/api/v1/nodes", {"metadata": {"name": node}})
                client.call("POST", FEATURES, feature(f"zzz-{node}", node))
                zones: Record = {**TOPOLOGY_KIND, "metadata": {"name": node}, "zones": []}
                client.call("POST", TOPOLOGY, zones)
                spec |= bound_to(client, node)
            answer = client.call("POST", f"{SPACE}/serviceaccounts/nodeward-node/token", {"spec": spec})
            users.append(KubeClient(server.base_url, server.ca_file, str(member(answer, "status", "token"))))
        admin, first, second, unbound = users
        until(lambda: bool(said(second, "DELETE", f"{TOPOLOGY}/node-1")), "the policy is in force")
        for one in changes(client, "node-1"):
            assert [said(user, *one) for user in (admin, first, unbound)] == ["", "", ""], one
            why = said(second, *one)
            assert why.startswith("403 "), one
            assert "is on the node 'node-2' and changes objects of its own node only, not of 'node-1'" in why
        whole = client.call("GET", f"{FEATURES}/zzz-node-1")
        taken: Record = {**whole, "metadata": {**asked(whole["metadata"]), "labels": {LABEL: "node-2"}}}
        assert said(second, "PUT", f"{FEATURES}/zzz-node-1", taken).startswith("403 "), "by a label that says its own"
        lost = client.call("PATCH", f"{FEATURES}/zzz-node-1", {"metadata": {"labels": None}}, MERGE)
        whole["metadata"] = {**asked(lost["metadata"]), "labels": {LABEL: "node-1"}}
        assert said(first, "PUT", f"{FEATURES}/zzz-node-1", whole) == "", "its object that lost the label"
