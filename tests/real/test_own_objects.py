"""The daemon's account on a real kube-apiserver, with the shipped rights and policy: its own node's objects."""

from __future__ import annotations

from tests.peers.daemon import until
from tests.peers.kubeclient import MERGE, KubeClient
from tests.peers.nriside import Record
from tests.rigs.cluster import JSON, define, make, manifests, part, pod_on, refusal, running_cluster, token_of

FILES = (
    *("namespace.yaml", "rbac.yaml", "nfd.yaml", "topology-objects.yaml", "claims.yaml", "own-objects.yaml"),
    *("node-epc.yaml", "kubevirt-label.yaml"),
)
ACCOUNT = "nodeward/nodeward-node"
LABEL = "nfd.node.kubernetes.io/node-name"
TOPOLOGY = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
FEATURES = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/nodeward/nodefeatures"


def said(client: KubeClient, verb: str, path: str, body: Record | None = None) -> str:
    return refusal(client, verb, f"{path}?dryRun=All", body, MERGE if verb == "PATCH" else JSON)


def feature(name: str, node: str) -> Record:
    metadata: Record = {"name": name, "labels": {LABEL: node}}
    return {"apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature", "metadata": metadata, "spec": {}}


def zones(node: str) -> Record:
    kind: Record = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology"}
    return {**kind, "metadata": {"name": node}, "zones": []}


def slice_of(name: str, node: str, driver: str = "tee.nodeward.io") -> Record:
    pool: Record = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec: Record = {"driver": driver, "nodeName": node, "pool": pool, "devices": []}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def changes(client: KubeClient, node: str) -> tuple[tuple[str, str, Record | None], ...]:
    edit: Record = {"metadata": {"annotations": {"a": "b"}}}
    return (
        ("POST", FEATURES, feature(f"zzz-new-{node}", node)),
        ("PUT", f"{FEATURES}/zzz-{node}", client.call("GET", f"{FEATURES}/zzz-{node}")),
        ("DELETE", f"{FEATURES}/zzz-{node}", None),
        ("PATCH", f"{TOPOLOGY}/{node}", edit),
        ("DELETE", f"{TOPOLOGY}/{node}", None),
        ("POST", SLICES, slice_of(f"new-{node}", node)),
        ("PATCH", f"{SLICES}/{node}", edit),
        ("DELETE", f"{SLICES}/{node}", None),
    )


FIELDS: Record = {
    "phase": "Terminated",
    "conditions": [{"type": "Ready", "status": "True"}],
    "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
    "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}},
    "nodeInfo": {"architecture": "arm64"},
    "images": [{"names": ["a"]}],
    "volumesInUse": ["a"],
    "volumesAttached": [{"name": "a", "devicePath": "b"}],
    "runtimeHandlers": [{"name": "a"}],
    "features": {"supplementalGroupsPolicy": True},
    "declaredFeatures": ["A"],
}
METADATA: Record = {
    "labels": {"a": "b"},
    "annotations": {"a": "b"},
    "finalizers": ["a.io/b"],
    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u"}],
}
"""All that a node's status has beside amounts, and what of the metadata a change of it carries."""


def capacity(resource: str) -> Record:
    of: Record = {resource: "4096"}
    return {"status": {"capacity": of, "allocatable": of}}


def labels(*names: str) -> Record:
    of: Record = dict.fromkeys(names, "true")
    return {"metadata": {"labels": of}}


def test_a_daemon_changes_objects_of_its_own_node_only() -> None:
    with running_cluster("node-1", "node-2") as cluster:
        client = cluster.client
        make(client, *(one for name in FILES for one in manifests(f"node/{name}")))
        define(client, "nfd_crds.yaml", "topology_crd.yaml")
        users = []
        for node in ("node-1", "node-2"):
            client.call("POST", FEATURES, feature(f"zzz-{node}", node))
            client.call("POST", TOPOLOGY, zones(node))
            client.call("POST", SLICES, slice_of(node, node))
            users.append(cluster.user(token_of(client, ACCOUNT, pod_on(client, node, ACCOUNT))))
        (first, second), unbound = users, cluster.user(token_of(client, ACCOUNT))
        until(lambda: bool(said(second, "DELETE", f"{TOPOLOGY}/node-1")), "the policy is in force")

        for one in changes(client, "node-1"):
            assert [said(user, *one) for user in (client, first, unbound)] == ["", "", ""], one
            why = said(second, *one)
            assert why.startswith("403 "), one
            assert "is on the node 'node-2' and changes objects of its own node only, not of 'node-1'" in why

        status, epc = "/api/v1/nodes/node-1/status", capacity("sgx.intel.com/epc")
        assert [said(user, "PATCH", status, epc) for user in (client, first, unbound)] == ["", "", ""]
        why = said(second, "PATCH", status, epc)
        assert "changes the status of its own node only, not of 'node-1'" in why
        statuses: list[Record] = [{"status": {name: value}} for name, value in FIELDS.items()]
        others: list[Record] = [{"metadata": {name: value}} for name, value in METADATA.items()]
        for other in (capacity("cpu"), capacity("example.com/key"), *statuses, *others):
            assert "changes sgx.intel.com/epc of a node only" in said(first, "PATCH", status, other), other

        node, label = "/api/v1/nodes/node-1", labels("cpumanager", "kubevirt.io/cpumanager")
        assert [said(user, "PATCH", node, label) for user in (client, first, unbound)] == ["", "", ""]
        why = said(second, "PATCH", node, label)
        assert "changes the label of its own node only, not of 'node-1'" in why
        spec: Record = {"spec": {"unschedulable": True}}
        for other in (labels("cpumanager", "a"), *others, spec):
            assert "changes the label cpumanager of a node only" in said(first, "PATCH", node, other), other

        everywhere: Record = {**part(slice_of("all", "node-1"), "spec"), "nodeName": None, "allNodes": True}
        why = said(first, "POST", SLICES, {**slice_of("all", "node-1"), "spec": everywhere})
        assert "is on the node 'node-1' and changes objects of its own node only, not of 'none'" in why
        for driver in ("sgx.nodeward.io", "cpus.nodeward.io", "dra.cpu"):
            assert said(first, "POST", SLICES, slice_of(f"by-{driver}", "node-1", driver)) == ""
        why = said(first, "POST", SLICES, slice_of("other", "node-1", "gpu.example.com"))
        assert why.startswith("403 ")
        assert "changes slices of its own driver only" in why
        assert said(first, "GET", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/a").startswith("404 ")
        assert said(first, "DELETE", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/a").startswith("403 ")

        whole = client.call("GET", f"{FEATURES}/zzz-node-1")
        taken: Record = {**whole, "metadata": {**part(whole, "metadata"), "labels": {LABEL: "node-2"}}}
        assert said(second, "PUT", f"{FEATURES}/zzz-node-1", taken).startswith("403 "), "by a label that says its own"
        lost = client.call("PATCH", f"{FEATURES}/zzz-node-1", {"metadata": {"labels": None}}, MERGE)
        whole["metadata"] = {**part(lost, "metadata"), "labels": {LABEL: "node-1"}}
        assert said(first, "PUT", f"{FEATURES}/zzz-node-1", whole) == "", "its object that lost the label"
