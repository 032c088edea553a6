"""KubeVirt's labels of a node on a real kube-apiserver: there while VMs would have whole CPUs of their own, never else.

The account has the rights of deploy/node/rbac.yaml and kubevirt-label.yaml. The test writes what KubeVirt's
virt-handler writes. The kernel and the runtime are doubles.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from nodeward.features.cpus.effects.kubevirt_label import NONE, remove
from nodeward.features.cpus.settings import Amount, AmountKind, CpusSettings, PolicySettings
from nodeward.features.settings import Settings
from nodeward.programs.once.uninstall import uninstall
from nodeward_sim.doubles.cpus import Plan
from tests.component.daemon.rig import Rig, rig
from tests.patience import scaled
from tests.peers.kubeclient import STRATEGIC
from tests.peers.nriside import Json, Record, member
from tests.rigs import cluster as rigs
from tests.rigs.cluster import Cluster
from tests.told import tell

LABELS = ("cpumanager", "kubevirt.io/cpumanager")
WITHIN_S = scaled(60.0)


@pytest.fixture(name="cluster", scope="module")
def _cluster() -> Iterator[Cluster]:
    with rigs.running_cluster() as found:
        labels: Record = {"kubernetes.io/hostname": "node-1"}  # of a node without any, there are no managedFields
        found.client.call("POST", rigs.NODES, {"metadata": {"name": "node-1", "labels": labels}})
        rigs.allow(found.client, "somebody", "node/rbac.yaml", "node/kubevirt-label.yaml")
        yield found


def values(cluster: Cluster) -> list[Json]:
    found = member(cluster.client.call("GET", "/api/v1/nodes/node-1"), "metadata", "labels") or {}
    assert isinstance(found, dict)
    return [found.get(name) for name in LABELS]


async def until_labels(cluster: Cluster, value: str | None) -> None:
    found: list[Json] = []
    try:
        async with asyncio.timeout(WITHIN_S):
            while (found := await asyncio.to_thread(values, cluster)) != [value, value]:
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"the labels are {found}, not {value}") from None


async def writes(cluster: Cluster, value: str, by: str = "virt-handler") -> None:
    """As virt-handler does it, which writes "false" where kubelet's policy is not static; or as somebody else."""
    body: Record = {"metadata": {"labels": dict.fromkeys(LABELS, value)}}
    path = f"/api/v1/nodes/node-1?fieldManager={by}"
    await asyncio.to_thread(cluster.client.call, "PATCH", path, body, STRATEGIC)


async def until_detail(node: Rig, text: str) -> None:
    wanted = {"name": "kubevirt-label", "detail": text}
    await node.until(lambda view: any(row.items() >= wanted.items() for row in view.get("components", ())))


async def test_the_labels_are_there_while_vms_get_whole_cpus_whatever_kubevirt_writes(
    tmp_path: Path, cluster: Cluster
) -> None:
    """Put back after each of virt-handler's writes; gone at the end, where the setting is off, and by uninstall."""
    section = cluster.section(tmp_path)

    def by(policy: str, settings: Settings) -> Settings:
        rules = PolicySettings(policy, reserved=Amount(AmountKind.CPUSET, 1))
        labels = CpusSettings(kubevirt_label=True)
        return replace(settings, kube=section, policy=rules, cpus=labels, node_name="node-1")

    async with rig(tmp_path, change=partial(by, "static"), machine=Plan(sockets=1, nodes=1)) as node:
        await until_labels(cluster, "true")
        for _ in range(3):
            began = time.monotonic()
            await writes(cluster, "false")
            await until_labels(cluster, "true")
            tell(f"put back {time.monotonic() - began:.1f} s after virt-handler")
        await until_detail(node, "written")

        await node.stop()
        assert values(cluster) == [None, None], "taken away at the end"
        await writes(cluster, "false")
        node.settings = by("none", node.settings)
        await node.start()
        await until_detail(node, NONE)
        assert values(cluster) == ["false", "false"], "what KubeVirt has written stays"

        await node.stop()
        node.settings = by("topology-aware", node.settings)
        await node.start()
        await until_labels(cluster, "true")

        await node.stop()
        await writes(cluster, "true", by="nodeward")  # as one that was killed leaves it
        node.settings = replace(node.settings, cpus=CpusSettings())
        await node.start()
        await until_labels(cluster, None)

        await node.stop()
        await writes(cluster, "true", by="nodeward")
        removals = {"kubevirt": partial(remove, node.settings, {})}
        done = await asyncio.to_thread(uninstall, node.settings, node.kernel, removals)
        assert "the label cpumanager of the node node-1: taken away" in done.done
        assert values(cluster) == [None, None]
