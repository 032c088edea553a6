"""`nodeward agent` between a real kube-apiserver and a relay process: CRI Resource Manager's README, "node agent" and
"dynamic configuration", with the shipped rights and the shipped sample.

Neither etcd, API server nor relay is played; the runtime behind the relay is grpcio's.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
import yaml

from nodeward.contracts import resmgr_agent_pb2 as pb
from tests.component.relay.rig import WAIT_S, client_of, runtime_at
from tests.component.relay.test_config_socket import Relayed
from tests.peers.daemon import until
from tests.peers.kubeclient import MERGE, KubeClient
from tests.peers.kubelet import Api, kubeconfig
from tests.peers.nriside import Record, member
from tests.rigs.cluster import NODES, Cluster, Way, make, manifests, pod_on, refusal, running_cluster, token_of, way_to

ACCOUNT = "kube-system/nodeward-agent"
SYSTEM = "/api/v1/namespaces/kube-system"
MAPS = f"{SYSTEM}/configmaps"
NODE = "/api/v1/nodes/node-1"
GROUP = "cri-resource-manager.intel.com/group"
OWN, BATCH, DEFAULT = (f"cri-resmgr-config.{name}" for name in ("node.node-1", "group.batch", "default"))


def objects(name: str) -> list[Record]:
    return manifests(f"agent/{name}")


def put(client: KubeClient, name: str, config: Mapping[str, str]) -> None:
    data: Record = {"metadata": {"name": name}, "data": dict(config)}
    if client.find(f"{MAPS}/{name}") is None:
        client.call("POST", MAPS, data)
    else:
        client.call("PUT", f"{MAPS}/{name}", data)


@dataclass(slots=True)
class Node:
    folder: Path
    client: KubeClient
    way: Way
    relay: Relayed

    def put(self, name: str, config: Mapping[str, str]) -> None:
        put(self.client, name, config)

    def remove(self, name: str) -> None:
        self.client.call("DELETE", f"{MAPS}/{name}")

    def join(self, group: str | None) -> None:
        self.client.call("PATCH", NODE, {"metadata": {"labels": {GROUP: group}}}, MERGE)

    def has(self, policy: str) -> None:
        until(lambda: self.relay.policy() == policy, f"the policy {policy}; the agent says {self.log()}")

    def log(self) -> str:
        return (self.folder / "agent.log").read_text()

    @contextmanager
    def agent(self) -> Iterator[None]:
        own = ("-kubeconfig", str(self.folder / "kubeconfig"), "-agent-socket", str(self.folder / "agent.sock"))
        command = [sys.executable, "-c", "from nodeward.cli.agent import main; main()", *own]
        command += ["-cri-resmgr-socket", str(self.relay.socket)]
        with (self.folder / "agent.log").open("ab") as log:
            process = subprocess.Popen(command, stderr=log, env={**os.environ, "NODE_NAME": "node-1"})
        try:
            yield
        finally:
            process.kill()
            process.wait(WAIT_S)

    def probe(self, *query: str) -> tuple[int, str]:
        command = [sys.executable, "-c", "from nodeward.cli.agent import probe; probe()"]
        command += ["-agent-socket", str(self.folder / "agent.sock"), *query]
        said: list[tuple[int, str]] = []

        def is_told() -> bool:
            """On a busy machine the probe's second may be too short."""
            done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
            said.append((done.returncode, done.stdout + done.stderr))
            return not said[-1][1].endswith("within 1 s\n")

        until(is_told, "the agent's health")
        return said[-1]

    def events(self) -> list[tuple[object, str]]:
        listed = self.client.call("GET", "/apis/events.k8s.io/v1/namespaces/default/events")["items"]
        assert isinstance(listed, list)
        found = [one for one in listed if isinstance(one, dict) and member(one, "regarding", "name") == "node-1"]
        return [(one["reason"], str(one["note"])) for one in found]


@dataclass(frozen=True, slots=True)
class Joined(Cluster):
    way: Way
    kubeconfig: str


