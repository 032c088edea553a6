"""A node's NodeResourceTopology object on a real kube-apiserver: what it says, and that nobody's harm to it lasts.

The definition is of our own making (topology_crd.yaml); the account has the rights of deploy/node/rbac.yaml and
topology-objects.yaml. The kernel and the runtime are doubles.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nodeward.features.cpus.effects.topology_object import remove
from nodeward.features.settings import Settings, TopologyObjectsSection
from nodeward.programs.once.uninstall import uninstall
from nodeward_sim.doubles.cpus import Plan
from tests.component.daemon.rig import Rig, rig
from tests.component.daemon.test_balloons import by_balloons, runs
from tests.patience import scaled
from tests.peers.kubeclient import MERGE
from tests.peers.nriside import Json, Record, member
from tests.real.test_nfd_daemon import decommission
from tests.rigs import cluster as rigs
from tests.rigs.cluster import part

OBJECTS = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
WITHIN_S = scaled(60.0)


@dataclass(frozen=True, slots=True)
class Cluster(rigs.Cluster):
    @property
    def path(self) -> str:
        return f"{OBJECTS}/{self.server.node}"

    async def call(self, verb: str, path: str, body: Record | None = None, kind: str = "application/json") -> Record:
        return await asyncio.to_thread(self.client.call, verb, path, body, kind)

    async def found(self) -> Record | None:
        return await asyncio.to_thread(self.client.find, self.path)

    async def until(self, holds: Callable[[Record], bool], what: str) -> Record:
        found: Record | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(WITHIN_S):
                while not ((found := await self.found()) and holds(found)):
                    await asyncio.sleep(0.05)
                return found
        raise AssertionError(f"not within {WITHIN_S:g} s: {what}; the object is {found}")

    async def edit(self, body: Record) -> None:
        await self.call("PATCH", self.path, body, MERGE)


@pytest.fixture(name="cluster", scope="module")
def _cluster() -> Iterator[Cluster]:
    with rigs.running_cluster("node-1") as found:
        rigs.allow(found.client, "somebody", "node/rbac.yaml", "node/topology-objects.yaml")
        yield Cluster(found.server, found.client)


def zones_of(found: Record) -> dict[str, Record]:
    return {str(zone["name"]): zone for zone in rigs.listed(found["zones"])}


def available(found: Record) -> dict[str, Json]:
    amounts = {name: zone["resources"] for name, zone in zones_of(found).items()}
    return {name: part(of[0])["available"] for name, of in amounts.items() if isinstance(of, list)}


def uid(found: Record) -> object:
    return member(found, "metadata", "uid")


async def until_detail(node: Rig, text: str) -> None:
    def says(view: dict[str, Any]) -> bool:
        return any(row["name"] == "topology-object" and text in row["detail"] for row in view.get("components", ()))

    await node.until(says)


async def test_the_object_follows_the_cpus_whatever_others_do_to_it(tmp_path: Path, cluster: Cluster) -> None:
    """No definition, then one; containers come; deleted, edited, somebody else's; decommissioned, uninstalled."""
    server = cluster.server

    def joins(settings: Settings) -> Settings:
        kube = cluster.section(tmp_path)
        told = TopologyObjectsSection(enabled=True)
        return replace(by_balloons(settings), kube=kube, topology_objects=told, node_name=server.node)

    async with rig(tmp_path, change=joins, machine=Plan(sockets=1, nodes=2)) as node:
        await until_detail(node, "NodeResourceTopology objects are not served")
        await asyncio.to_thread(rigs.define, cluster.client, "topology_crd.yaml")
        made = await cluster.until(lambda found: True, "it is made")
        machine = {"socket #0": "15", "node-0": "7", "node-1": "8"}
        assert available(made) == {**machine, "reserved": "16", "default[0]": "15"}
        costs = [{"name": "node-0", "value": 10}, {"name": "node-1", "value": 12}]
        node_0 = zones_of(made)["node-0"]
        assert (node_0["type"], node_0["parent"], node_0["costs"]) == ("Node", "socket #0", costs)
        assert made["attributes"] == [{"name": "TopologyPolicy", "value": "balloons"}]
        assert f"'name': '{server.node}'" in str(member(made, "metadata", "ownerReferences"))

        began, before = time.monotonic(), member(made, "metadata", "generation")
        for number in range(12):
            await runs(node, f"w{number}", "web", 1000)
        full = await cluster.until(lambda found: available(found)["socket #0"] == "3", "it follows")
        writes = int(str(member(full, "metadata", "generation"))) - int(str(before))
        assert 1 <= writes <= time.monotonic() - began + 1

        await cluster.call("DELETE", cluster.path)
        again = await cluster.until(lambda found: uid(found) != uid(made), "it is made again")
        assert available(again) == available(full)

        await cluster.edit({"zones": [{"name": "mine", "type": "Node"}]})
        await cluster.until(lambda found: found["zones"] == full["zones"], "it is put back")
        await until_detail(node, "is written by")

        await node.stop()
        await cluster.edit({"metadata": {"labels": None}, "zones": []})
        await node.start()
        await until_detail(node, "is not ours")
        assert (await cluster.found() or {})["zones"] == []
        await cluster.call("DELETE", cluster.path)
        await cluster.until(lambda found: available(found).get("socket #0") == "3", "it is made, the other one gone")

        said = await decommission(node)
        assert f"NodeResourceTopology {server.node} is deleted" in said
        await node.stop()
        assert await cluster.found() is None

        await node.start()
        await cluster.until(lambda found: True, "a new life makes it")
        await node.stop()
        removals = {"nrt": partial(remove, node.settings, {})}
        done = await asyncio.to_thread(uninstall, node.settings, node.kernel, removals)
        assert f"NodeResourceTopology {server.node}: deleted" in done.done
        await node.start()
