"""Our device plugin beside others who want its name: a plugin that registers later, ids that kubelet gave out for one,
numbers that somebody wrote into the node's status, and KubeVirt's own plugin. And the read of that status, for
which nobody waits.
"""

import asyncio
import logging
import socket
from pathlib import Path
from typing import cast

import pytest
from aiohttp import web

from nodeward.core.vms import Allocatable
from nodeward.features.pods.effects import node_status
from nodeward.features.pods.wiring import ApiFacts
from nodeward.features.root import State
from nodeward.features.settings import KubeSection, Settings
from nodeward.host.clock import SystemClock
from nodeward.host.runner import Core
from nodeward.neighbours.formats.kube_node import OnNode
from nodeward.neighbours.kubelet import plugin
from nodeward.neighbours.kubelet.folder import Around, Folder
from nodeward.neighbours.kubernetes.client import PodsClient
from nodeward.neighbours.kubernetes.reflector import PodReader
from nodeward.neighbours.kubernetes.settings import KubeSettings
from nodeward.neighbours.sockets.kube_http import Endpoint
from tests.component.kubelet.node import NOTHING, TDX, Life, Node, ids, played
from tests.component.kubernetes.support import HandClock, answering, until
from tests.patience import scaled
from tests.peers.deviceplugin import running_plugin


@played()
async def test_a_rival_that_registers_later_has_the_name_until_it_ends(
    found: Node, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubelet goes on reading our list, so nothing but the checkpoint tells of it."""
    monkeypatch.setattr(plugin, "RIVAL_S", 0.5)
    life = await found.serves(4)
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
    life = await found.serves(4)
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


NODE = {"status": {"capacity": {TDX: "5"}}, "metadata": {"managedFields": []}}


async def read(answer: web.Response | None) -> tuple[OnNode, list[str]]:
    """What is read from a server that answers so, or never; and what it was asked."""
    asked: list[str] = []

    async def served(request: web.Request) -> web.Response:
        asked.append(request.path)
        if answer is None:
            await asyncio.Event().wait()
        assert answer is not None
        return answer

    async with asyncio.timeout(scaled(30)), answering(served) as url:
        settings = Settings(node_name="n1", kube=KubeSection(url=url))
        return await node_status.reader(settings, {}, SystemClock())(TDX), asked


async def test_what_the_status_has_is_read() -> None:
    assert await read(web.json_response(NODE)) == (OnNode(5), ["/api/v1/nodes/n1"])


@pytest.mark.parametrize(
    ("answer", "level", "why"),
    [
        pytest.param(web.json_response({}, status=403), logging.WARNING, "403", id="no right"),
        pytest.param(web.json_response({}, status=404), logging.INFO, "404", id="no such node"),
        pytest.param(web.Response(text="[garbage"), logging.INFO, "cannot be read", id="garbage"),
        pytest.param(None, logging.INFO, "no answer", id="never answers"),
    ],
)
async def test_an_api_server_that_does_not_tell_keeps_nobody_from_registering(
    answer: web.Response | None, level: int, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert (await read(answer))[0] == OnNode()
    (said,) = [one for one in caplog.records if one.name == node_status.__name__]
    assert (said.levelno, why in said.getMessage()) == (level, True), said.getMessage()


async def test_what_is_allocatable_is_read_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, node_status.__name__)
    table = {"status": {"allocatable": {"cpu": "7500m", "memory": "8Gi"}}}
    answers, asked = iter([(403, {}), (200, table)]), list[str]()

    async def served(request: web.Request) -> web.Response:
        asked.append(request.path)
        status, found = next(answers, (200, []))
        return web.json_response(found, status=status)

    clock = HandClock()
    async with asyncio.timeout(scaled(30)), answering(served) as url:
        client = PodsClient(KubeSettings(endpoint=Endpoint(url), node_name="n1"), clock)
        facts = ApiFacts(PodReader(client), cast(Core[State], None))
        reading = asyncio.create_task(node_status.keep_allocatable(client, facts.learn, clock))
        await until(lambda: len(asked) > 3, "four reads")
        reading.cancel()
        await client.aclose()
    assert facts.allocatable == Allocatable(7500, 1 << 33)
    assert clock.slept[1] == node_status.AGAIN_S
    assert set(asked) == {"/api/v1/nodes/n1"}
    said = [(one.levelno, one.getMessage()) for one in caplog.records if one.name == node_status.__name__]
    assert [level for level, _ in said] == [logging.WARNING, logging.INFO, logging.INFO], "the last one once"
    assert "Grant `get` on `nodes`" in said[0][1]
    assert said[1][1] == f"allocatable=read cpu_m=7500 memory={1 << 33}"


async def test_where_no_api_server_is_configured_nobody_is_asked() -> None:
    ask = node_status.reader(Settings(kube=KubeSection(enabled=False)), {}, SystemClock())
    assert await ask(TDX) == OnNode()
