"""The whole daemon beside a real kube-apiserver and NFD's double: Kata's number follows what the kernel's counters say.

The kernel is a double; pods, their RuntimeClass with its overhead, and NFD's objects are the API server's own. The
account has the rights of deploy/node/rbac.yaml and nfd.yaml.
"""

import asyncio
import re
import subprocess
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from nodeward.core.finding import Finding
from nodeward.core.modes import Mode
from nodeward.features.keys.effects import nfd_object
from nodeward.features.keys.findings import KeyFacts, keys
from nodeward.features.keys.settings import KeyKind, KeysSettings, Publisher, Share
from nodeward.features.settings import Settings
from nodeward.host.clock import SystemClock
from nodeward.neighbours.sockets.kube_http import KubeHttp, Waits
from nodeward.people.doctor import cluster as doctor
from nodeward.people.rows import NodeView
from nodeward.programs.once.uninstall import uninstall
from nodeward_sim.doubles.nfd import KATA_RULE, NfdMaster
from tests.component.daemon.rig import ROOT, Rig, rig
from tests.component.daemon.test_keys import VM, begin_machine, until_keys
from tests.peers.daemon import NODEWARD
from tests.real.nfd_cluster import API, KEYS, WITHIN_S, Cluster, capacity, installed, master, running_cluster
from tests.rigs.cluster import PODS
from tests.told import tell

OURS = "devices.kubevirt.io/tdx"


async def until_written(cluster: Cluster, number: str) -> None:
    async with asyncio.timeout(WITHIN_S):
        while await cluster.numbers() != {"tdx.total_keys": number}:
            await asyncio.sleep(0.05)


async def decommission(node: Rig) -> str:
    command = (NODEWARD, "uninstall", "--keys", "--yes", "--socket", str(node.folder / "run" / "nodeward.sock"))
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=WITHIN_S, check=True
    )
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


async def test_katas_number_follows_the_kernel_through_restarts_until_it_is_taken_back(tmp_path: Path) -> None:
    with running_cluster() as cluster:
        await follow(cluster, tmp_path)


def joined(cluster: Cluster, folder: Path, settings: Settings) -> Settings:
    return replace(settings, kube=cluster.section(folder), node_name=cluster.node)


async def follow(cluster: Cluster, tmp_path: Path) -> None:
    def shared(settings: Settings) -> Settings:
        rows = {"tdx": KeyKind((OURS, KEYS), publish=OURS, share=Share.OVERRIDE)}
        return replace(joined(cluster, tmp_path, settings), keys=KeysSettings(Mode.ENFORCE, rows))

    async def said(node: Rig, number: str) -> None:
        await until_written(cluster, number)
        shown = await until_keys(node, f"NFD's number is to be {number}, and our object says {number}")
        assert "share is override: we offer nothing" in shown

    async def seen_by_doctor() -> str:
        return (await asyncio.to_thread(doctor.api, node.settings, {}, SystemClock())).our_object

    await pods(cluster)
    async with installed(cluster), master(cluster) as nfd, rig(tmp_path, change=shared) as node:
        node.kernel.set_capacity("tdx", 16)
        await said(node, "15")
        begin_machine(node, "tdx", 3)
        await said(node, "12")
        await nfd.reconcile(cluster.node)
        assert (await capacity(cluster))[KEYS] == "12"
        before = await cluster.version()
        await node.stop()
        await node.start()
        await until_keys(node, "NFD's number is to be 12, and our object says 12")
        assert await cluster.version() == before
        node.kernel.uncharge(f"{ROOT}{VM}", "tdx", 3)
        await said(node, "15")
        assert await cluster.version() != before
        assert "zzz-nodeward-node-1 is deleted" in await decommission(node)
        await asyncio.sleep(2.5)  # two rounds: it stays away
        assert await cluster.find(cluster.ours) is None
        await node.stop()
        await node.start()
        await said(node, "15")
        await node.stop()
        (tmp_path / "token").write_text(cluster.server.token)
        left, remove = f"nodeward/zzz-nodeward-{cluster.node}", partial(nfd_object.remove, node.settings, {})
        assert await seen_by_doctor() == left
        done = await asyncio.to_thread(uninstall, node.settings, node.kernel, {"nfd": remove})
        assert (done.failed, [one for one in done.done if "NodeFeature" in one]) == (
            (),
            [f"NodeFeature {left}: deleted"],
        )
        assert (await seen_by_doctor(), await asyncio.to_thread(remove, left)) == ("", "is gone already")
        await nfd.reconcile(cluster.node)
        assert (await capacity(cluster))[KEYS] == "16"
        await node.start()


SPLIT, FOREIGN = 8, 3
SELLS = {"own": 12, "override": 12, "split": 8, "shared": None}
NUMBER = {"own": None, "override": 13, "split": 5, "shared": 12}
"""With `shared` our VM's pod counts by its spec, since kubelet gives out none of our ids."""
ALONE = "NFD's number is left alone"
RULES = f"{API}/nodefeaturerules"