def kubeconfig_of(client: KubeClient, url: str, ca_file: Path, node: str = "node-1") -> str:
    """The file of the shipped account, which is made, as a pod on this node has it."""
    make(client, *objects("rbac.yaml"), *objects("own-node.yaml"))
    return kubeconfig(Api(url, ca_file, token_of(client, ACCOUNT, pod_on(client, node, ACCOUNT))))


@pytest.fixture(name="cluster", scope="module")
def _cluster() -> Iterator[Joined]:
    """With the shipped rights, and a kubeconfig of the shipped account, by a way that can be cut."""
    with running_cluster("node-1") as cluster, way_to(cluster.server) as way:
        client, url = cluster.client, f"https://127.0.0.1:{way.port}"
        yield Joined(cluster.server, client, way, kubeconfig_of(client, url, cluster.server.ca_file))


@pytest.fixture(name="node")
def _node(cluster: Joined) -> Iterator[Node]:
    with tempfile.TemporaryDirectory(prefix="nwa") as name, ExitStack() as stack:
        folder = Path(name)
        (folder / "kubeconfig").write_text(cluster.kubeconfig)
        stack.enter_context(runtime_at(folder / "runtime.sock"))
        node = Node(folder, cluster.client, cluster.way, Relayed(folder))
        node.join(None)
        for one in (OWN, BATCH, DEFAULT):
            if node.client.find(f"{MAPS}/{one}") is not None:
                node.remove(one)
        yield node


def policy(name: str) -> dict[str, str]:
    return {"policy": f"Active: {name}\nReservedResources: {{CPU: 1}}\n"}


def test_the_walk_of_the_readme_with_the_shipped_sample(node: Node) -> None:
    make(node.client, *objects("daemonset.yaml"), *objects("sample.yaml"))
    with node.relay.running(), node.agent():
        until(lambda: f"{OWN} accepted" in node.log(), "the node's own configuration")
        node.has("none")
        node.remove(OWN)
        node.has("static")
        node.join("batch")
        node.has("static-plus")
        node.join("nobody")
        node.has("none")
        assert "cri-resmgr-config.group.nobody is missing: the configuration is empty" in node.log()
        node.join(None)
        node.has("static")


def test_a_bad_configmap_is_said_everywhere_and_the_last_good_one_holds_until_it_is_mended(node: Node) -> None:
    node.put(DEFAULT, policy("static"))
    with node.relay.running(), node.agent():
        node.has("static")
        assert node.probe("-query", "config-status") == (0, "Health check OK\n")
        node.put(DEFAULT, {"policy": "Activ: static\n", "polcy": "Active: none\n"})
        until(lambda: node.probe("-query", "config-status")[0] == 1, "the probe's word of it")
        said = node.probe("-query", "config-status")[1]
        assert f"configuration error: {DEFAULT}: " in said
        until(lambda: bool(node.events()), "the Event")
        [(reason, note)] = node.events()
        assert reason == "ConfigRefused"
        for text in (said, note, node.log()):
            assert "did you mean policy.Active?" in text
            assert "polcy is no module" in text
        assert node.probe()[0] == 0, "the agent itself is well"
        assert node.relay.policy() == "static"
        node.put(DEFAULT, {"policy": "x" * 1_000_000})
        until(lambda: "at most 49152" in node.probe("-query", "config-status")[1], "word of its size")
        node.put(DEFAULT, policy("static-plus"))
        node.has("static-plus")
        until(lambda: "ConfigAccepted" in [one for one, _ in node.events()], "the Event of the mended one")
        assert node.probe("-query", "config-status")[0] == 0


