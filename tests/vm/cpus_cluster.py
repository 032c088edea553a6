"""The cases of a cluster's configuration on a node of eight CPUs: an object of a real kube-apiserver on the host's side
moves containers that run, as cgroup v2's `cpuset.cpus.effective` has it.

They run inside the guest, after those of `cpus_cases`: a ConfigMap by agent and relay, a BalloonsPolicy and a
TopologyAwarePolicy by NRI.
"""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeward.core import cpuset
from tests.peers.kubeclient import MERGE, KubeClient
from tests.peers.nriside import Json, Record, member
from tests.real.test_agent import MAPS, OWN, policy, put
from tests.real.test_policy_objects import BALLOONS, TOPOLOGY
from tests.vm.cpus_node import FOLDER, NAME, ByRelay, CpusNode, Pod
from tests.vm.forked import started
from tests.vm.inside import RUN_DIR, until

_ALL: Final = cpuset.parse("0-7")
_MOVES_WITHIN_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """The control plane as the guest reaches it."""

    url: str
    ca_file: Path
    token: str
    """An administrator's."""
    daemon_token: str
    kubeconfig: Path
    """The agent's."""

    def client(self) -> KubeClient:
        return KubeClient(self.url, self.ca_file, self.token)


def _two_pods(node: CpusNode) -> tuple[Pod, Pod]:
    """One that may have CPUs of its own, and one that shares; nobody else is there any more."""
    for pod in list(node.pods.values()):
        node.remove(pod)
    return node.stays("whole", "Guaranteed", 2000), node.stays("rest", "Burstable", 100)


def _until(pods: tuple[Pod, Pod], true: Callable[[int, int], bool], what: str) -> None:
    until(lambda: true(pods[0].runs_on(), pods[1].runs_on()), what, _MOVES_WITHIN_S)


def _for_both(pods: tuple[Pod, Pod]) -> None:
    _until(pods, lambda whole, rest: whole == rest == _ALL, "all CPUs for both")


def by_configmap(node: CpusNode, cluster: Cluster) -> None:
    """Given an agent and a relay without a policy, when the node's ConfigMap comes, changes and goes, then the
    containers' sets follow."""
    listens, client = FOLDER / "config.sock", cluster.client()
    node.decider.configure(f"agent: {{config_socket: {listens}}}")
    node.restart(signal.SIGTERM)
    flags = ["-kubeconfig", str(cluster.kubeconfig), "-cri-resmgr-socket", str(listens)]
    environment = {**os.environ, "NODE_NAME": NAME, "NODEWARD_KUBE__ENABLED": "true"}
    log = FOLDER / "agent.log"
    agent = started(["agent", *flags, "-agent-socket", str(RUN_DIR / "agent.sock")], log, environment)
    try:
        pods = _two_pods(node)
        _for_both(pods)
        put(client, OWN, policy("static"))
        _until(pods, lambda whole, rest: whole.bit_count() == 2 and rest == _ALL & ~whole, "static")
        put(client, OWN, {"policy": "Active: none\n"})
        _for_both(pods)
        put(client, OWN, policy("static-plus"))
        _until(pods, lambda whole, rest: whole.bit_count() == 2 and not whole & rest, "static-plus")
        client.call("DELETE", f"{MAPS}/{OWN}")
        _for_both(pods)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{log.read_text()}") from error
    finally:
        agent.send_signal(signal.SIGKILL)


def by_object(node: CpusNode, cluster: Cluster) -> None:
    """Given a daemon without a policy, when a BalloonsPolicy comes, changes and goes, then the containers' sets
    follow, and its status says so."""
    token, client = FOLDER / "daemon.token", cluster.client()
    token.write_text(cluster.daemon_token)
    os.environ["NODEWARD_KUBE__ENABLED"] = "true"
    kube = f'kube: {{url: "{cluster.url}", token_file: {token}, ca_file: {cluster.ca_file}, events: false}}'
    node.decider.configure(f"{kube}\npolicy_objects: {{enabled: true}}")
    node.restart(signal.SIGTERM)
    pods, path = _two_pods(node), f"{BALLOONS}/default"

    def body(each: int) -> Record:
        kinds: list[Json] = [
            {"name": "own", "namespaces": ["default"], "preferNewBalloons": True, "minCPUs": each, "maxCPUs": each}
        ]
        return {"reservedResources": {"cpu": "cpuset:0"}, "pinCPU": True, "balloonTypes": kinds}

    def parted(each: int) -> None:
        sizes = (each, each)
        _until(
            pods,
            lambda whole, rest: (whole.bit_count(), rest.bit_count()) == sizes and not whole & rest & 1,
            f"{each} CPUs in each balloon",
        )

    _for_both(pods)
    meta: Record = {"apiVersion": "config.nri/v1alpha1", "kind": "BalloonsPolicy", "metadata": {"name": "default"}}
    client.call("POST", BALLOONS, meta | {"spec": body(2)})
    parted(2)
    client.call("PATCH", path, {"spec": body(3)}, MERGE)
    parted(3)
    until(lambda: member(client.call("GET", path), "status", "nodes", NAME, "status") == "Success", "its status")
    client.call("DELETE", path)
    _for_both(pods)
    _by_tree(node, client, pods)


def _by_tree(node: CpusNode, client: KubeClient, pods: tuple[Pod, Pod]) -> None:
    """Given two sockets and a TopologyAwarePolicy, then one and a half CPUs are one that nobody else may use and the
    socket's others; and when the object changes, containers that run follow."""
    shares = _ALL & ~1
    meta: Record = {"apiVersion": "config.nri/v1alpha1", "kind": "TopologyAwarePolicy", "metadata": {"name": "default"}}
    spec: Record = {"reservedResources": {"cpu": "cpuset:0"}, "unlimitedBurstable": "system"}
    client.call("POST", TOPOLOGY, meta | {"spec": spec})
    _until(pods, lambda whole, rest: whole.bit_count() == 2 and rest == shares & ~whole, "two of its own")
    half = node.stays("half", "Guaranteed", 1500)
    _until(pods, lambda whole, rest: rest == shares & ~whole & ~(half.runs_on() & ~rest), "a third one is left")
    runs, whole, rest = half.runs_on(), pods[0].runs_on(), pods[1].runs_on()
    alone = runs & ~rest
    near = [one for one in (cpuset.parse("0-3"), cpuset.parse("4-7")) if not runs & ~one]
    told = ", ".join(map(cpuset.text, (runs, whole, rest)))
    assert (alone.bit_count(), alone & whole) == (1, 0), told
    assert [one & shares & ~whole for one in near] == [runs], told
    client.call("PATCH", f"{TOPOLOGY}/default", {"spec": {"preferSharedCPUs": True}}, MERGE)
    _until(pods, lambda whole, rest: rest == shares and whole in (near[0] & shares, _ALL & ~near[0] & shares), "shared")
    client.call("DELETE", f"{TOPOLOGY}/default")
    _for_both(pods)
    until(lambda: half.runs_on() == _ALL, "all CPUs for the third", _MOVES_WITHIN_S)


def by_cluster(node: CpusNode) -> None:
    """The one of both that the node's transport has, where there is a cluster."""
    if node.cluster:
        url, ca_file, token, daemon_token, kubeconfig = node.cluster
        cluster = Cluster(url, Path(ca_file), token, daemon_token, Path(kubeconfig))
        (by_configmap if isinstance(node.decider, ByRelay) else by_object)(node, cluster)
