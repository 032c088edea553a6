"""The whole daemon beside a real kube-apiserver and NFD's double: Kata's number follows what the kernel's counters say.

The kernel is a double; pods, their RuntimeClass with its overhead, and NFD's objects are the API server's own. The
account has the rights of deploy/node/rbac.yaml and nfd.yaml.
"""

from __future__ import annotations

import asyncio
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path

from nodeward.app import nfd_object
from nodeward.app.uninstall import uninstall
from nodeward.model.settings import KeySettings, KubeSection, LedgerSettings, Mode, Settings, Share
from tests.component.daemon.rig import ROOT, Rig, rig
from tests.component.daemon.test_keys import until_keys
from tests.peers.daemon import NODEWARD
from tests.peers.nriside import member
from tests.real.nfd_cluster import (
    KEYS,
    WITHIN_S,
    Cluster,
    capacity,
    installed,
    master,
    numbers_of,
    running_cluster,
)

OURS = "devices.kubevirt.io/tdx"
VM = f"{ROOT}/machine.slice/vm.scope"
PODS = "/api/v1/namespaces/default/pods"


async def until_written(cluster: Cluster, number: str) -> None:
    async with asyncio.timeout(WITHIN_S):
        while (found := await cluster.find(cluster.ours)) is None or numbers_of(found) != {"tdx.total_keys": number}:
            await asyncio.sleep(0.05)


async def decommission(node: Rig) -> str:
    """What the command prints."""
    command = (NODEWARD, "decommission", "--socket", str(node.folder / "run" / "nodeward.sock"))
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=True)
    return str(done.stdout)


async def pods(cluster: Cluster) -> None:
    """A Kata pod whose runtime class has a key in its overhead, and a launcher that asks by our name."""
    await cluster.call(
        "POST",
        "/apis/node.k8s.io/v1/runtimeclasses",
        {"metadata": {"name": "kata"}, "handler": "kata", "overhead": {"podFixed": {KEYS: "1"}}},
    )
    container = {"name": "c", "image": "none"}
    kata = {"nodeName": cluster.node, "runtimeClassName": "kata", "containers": [container]}
    await cluster.call("POST", PODS, {"metadata": {"name": "kata"}, "spec": kata})
    amounts = {"limits": {OURS: "1"}, "requests": {OURS: "1"}}
    vm = {"nodeName": cluster.node, "containers": [{**container, "resources": amounts}]}
    await cluster.call("POST", PODS, {"metadata": {"name": "vm"}, "spec": vm})


def test_katas_number_follows_the_kernel_through_restarts_until_it_is_taken_back(tmp_path: Path) -> None:
    """Given 16 keys, a Kata pod and a VM: 15 for Kata; three machines outside: 12; after them, and a restart in which
    the object is not touched: 15 again; after `nodeward uninstall`: 16."""
    with running_cluster() as cluster:
        follow(cluster, tmp_path)


def follow(cluster: Cluster, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(cluster.server.plain_token)

    def joined(settings: Settings) -> Settings:
        kube = KubeSection(
            url=cluster.server.base_url, token_file=str(token), ca_file=str(cluster.server.ca_file), events=False
        )
        rows = {"tdx": KeySettings((OURS, KEYS), publish=OURS, share=Share.OVERRIDE)}
        ledger = LedgerSettings(Mode.ENFORCE, rows)
        return replace(settings, kube=kube, node_name=cluster.node, ledger=ledger)

    async def version() -> object:
        return member(await cluster.call("GET", cluster.ours), "metadata", "resourceVersion")

    async def said(node: Rig, number: str) -> None:
        await until_written(cluster, number)
        shown = await until_keys(node, f"NFD's number is to be {number}, and our object says {number}")
        assert "share is override: we offer nothing" in shown

    async def story() -> None:
        await pods(cluster)
        async with installed(cluster), master(cluster) as nfd, rig(tmp_path, change=joined) as node:
            with node.files.lock:
                node.kernel.set_capacity("tdx", 16)
            await said(node, "15")
            with node.files.lock:
                node.kernel.make_cgroup(VM)
                node.kernel.write(f"{ROOT}/cgroup.subtree_control", b"+misc")
                node.kernel.write(f"{ROOT}/machine.slice/cgroup.subtree_control", b"+misc")
                node.kernel.charge(VM, "tdx", 3)
            await said(node, "12")
            await nfd.reconcile(cluster.node)
            assert (await capacity(cluster))[KEYS] == "12"
            before = await version()
            await node.stop()
            await node.start()
            await until_keys(node, "NFD's number is to be 12, and our object says 12")
            assert await version() == before
            with node.files.lock:
                node.kernel.uncharge(VM, "tdx", 3)
            await said(node, "15")
            assert await version() != before
            assert "zzz-nodeward-node-1 is deleted" in await decommission(node)
            await asyncio.sleep(2.5)  # two rounds: it stays away
            assert await cluster.find(cluster.ours) is None
            await node.stop()
            await node.start()
            await said(node, "15")
            await node.stop()
            token.write_text(cluster.server.token)
            remove = partial(nfd_object.remove, node.settings, {})
            done = await asyncio.to_thread(uninstall, node.settings, node.kernel, remove)
            assert (done.failed, [one for one in done.done if "NodeFeature" in one]) == (
                (),
                [f"NodeFeature nodeward/zzz-nodeward-{cluster.node}: deleted"],
            )
            await nfd.reconcile(cluster.node)
            assert (await capacity(cluster))[KEYS] == "16"
            await node.start()

    asyncio.run(story())
