"""Our device plugin registered with a real kubelet 1.37, with an `ask` of the test's own.

It runs in the test's process and lies in kubelet's folder through /proc. What it stands for is not there: ids are
tokens, and no key of this machine is taken.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from nodeward.aio.clock import SystemClock
from nodeward.edges.kubelet import pod_resources
from nodeward.model.events import Allocating, Event, KeysHeld, Starting
from nodeward.model.workload import PodUid
from nodeward.transport.grpc_unix import GrpcClient
from nodeward.wire import kubelet_checkpoint
from tests.component.kubelet.node import TDX, YES, Life, ids, live, refused
from tests.peers.daemon import WITHIN_S, until
from tests.peers.deviceplugin import running_plugin
from tests.peers.keynode import KeyNode, key_node, timeline
from tests.peers.nriside import member
from tests.told import tell

NO_KEY = "no tdx key is free: 4 there are, 4 are in use; end a confidential VM, or use another node"


class Lives:
    """Lives of the plugin on a loop of their own."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._made: list[Life] = []

    def begin(self, count: int, healthy: int | None = None, mount: str = "") -> Life:
        """Another life, which offers so many ids."""

        async def begun() -> Life:
            return live(self._home, ids(count, healthy), mount)

        life = asyncio.run_coroutine_threadsafe(begun(), self._loop).result(WITHIN_S)
        self._made.append(life)
        return life

    def offer(self, life: Life, count: int, healthy: int | None = None) -> None:
        """Another list."""
        self._loop.call_soon_threadsafe(life.offer, ids(count, healthy))

    def end(self, life: Life) -> None:
        """Ends it as a daemon ends that is told to."""
        asyncio.run_coroutine_threadsafe(life.end(), self._loop).result(WITHIN_S)
        self._made.remove(life)

    def withdraw(self, life: Life) -> str:
        """As `nodeward decommission` does."""
        return asyncio.run_coroutine_threadsafe(life.plugin.withdraw(), self._loop).result(WITHIN_S)

    def close(self) -> None:
        """Ends all."""
        for life in list(self._made):
            self.end(life)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WITHIN_S)
        self._loop.close()


@pytest.fixture(name="node", scope="module")
def _node() -> Iterator[KeyNode]:
    with key_node() as found:
        yield found


@pytest.fixture(name="lives")
def _lives(node: KeyNode) -> Iterator[Lives]:
    found = Lives(node.home)
    try:
        yield found
    finally:
        found.close()


def begun(node: KeyNode, lives: Lives, count: int, healthy: int | None = None, mount: str = "") -> Life:
    """A life of the plugin, once kubelet has its list."""
    with node.relisted(TDX, (count, count if healthy is None else healthy)):
        life = lives.begin(count, healthy, mount)
    until(lambda: life.said.standing == "serving", "it says so")
    return life


def test_ids_are_registered_given_refused_and_held_back_at_the_start(node: KeyNode, lives: Lives) -> None:
    """Given four ids, when pods ask, then they run with the lowest; one is refused, one starts late."""
    life = begun(node, lives, 4, 3)
    lives.offer(life, 4)
    node.has(TDX, (4, 4))

    node.create("vm-a0", TDX)
    until(lambda: node.phase("vm-a0") == "Running", "vm-a0 runs")
    assert node.held("vm-a0", TDX) == ("tdx-key-0000",)
    assert life.said.asked[:2] == [Allocating(TDX, ("tdx-key-0000",)), Starting(TDX, ("tdx-key-0000",))]

    life.said.answer = lambda _: refused(NO_KEY)
    node.create("vm-b0", TDX)
    until(lambda: node.failed("vm-b0") != "", "vm-b0 fails")
    assert node.failed("vm-b0").startswith("UnexpectedAdmissionError: ")
    assert NO_KEY in node.failed("vm-b0")
    tell(node.failed("vm-b0"))

    life.said.answer = lambda question: refused(NO_KEY) if isinstance(question, Starting) else YES
    node.create("vm-c0", TDX)
    until(lambda: NO_KEY in node.waits("vm-c0"), "vm-c0 waits")
    tell(node.waits("vm-c0"))
    life.said.answer = lambda _: YES
    until(lambda: node.phase("vm-c0") == "Running", "vm-c0 runs")
    assert node.held("vm-c0", TDX) == ("tdx-key-0001",)

    node.create("vm-d0", TDX, counts=(2,), init=(1,))
    node.end_init("vm-d0")
    until(lambda: node.phase("vm-d0") == "Running", "vm-d0 runs")
    assert node.held("vm-d0", TDX) == ("tdx-key-0002", "tdx-key-0003")
    for pod in ("vm-a0", "vm-b0", "vm-c0", "vm-d0"):
        node.delete(pod)