@dataclass(slots=True)
class Table:
    """A daemon that is started with each mode in turn, on a node with 16 keys, of which a Kata pod asks for one by
    NFD's number and machines outside hold three."""

    cluster: Cluster
    node: Rig

    def chooses(self, share: Share) -> None:
        row = KeyKind((OURS, KEYS), publisher=Publisher.DEVICE_PLUGIN, publish=OURS, share=share, split=SPLIT)
        self.node.settings = replace(self.node.settings, keys=KeysSettings(Mode.ENFORCE, {"tdx": row}))

    async def says(self, share: Share, mode: str, *, writes: bool) -> None:
        sells, number = SELLS[mode], NUMBER[mode]
        ours = f"our plugin offers {OURS} and may sell {sells} more" if sells is not None else "we offer nothing"
        said = number if writes else "nothing yet"
        theirs = f"NFD's number is to be {number}, and our object says {said}" if number else ALONE
        chosen = "" if share.value == mode else f" (chosen: {share.value})"
        sentence = f"share is {mode}{chosen}: {ours}; {theirs}, and pods here ask 1 by it"
        await until_keys(self.node, sentence)

    async def found(self) -> dict[str, Finding]:
        view = msgspec.convert(await self.node.ask(), NodeView)
        api = await asyncio.to_thread(doctor.api, self.node.settings, {}, SystemClock())
        facts = KeyFacts(view.keys, api.our_object, on_node=api.on_node, left_by_nfd=api.left_by_nfd)
        return {one.code: one for one in keys(facts)}

    async def until_ours(self, *, there: bool) -> None:
        async with asyncio.timeout(WITHIN_S):
            while (await self.cluster.find(self.cluster.ours) is not None) is not there:
                await asyncio.sleep(0.1)

    async def row(self, when: str, share: Share, nfd: NfdMaster | None) -> str:
        """The mode's row as all of them say, after a start; NFD's number on the node then."""
        self.chooses(share)
        await self.node.stop()
        await self.node.start()
        mode = "own" if share is Share.AUTO and nfd is None else "override" if share is Share.AUTO else share.value
        await self.says(share, mode, writes=nfd is not None)
        needs = share in (Share.OVERRIDE, Share.SPLIT, Share.SHARED)
        if nfd is not None:
            await self.until_ours(there=NUMBER[mode] is not None)
            await nfd.reconcile(self.cluster.node)
        number = (await capacity(self.cluster)).get(KEYS, "absent")
        found = await self.found()
        assert ("keys-nfd-away" in found) is (nfd is None and needs)
        assert ("keys-nfd-left" in found) is (nfd is None and number != "absent")
        sells = "nothing" if SELLS[mode] is None else f"{SELLS[mode]} more"
        tell(f"{when} NFD, share {share.value}: in force {mode}; our plugin may sell {sells}; NFD's number {number}")
        return number


async def test_each_mode_before_with_and_after_nfd_and_kata(tmp_path: Path) -> None:
    with running_cluster() as cluster:
        await before_with_and_after(cluster, tmp_path)


async def before_with_and_after(cluster: Cluster, tmp_path: Path) -> None:
    await pods(cluster)
    async with master(cluster) as nfd, rig(tmp_path, change=partial(joined, cluster, tmp_path)) as node:
        node.kernel.set_capacity("tdx", 16)
        begin_machine(node, "tdx", FOREIGN)
        table = Table(cluster, node)
        assert [await table.row("before", share, None) for share in Share] == ["absent"] * len(Share)
        async with installed(cluster):
            await table.says(Share.AUTO, "override", writes=True)  # live, after 30 s at most
            assert [await table.row("with", share, nfd) for share in Share] == ["16", "13", "5", "12", "13"]
            await kata_removed(table, nfd)
        await table.says(Share.AUTO, "own", writes=False)
        after = (Share.AUTO, Share.OVERRIDE, Share.OWN)
        assert [await table.row("after", share, None) for share in after] == ["13"] * len(after)
        await taken_out(table, nfd.http)


async def kata_removed(table: Table, nfd: NfdMaster) -> None:
    """Given Kata's pod that runs, when Kata goes with its rule and RuntimeClass while NFD stays, then the node lacks
    the number; the pod is counted, our object stands, and doctor warns of kubelet's next start, until Kata is back."""
    cluster, node = table.cluster, table.node
    rule = f"{RULES}/kata-tee-keys"
    await cluster.call("DELETE", rule)
    await cluster.call("DELETE", "/apis/node.k8s.io/v1/runtimeclasses/kata")
    await nfd.reconcile(cluster.node)
    assert KEYS not in await capacity(cluster)
    finding = (await table.found())["keys-nfd-unruled"]
    assert "by which pods here ask 1: kubelet's next start ends those that ask by their overhead" in finding.what
    tell(f"Kata removed, NFD stays: the node lacks {KEYS}, our object says 13; doctor: {finding.what}")
    node.kernel.charge(f"{ROOT}{VM}", "tdx", 1)
    await until_written(cluster, "12")
    assert "default/kata: promised 1" in await until_keys(node, "NFD's number is to be 12, and our object says 12")
    node.kernel.uncharge(f"{ROOT}{VM}", "tdx", 1)
    await until_written(cluster, "13")
    await cluster.call("POST", RULES, KATA_RULE)
    await nfd.reconcile(cluster.node)
    assert (await capacity(cluster))[KEYS] == "13"
    assert "keys-nfd-unruled" not in await table.found()


async def taken_out(table: Table, administrator: KubeHttp) -> None:
    """Given a number on the node that NFD left there, when somebody does what doctor says, it is gone, and so is the
    finding."""
    finding = (await table.found())["keys-nfd-left"]
    tell(f"NFD gone, share own: doctor: {finding.what}. {finding.remedy}")
    assert f"the node has {KEYS} 13, which Node Feature Discovery put there" in finding.what
    (patch,) = re.findall(r"-p '(.+)'", finding.remedy)
    path = f"/api/v1/nodes/{table.cluster.node}/status"
    await administrator.send("PATCH", path, patch.encode(), "application/json-patch+json", waits=Waits())
    assert KEYS not in await capacity(table.cluster)
    assert "keys-nfd-left" not in await table.found()
