"""BalloonsPolicy objects of a real kube-apiserver: which one holds on a node, what its status says, who runs where.

The definitions are of our own making (config_nri_crds.yaml); the account has the rights of deploy/node/rbac.yaml and
policy-objects.yaml. The kernel and the runtime are doubles, but for the daemon that is a process of its own.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from nodeward.features.settings import PolicyObjectsSection, Settings
from nodeward_sim.doubles.cpus import Plan
from tests.component.daemon.rig import rig
from tests.component.daemon.test_balloons import cpus, runs
from tests.component.kubernetes.support import until as until_so
from tests.patience import scaled
from tests.peers.daemon import daemon, until
from tests.peers.kubeclient import MERGE, ApiError, KubeClient
from tests.peers.nriside import Record, member
from tests.rigs import cluster as rigs
from tests.rigs.cluster import Way, allow, define, way_to

WITHIN_S = scaled(60.0)
API = "/apis/config.nri/v1alpha1/namespaces/kube-system"
BALLOONS, TOPOLOGY = f"{API}/balloonspolicies", f"{API}/topologyawarepolicies"
SPEC: Record = {
    "reservedResources": {"cpu": "cpuset:0"},
    "pinCPU": True,
    "pinMemory": False,
    "idleCPUClass": "idle",
    "reservedPoolNamespaces": ["monitoring"],
    "balloonTypes": [
        {"name": "dedicated", "namespaces": ["web-*"], "minCPUs": 2, "maxCPUs": 4, "preferNewBalloons": True},
        {"name": "batch", "namespaces": ["batch"], "minBalloons": 1, "shareIdleCPUsInSame": "numa"},
    ],
    "log": {"debug": ["policy"]},
    "instrumentation": {"httpEndpoint": ":8891"},
    "agent": {"nodeResourceTopology": True},
    "control": {"rdt": {"enable": False}},
}
"""As pages of nri-plugins configure balloons."""


def spec(most: int) -> Record:
    kinds = yaml.safe_load(yaml.safe_dump(SPEC["balloonTypes"]))
    kinds[0]["maxCPUs"] = most
    return {**SPEC, "balloonTypes": kinds}


@dataclass(frozen=True, slots=True)
class Cluster(rigs.Cluster):
    async def put(self, name: str, body: Record, kinds: str = BALLOONS) -> None:
        kind = {BALLOONS: "BalloonsPolicy", TOPOLOGY: "TopologyAwarePolicy"}[kinds]
        whole: Record = {"apiVersion": "config.nri/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": body}

        def done() -> None:
            if self.client.find(f"{kinds}/{name}") is None:
                self.client.call("POST", kinds, whole)
            else:
                self.client.call("PATCH", f"{kinds}/{name}", {"spec": body}, MERGE)

        await asyncio.to_thread(done)

    async def remove(self, name: str, kinds: str = BALLOONS) -> None:
        with suppress(ApiError):
            await asyncio.to_thread(self.client.call, "DELETE", f"{kinds}/{name}")

    async def move(self, group: str | None) -> None:
        body: Record = {"metadata": {"labels": {"config.nri/group": group}}}
        await asyncio.to_thread(self.client.call, "PATCH", f"/api/v1/nodes/{self.server.node}", body, MERGE)

    def says(self, name: str, kinds: str = BALLOONS) -> Record:
        try:
            found = self.client.call("GET", f"{kinds}/{name}")
            one = member(found, "status", "nodes", self.server.node)
        except (KeyError, AssertionError, ApiError):
            return {}
        return one if isinstance(one, dict) else {}

    async def until_said(self, name: str, status: str, generation: int, kinds: str = BALLOONS) -> Record:
        async with asyncio.timeout(WITHIN_S):
            while True:
                found = await asyncio.to_thread(self.says, name, kinds)
                if (found.get("status"), found.get("generation")) == (status, generation):
                    return found
                await asyncio.sleep(0.05)

    async def until_silent(self, name: str) -> None:
        async with asyncio.timeout(WITHIN_S):
            while await asyncio.to_thread(self.says, name):
                await asyncio.sleep(0.05)


def install(client: KubeClient) -> None:
    """The kinds, once they are served, and our rights."""
    allow(client, "somebody", "node/rbac.yaml", "node/policy-objects.yaml")
    define(client, "config_nri_crds.yaml")


@pytest.fixture(name="cluster", scope="module")
def _cluster() -> Iterator[Cluster]:
    with rigs.running_cluster("node-1") as found:
        install(found.client)
        yield Cluster(found.server, found.client)


@pytest.fixture
def way(cluster: Cluster) -> Iterator[Way]:
    with way_to(cluster.server) as found:
        yield found


async def test_an_object_is_in_force_until_it_is_gone_and_a_broken_one_never(
    tmp_path: Path, cluster: Cluster, way: Way
) -> None:
    def joins(settings: Settings) -> Settings:
        objects = PolicyObjectsSection(enabled=True)
        kube = cluster.section(tmp_path, f"https://127.0.0.1:{way.port}")
        return replace(settings, kube=kube, policy_objects=objects, node_name=cluster.server.node)

    async with rig(tmp_path, change=joins, machine=Plan(sockets=1, nodes=1)) as node:

        async def until_cpus(wanted: dict[str, str]) -> None:
            await until_so(lambda: {one: cpus(node, one) for one in wanted} == wanted, f"the CPUs are {wanted}")

        await cluster.put("default", SPEC)
        assert "errors" not in await cluster.until_said("default", "Success", 1)
        web, batch = await runs(node, "w", "web-a", 3000), await runs(node, "b", "batch", 1000)
        system = await runs(node, "s", "monitoring", 100)
        held = {one: cpus(node, one) for one in (web, batch, system)}
        assert held == {web: "1,4-5", batch: "2-3,6-7", system: "0"}

        await cluster.put("default", spec(1))
        errors = str((await cluster.until_said("default", "Failure", 2))["errors"])
        assert "spec.balloonTypes[0].minCPUs: 2 is more than maxCPUs, which is 1" in errors
        assert {one: cpus(node, one) for one in held} == held
        settings = (await node.ask())["settings"]
        assert isinstance(settings, dict)
        assert settings["policy_object"] == "BalloonsPolicy kube-system/default, generation 1"
        assert settings["policy_object_faults"] == [errors]

        await node.stop()
        await node.start()
        await cluster.until_said("default", "Failure", 2)
        assert {one: cpus(node, one) for one in held} == held

        await cluster.put("default", {**SPEC, "reservedResources": {"cpu": "cpuset:0,99"}})
        assert "99" in str((await cluster.until_said("default", "Failure", 3))["errors"])
        assert {one: cpus(node, one) for one in held} == held

        way.cut()
        await cluster.put("group.fast", {**SPEC, "balloonTypes": []})
        await cluster.move("fast")
        await cluster.until_said("group.fast", "Success", 1)
        await cluster.until_silent("default")
        await until_cpus({system: "0", web: cpus(node, batch)})  # all in the default balloon
        await cluster.put(f"node.{cluster.server.node}", SPEC)
        await cluster.until_said(f"node.{cluster.server.node}", "Success", 1)
        await cluster.until_silent("group.fast")
        await cluster.remove(f"node.{cluster.server.node}")
        await cluster.until_said("group.fast", "Success", 1)

        await cluster.move(None)
        tree: Record = {"reservedResources": {"cpu": "cpuset:0"}, "reservedPoolNamespaces": ["monitoring"]}
        await cluster.put("default", SPEC)
        await cluster.put("default", tree, TOPOLOGY)
        await cluster.until_said("default", "Success", 4)  # of one name, BalloonsPolicy counts
        settings = (await node.ask())["settings"]
        assert isinstance(settings, dict)
        assert settings["policy_object"] == "BalloonsPolicy kube-system/default, generation 4"
        assert not cluster.says("default", TOPOLOGY)
        await cluster.put("default", {**tree, "unlimitedBurstable": "rack"}, TOPOLOGY)
        await cluster.remove("default")
        errors = str((await cluster.until_said("default", "Failure", 2, TOPOLOGY))["errors"])
        assert "spec.unlimitedBurstable: 'rack' is not allowed; one of system, package" in errors
        await cluster.put("default", {**tree, "unlimitedBurstable": "package"}, TOPOLOGY)
        await cluster.until_said("default", "Success", 3, TOPOLOGY)
        await until_cpus({system: "0", web: "1-7", batch: "1-7"})
        await cluster.remove("default", TOPOLOGY)
        await until_cpus(dict.fromkeys(held, "0-7"))
        for name in ("default", "group.fast"):
            await cluster.remove(name)


def test_a_process_names_its_object_and_keeps_it_while_the_api_server_is_away(tmp_path: Path, cluster: Cluster) -> None:
    kube = cluster.section(tmp_path)
    asyncio.run(cluster.put("default", {"reservedResources": {"cpu": "1"}}))
    section = f"{{url: {{url}}, token_file: {kube.token_file}, ca_file: {kube.ca_file}, events: false}}"
    more = ("policy_objects: {enabled: true}", f"node_name: {cluster.server.node}")
    named = "the policy is by BalloonsPolicy kube-system/default, generation 1"
    here, nowhere = (section.replace("{url}", url) for url in (kube.url, "https://127.0.0.1:1"))
    with daemon(tmp_path / "nri.sock", tmp_path, *more, kube=here) as node:
        until(lambda: named in node.command("status").stdout, "the status names the object")
        assert node.process is not None
        until(lambda: (tmp_path / "state" / "policy-object.json").exists(), "the object is kept")
        node.process.terminate()
        node.process.wait(WITHIN_S)
        node.configure(*more, kube=nowhere)
        node.start()
        until(lambda: named in node.command("status").stdout, "the status names the object again")
        assert "not ready: policy-objects" in node.command("status").stdout
    asyncio.run(cluster.remove("default"))