def test_a_cut_watch_and_ends_of_either_process_lose_no_change(node: Node) -> None:
    node.put(DEFAULT, policy("static"))
    with node.agent():
        with node.relay.running():
            node.has("static")
            node.way.cut()
            node.put(DEFAULT, policy("static-plus"))
            node.has("static-plus")
            assert "kube api=lost" in node.log()
        node.put(DEFAULT, policy("static"))
        until(lambda: "is not pushed" in node.probe("-query", "config-status")[1], "word of the absent relay")
        with node.relay.running():
            node.has("static")
    with node.relay.running():
        assert node.relay.policy() == "static"
        node.put(DEFAULT, policy("static-plus"))
        with node.agent():
            node.has("static-plus")
    assert node.probe() == (1, node.probe()[1])


def test_a_relay_reads_its_node_and_changes_no_more_of_it_than_is_its_own(node: Node) -> None:
    with node.agent(), ExitStack() as stack:
        until((node.folder / "agent.sock").is_socket, "the agent's socket")
        channel = stack.enter_context(client_of(node.folder / "agent.sock"))

        def call(name: str, request: bytes) -> bytes:
            answer: bytes = channel.unary_unary(f"/v1.Agent/{name}")(request, timeout=WAIT_S)
            return answer

        def patch(op: str, path: str, value: str = "v") -> str:
            request = pb.PatchNodeRequest(patches=[pb.JsonPatch(op=op, path=path, value=value)])
            try:
                call("PatchNode", request.SerializeToString())
            except grpc.RpcError as error:
                return str(error.details())
            return ""

        found = pb.GetNodeReply.FromString(call("GetNode", b""))
        assert yaml.safe_load(found.node)["metadata"]["name"] == "node-1"
        node.client.call("PATCH", NODE, {"metadata": {"labels": {"a": "b"}}}, MERGE)
        ours = "/metadata/labels/cmk.intel.com~1cmk-node"
        assert patch("add", ours, "true") == ""
        assert member(node.client.call("GET", NODE), "metadata", "labels", "cmk.intel.com/cmk-node") == "true"
        assert patch("remove", ours) == ""
        for op, path in (
            ("add", "/metadata/labels/node-role.kubernetes.io~1control-plane"),
            ("replace", f"/metadata/labels/{GROUP.replace('/', '~1')}"),
            ("add", "/spec/taints/0"),
            ("move", ours),
            ("add", "/metadata/labels/cmk.intel.com/x"),
            ("add", "/metadata/annotations/evil-cmk.intel.com~1x"),
        ):
            assert patch(op, path).startswith("patches[0]: "), path
        cores = {"cmk.intel.com/exclusive-cores": "4"}
        call("UpdateNodeCapacity", pb.UpdateNodeCapacityRequest(capacities=cores).SerializeToString())
        assert member(node.client.call("GET", NODE), "status", "capacity") == cores
        for name, amount in (("cpu", "64"), ("cmk.intel.com/exclusive-cores", "many"), ("nvidia.com/gpu", "8")):
            with pytest.raises(grpc.RpcError):
                call("UpdateNodeCapacity", pb.UpdateNodeCapacityRequest(capacities={name: amount}).SerializeToString())
        assert member(node.client.call("GET", NODE), "metadata", "labels") == {"a": "b"}


CORES, CMK_LABEL = "cmk.intel.com/exclusive-cores", "cmk.intel.com/cmk-node"
POOLS = """Active: static-pools
static-pools:
  LabelNode: true
  TaintNode: true
  pools:
    exclusive: {exclusive: true, cpuLists: [{Socket: 0, Cpuset: "1"}]}
    shared: {cpuLists: [{Socket: 0, Cpuset: "0"}]}
"""