def test_a_container_with_a_key_has_the_folder_of_the_quoting_service(
    node: KeyNode, lives: Lives, tmp_path: Path
) -> None:
    """Given a folder to be mounted, when a pod with an id and one without run, then the first has it, read-only."""
    begun(node, lives, 4, mount=str(tmp_path))
    node.create("vm-q", TDX)
    node.create("plain", TDX, counts=(0,))
    for pod in ("vm-q", "plain"):
        until(partial(lambda name: node.phase(name) == "Running", pod), "it runs")
    mounted, other = (
        [mount for mount in node.mounts(pod) if mount.get("destination") == str(tmp_path)] for pod in ("vm-q", "plain")
    )
    assert other == []
    assert [(one.get("source"), "ro" in str(one.get("options"))) for one in mounted] == [(str(tmp_path), True)]
    wanted = {"container_path": str(tmp_path), "host_path": str(tmp_path), "readonly": True}
    asked, not_asked = (
        [mount for mount in node.asked_mounts(pod) if mount.get("container_path") == str(tmp_path)]
        for pod in ("vm-q", "plain")
    )
    assert [{name: mount.get(name) for name in wanted} for mount in asked] == [wanted]
    assert not_asked == []
    for pod in ("vm-q", "plain"):
        node.delete(pod)


def test_a_kubelet_that_is_killed_is_registered_with_again_and_pods_keep_their_ids(node: KeyNode, lives: Lives) -> None:
    """Given a pod with an id, when kubelet is killed and comes again, then the pod runs on, and its id is not given."""
    life = begun(node, lives, 4)
    node.create("vm-a1", TDX)
    until(lambda: node.phase("vm-a1") == "Running", "vm-a1 runs")
    began, mine = node.started("vm-a1"), node.held("vm-a1", TDX)
    with timeline(node, TDX) as seen:
        node.kubelet.kill()
        until(lambda: life.said.standing == "waiting", "it is noticed")
        node.kubelet.start_again()
        node.kubelet.wait_healthy()
        well = time.monotonic()
        until(lambda: life.said.standing == "serving", "it is registered again")
        tell(f"registered {time.monotonic() - well:.2f} s after kubelet said that it is well")
        node.has(TDX, (4, 4))
        node.create("vm-b1", TDX)
        until(lambda: node.phase("vm-b1") == "Running", "vm-b1 runs")
        tell(f"the node's capacity and allocatable meanwhile: {seen()}")
    assert life.said.told[-1].restarts == 1
    assert node.held("vm-a1", TDX) == mine
    assert node.held("vm-b1", TDX) != mine
    assert (node.phase("vm-a1"), node.started("vm-a1")) == ("Running", began)
    for pod in ("vm-a1", "vm-b1"):
        node.delete(pod)


def test_an_upgrade_leaves_the_nodes_capacity_as_it_is(node: KeyNode, lives: Lives) -> None:
    """Given a pod with an id, when one daemon ends and another begins, then the node has as many ids all the while."""
    first = begun(node, lives, 4)
    node.create("vm-a2", TDX)
    until(lambda: node.phase("vm-a2") == "Running", "vm-a2 runs")
    with timeline(node, TDX) as seen:
        lives.end(first)
        begun(node, lives, 4)
        node.create("vm-b2", TDX)
        until(lambda: node.phase("vm-b2") == "Running", "vm-b2 runs")
        node.has(TDX, (4, 4))
        tell(f"the node's capacity and allocatable meanwhile: {seen()}")
        assert {found[0] for _, found in seen() if found is not None} == {4}
    assert node.phase("vm-a2") == "Running"
    for pod in ("vm-a2", "vm-b2"):
        node.delete(pod)


def test_a_lost_checkpoint_costs_no_registration(node: KeyNode, lives: Lives) -> None:
    """Given a running plugin, when kubelet's checkpoint is deleted and kubelet begins anew, then it is registered."""
    life = begun(node, lives, 4)
    node.restart(forgets=True)
    until(lambda: life.said.standing == "serving" and life.said.told[-1].restarts == 1, "it is registered again")
    node.has(TDX, (4, 4))
    node.create("vm-a3", TDX)
    until(lambda: node.phase("vm-a3") == "Running", "vm-a3 runs")
    node.delete("vm-a3")


