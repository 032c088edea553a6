"""Our device plugin beside others who want its name: a plugin that registers later, ids that kubelet gave out for one,
numbers that somebody wrote into the node's status, and KubeVirt's own plugin.
"""

import asyncio
import socket
from pathlib import Path

import pytest

from nodeward.edges.kubelet import plugin
from nodeward.edges.kubelet.folder import Around, Folder
from nodeward.wire.kube_node import OnNode
from tests.component.kubelet.node import NOTHING, TDX, Life, Node, ids, played, until
from tests.peers.deviceplugin import running_plugin


@played()
async def test_a_rival_that_registers_later_has_the_name_until_it_ends(
    found: Node, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubelet goes on reading our list, so nothing but the checkpoint tells of it."""
    monkeypatch.setattr(plugin, "RIVAL_S", 0.5)
    life = found.live(ids(4))
    await found.becomes((4, 4))
    theirs = running_plugin(home / "device-plugins", TDX, ["tdx0", "tdx1"])
    await asyncio.to_thread(theirs.__enter__)
    await until(lambda: life.said.standing == "rival", "it yields")
    assert "tdx0, tdx1" in life.said.told[-1].why
    assert [name for name in found.sockets if name.startswith("nodeward")] == []
    await found.becomes((2, 2))
    await asyncio.to_thread(theirs.__exit__, None, None, None)
    await found.becomes((4, 4))
    assert [told.standing.value for told in life.said.told] == ["serving", "rival", "serving"]


@played()
async def test_a_rivals_id_that_a_pod_still_has_makes_no_rival_of_our_own_list(
    found: Node, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given the plugin of another resource, and an id on our list that kubelet gave a pod when a rival had the name,
    then what kubelet has registered is ours all the same: of our list, with and without other healthy ids, and of a
    life before this one."""
    monkeypatch.setattr(plugin, "RIVAL_S", 0.0)
    looks, around = list[str](), Folder.around

    def looked(self: Folder, own: str) -> Around:
        looks.append(own)
        return around(self, own)

    monkeypatch.setattr(Folder, "around", looked)

    async def looked_at(life: Life) -> None:
        before = len(looks)
        await until(lambda: len(looks) > before + 2, "it has looked again")
        assert [told.standing.value for told in life.said.told] == ["serving"]

    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(home / "device-plugins" / "other.sock"))
        other.listen()
        life = found.live([("tdx1", True), *ids(4)])
        await found.becomes((5, 5))
        await looked_at(life)
        await life.end()
        life = found.live([("tdx1", True), *ids(4, 1)])
        await found.becomes((5, 2))
        await looked_at(life)
        life.offer([("tdx1", True), *ids(4, 0)])
        await found.becomes((5, 1))
        await looked_at(life)


@played()
async def test_a_rival_is_seen_that_has_only_an_id_which_a_pod_still_has_of_it(
    found: Node, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an id on our list that kubelet gave a pod when a rival had the name, when the rival registers again with
    no other healthy one, then it has the name until it ends."""
    monkeypatch.setattr(plugin, "RIVAL_S", 0.2)
    monkeypatch.setattr(plugin, "SETTLED_S", 0.2)
    life = found.live([("tdx1", True), *ids(4)])
    await found.becomes((5, 5))
    theirs = running_plugin(home / "device-plugins", TDX, ["tdx1"])
    await asyncio.to_thread(theirs.__enter__)
    await until(lambda: life.said.standing == "rival", "it yields")
    assert "1 ids of another plugin's registered (tdx1)" in life.said.told[-1].why
    await found.becomes((1, 1))
    await asyncio.to_thread(theirs.__exit__, None, None, None)
    await found.becomes((5, 5))


@played()
async def test_the_nodes_status_is_read_before_each_kubelet_takes_us_and_not_while_it_has(
    found: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a name that somebody wrote into the status while kubelet was down, then we do not register it with the next
    one, until it is gone from there."""
    monkeypatch.setattr(plugin, "RIVAL_S", 0.3)
    monkeypatch.setattr(plugin, "NODE_S", 0.0)
    somebodys = OnNode(5, "nfd-master")
    life = found.live(ids(4), on_node=somebodys)
    await until(lambda: life.said.standing == "rival", "it yields")
    assert "5 of it, written there by 'nfd-master'" in life.said.told[-1].why
    life.on_node = OnNode(5, "kubelet", by_kubelet=True)
    await found.becomes((4, 4))
    life.on_node, reads = somebodys, life.reads
    await found.kubelet.drop(TDX)
    await found.becomes((4, 4))
    assert life.reads == reads, "nobody asks the API server where kubelet has taken us"
    await found.kubelet.kill()
    await found.kubelet.start()
    await until(lambda: life.said.standing == "rival", "it yields again")
    assert (life.reads > reads, found.kubelet.capacity(TDX)) == (True, (0, 0))
    life.on_node = NOTHING
    await found.becomes((4, 4))


@played()
async def test_our_own_number_in_the_nodes_status_keeps_us_from_nothing_after_a_loss_of_the_checkpoint(
    found: Node, home: Path
) -> None:
    """Given an API server that does not say who wrote it, when kubelet begins anew without its checkpoint, then what
    stands there is not taken for somebody else's."""
    life = found.live(ids(4))
    await found.becomes((4, 4))
    life.on_node = OnNode(4)
    await found.kubelet.kill()
    (home / "device-plugins" / "kubelet_internal_checkpoint").unlink()
    await found.kubelet.start()
    await found.becomes((4, 4))
    assert "rival" not in [told.standing.value for told in life.said.told]
    assert life.reads == 2


@played()
async def test_who_begins_to_listen_while_the_nodes_status_is_read_is_seen(found: Node, home: Path) -> None:
    with socket.socket(socket.AF_UNIX) as theirs:

        def begins() -> None:
            theirs.bind(str(home / "device-plugins" / "kubevirt-tdx.sock"))
            theirs.listen()

        life = found.live(ids(4))
        life.meanwhile = begins
        await until(lambda: bool(life.said.told), "what it does")
        assert life.said.told[0].why == "KubeVirt's own device plugin listens at kubevirt-tdx.sock"
        assert found.kubelet.capacity(TDX) is None