def test_static_pools_are_on_the_node_and_taken_back_with_the_policy(node: Node) -> None:
    own: Record = {"key": "own", "value": "x", "effect": "NoSchedule"}
    node.client.call("PATCH", NODE, {"spec": {"taints": [own]}, "metadata": {"labels": {"own": "x"}}}, MERGE)

    def marks() -> tuple[object, ...]:
        found = node.client.call("GET", NODE)
        taints = member(found, "spec", "taints")
        assert isinstance(taints, list)
        assert own in taints
        assert member(found, "metadata", "labels", "own") == "x"
        label = member(found, "metadata", "labels", CMK_LABEL)
        return member(found, "status", "capacity", CORES), label, [one for one in taints if one != own]

    cmk = {"key": "cmk", "value": "true", "effect": "NoSchedule"}
    published: tuple[object, ...] = ("1", "true", [cmk])
    with node.relay.running():
        with node.agent():
            node.put(DEFAULT, {"policy": POOLS})
            node.has("static-pools")
            until(lambda: marks() == published, f"the pools on the node; the agent says {node.log()}")
            node.client.call("PATCH", f"{NODE}/status", {"status": {"capacity": {CORES: "0"}}}, MERGE)
            node.client.call(
                "PATCH", NODE, {"metadata": {"labels": {CMK_LABEL: None}}, "spec": {"taints": [own]}}, MERGE
            )
            until(lambda: marks() == published, f"the pools again; the agent says {node.log()}")
            node.put(DEFAULT, {"policy": POOLS.replace("Cpuset", "Cpset")})
            until(lambda: node.probe("-query", "config-status")[0] == 1, "the refusal")
            assert marks() == published, "the last good configuration is in force"
            node.put(DEFAULT, {"policy": POOLS.replace("Node: true", "Node: false")})
            until(lambda: marks() == ("1", None, []), f"label and taint are gone; the agent says {node.log()}")
            node.put(DEFAULT, {"policy": POOLS})
            until(lambda: marks() == published, "label and taint again")
        node.put(DEFAULT, policy("static"))
        with node.agent():
            until(lambda: marks() == (None, None, []), f"nothing of it; the agent says {node.log()}")
            node.client.call("PATCH", f"{NODE}/status", {"status": {"capacity": {CORES: "8"}}}, MERGE)
            node.put(DEFAULT, policy("static-plus"))
            node.has("static-plus")
            assert marks() == ("8", None, []), "what another put there stays"


def refused(client: KubeClient, node: str) -> list[str]:
    changes: tuple[tuple[str, Record], ...] = (
        ("", {"metadata": {"labels": {"changed": "yes"}}}),
        ("", {"spec": {"taints": []}}),
        ("/status", {"status": {"capacity": {CORES: "3"}}}),
    )
    return [refusal(client, "PATCH", f"{NODES}/{node}{below}?dryRun=All", body, MERGE) for below, body in changes]


def test_an_agent_changes_its_own_node_only_and_everybody_else_changes_what_they_may(cluster: Joined) -> None:
    client, none = cluster.client, ["", "", ""]
    second = client.call("POST", NODES, {"metadata": {"name": "node-2"}})
    other = cluster.user(token_of(client, ACCOUNT, pod_on(client, "node-2", ACCOUNT)))
    until(lambda: all(refused(other, "node-1")), "the policy is in force")
    for said in refused(other, "node-1"):
        assert said.startswith("403 ")
        assert "is on the node 'node-2' and changes its own Node only, not 'node-1'" in said
    assert refused(other, "node-2") == none
    of_node = cluster.user(token_of(client, ACCOUNT, second))
    assert (all(refused(of_node, "node-1")), refused(of_node, "node-2")) == (True, none)
    unbound = cluster.user(token_of(client, ACCOUNT))
    for said in (*refused(unbound, "node-1"), *refused(unbound, "node-2")):
        assert "names no node" in said
        assert "--bound-object-kind Node" in said
    client.call("POST", f"{SYSTEM}/serviceaccounts", {"metadata": {"name": "node-controller"}})
    for changer in (client, cluster.user(token_of(client, "kube-system/node-controller"))):
        assert (refused(changer, "node-1"), refused(changer, "node-2")) == (none, none)
    kubelet = cluster.user(cluster.server.node_token)
    assert [refused(kubelet, "node-1")[i] for i in (0, 2)] == ["", ""], "kubelet sets no taints of a node that is there"