def test_a_rival_is_left_its_name_until_it_has_gone(node: KeyNode, lives: Lives) -> None:
    """Given another plugin of the same name, then ours waits and says why; when the other ends, ours is registered."""
    rivals = [f"tdx{number}" for number in range(3)]
    with running_plugin(node.home / "device-plugins", TDX, rivals) as rival:
        node.has(TDX, (3, 3))
        life = lives.begin(4)
        until(lambda: life.said.standing == "rival", "it is seen")
        tell(life.said.told[-1].why)
        node.create("vm-a4", TDX)
        until(lambda: node.phase("vm-a4") == "Running", "vm-a4 runs")
        assert rival.allocated
        node.delete("vm-a4")
        assert life.said.asked == []
    until(lambda: life.said.standing == "serving", "the rival has gone")
    node.has(TDX, (4, 4))


def test_a_rival_that_comes_later_has_the_name_and_ours_does_not_fight(node: KeyNode, lives: Lives) -> None:
    """Given our plugin, when another registers the same name, then kubelet ends ours, and it waits."""
    life = begun(node, lives, 4)
    with running_plugin(node.home / "device-plugins", TDX, ["tdx0", "tdx1"]):
        until(lambda: life.said.standing == "rival", "it is seen")
        node.has(TDX, (2, 2))
        assert [told.standing.value for told in life.said.told] == ["serving", "rival"]


def test_what_is_withdrawn_is_gone_from_the_node(node: KeyNode, lives: Lives) -> None:
    """Given a running plugin, when it is withdrawn, then the node has no ids of it, and kubelet has said so."""
    life = begun(node, lives, 4)
    assert lives.withdraw(life) == f"{TDX}: kubelet has none left"
    node.has(TDX, (0, 0))


def told_by_pod_resources(node: KeyNode) -> KeysHeld:
    """What the edge tells once asked; pods are known as the API server has them."""
    heard: list[KeysHeld] = []

    def hear(event: Event) -> int:
        assert isinstance(event, KeysHeld)
        heard.append(event)
        return 0

    def uid_of(namespace: str, name: str) -> PodUid | None:
        found = node.api.find(f"/api/v1/namespaces/{namespace}/pods/{name}")
        return PodUid(str(member(found, "metadata", "uid"))) if found else None

    def connect() -> GrpcClient:
        return GrpcClient(str(node.root / pod_resources.PLACE))

    edge = pod_resources.PodResources(connect, uid_of, lambda: "torn", [TDX], hear, lambda: 1, SystemClock())
    assert asyncio.run(edge.fetch("tdx")) == ""
    (only,) = heard
    return only


def test_the_ids_that_pod_resources_names_are_those_of_the_checkpoint(node: KeyNode) -> None:
    """Given pods with ids of ours and of another resource, then of ours the same is told pod by pod."""
    with (
        running_plugin(node.home / "device-plugins", TDX, ["tdx0", "tdx1", "tdx2", "tdx3"]),
        running_plugin(node.home / "device-plugins", "example.com/other", ["x"], endpoint="other.sock"),
    ):
        node.has(TDX, (4, 4))
        node.has("example.com/other", (1, 1))
        for pod, resource, counts in (("one", TDX, (1,)), ("two", TDX, (1, 2)), ("other", "example.com/other", (1,))):
            node.create(pod, resource, counts)
            until(partial(lambda name: node.phase(name) == "Running", pod), f"{pod} runs")
        found = kubelet_checkpoint.decode((node.home / kubelet_checkpoint.PLACE).read_bytes(), [TDX])
        told = told_by_pod_resources(node)
        by_checkpoint = {PodUid(uid): ids for uid, ids in found.pods.items()}
        assert told == KeysHeld(1, by_checkpoint, fault="torn", read_ns=told.read_ns, answered=True)
        assert sorted(len(ids[TDX]) for ids in told.pods.values()) == [1, 3]
        tell(f"kubelet 1.37, PodResources: {len(told.pods)} pods with ids of {TDX} as the checkpoint has them")
        for pod in ("one", "two", "other"):
            node.delete(pod)
