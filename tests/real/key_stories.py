"""How keys are shared with Kata, and withheld while nobody makes quotes, on the node of offered_node.py.

Kubelet, API server, `nodeward node` and its commands are real; NFD is not here: its kinds and our object are the API
server's, its master and worker are doubles (nfd_cluster.py). Kata's pods are runc's, with the overhead of a
RuntimeClass in the specs, so they run and are counted as Kata's are. QGS is a double too.
"""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from nodeward.doubles.qgs import Qgs
from tests.peers.daemon import WITHIN_S, until
from tests.peers.keynode import PODS
from tests.peers.kubeclient import MERGE
from tests.peers.nriside import Record
from tests.peers.podnode import container
from tests.real.nfd_cluster import KEYS as KATA
from tests.real.nfd_cluster import THEIRS, Cluster, allow, capacity, master
from tests.real.offered_node import KEYS, ROW, TDX, Offered
from tests.told import tell

SHARED = f"{{resources: [{TDX}, {KATA}], publisher: device-plugin, publish: {TDX}"
SPLIT = 4
STAYS, PROMISED, FOREIGN = ("ours", "kata-a", "kata-b"), 3, 1
WITHOUT = "NFD, or Kata with its rule: 2 key(s) are asked by NFD's number"
OUR_PLUGIN = f"our plugin: {TDX} is 0 at once, and after five minutes no resource of the node; 1 pod(s) with ids run on"
OUR_OBJECT = "our NodeFeature object (it goes with our DaemonSet): NFD's number is {} again"
LATE = f"NFD's master has not taken our number over: it is to be 4, and the node has {KATA} "


class Beside:
    """NFD's part of the cluster, as its user sees it."""

    def __init__(self, here: Offered) -> None:
        self.here, self.cluster = here, Cluster(here.pods.server, here.node.api)
        self.pods = here.pods

    def install(self) -> None:
        """NFD's kinds, Kata's rule, and a worker that has found KEYS, where they are not there; and our rights."""
        self.allow()
        if self.cluster.client.find(f"{THEIRS}/{self.cluster.node}") is None:
            asyncio.run(self.cluster.install())
        self.discovers(KEYS)

    def allow(self) -> None:
        """The daemon may ask for NFD's kinds, which need not be there."""
        if self.cluster.client.find("/api/v1/namespaces/nodeward") is None:
            allow(self.cluster.client, "nodeward", "nfd.yaml")

    def discovers(self, number: int) -> None:
        """NFD's worker says so many."""
        elements: Record = {"tdx.total_keys": str(number)}
        said: Record = {"features": {"attributes": {"cpu.security": {"elements": elements}}}}
        self.cluster.client.call("PATCH", f"{THEIRS}/{self.cluster.node}", {"spec": said}, MERGE)

    def pass_over(self) -> str:
        """One pass of NFD's master; Kata's number on the node then."""

        async def passed() -> str:
            async with master(self.cluster) as nfd:
                await nfd.reconcile(self.cluster.node)
            return (await capacity(self.cluster))[KATA]

        return asyncio.run(passed())

    def begins(self, row: str) -> None:
        """Another daemon, with this row."""
        self.here.end(signal.SIGTERM)
        self.here.offers(row)
        self.here.node.nodeward.start()

    def says(self, words: str) -> None:
        """Returns when `nodeward keys` does."""
        self.here.says(words)

    def diagnosed(self) -> dict[str, str]:
        """What `nodeward doctor` finds about keys, by the code."""
        said = self.here.node.nodeward.command("doctor", "--config", str(self.here.node.nodeward.config), "-o", "json")
        return {one["code"]: one["what"] for one in json.loads(said.stdout)["findings"] if "keys" in one["code"]}

    def kata(self, pod: str) -> None:
        """A pod with a key in its RuntimeClass's overhead, once it runs."""
        spec: Record = {
            "nodeName": self.cluster.node,
            "runtimeClassName": "kata",
            "terminationGracePeriodSeconds": 1,
            "containers": [container("app")],
        }
        self.cluster.client.call("POST", PODS, {"metadata": {"name": pod}, "spec": spec})
        until(lambda: self.pods.phase(pod) == "Running", f"{pod} runs")

    def is_left_by(self, *pods: str) -> None:
        """The node as it was, without these pods, and with a daemon that shares nothing."""
        self.here.uses(KEYS, 0)
        self.begins(ROW)
        self.here.is_left_by(*pods)


def modes(here: Offered) -> None:
    """Given a pod of ours, two of Kata's and a machine outside of Kubernetes, when the daemon is started with each mode
    in turn, then node and NFD's number have that mode's row, and every pod keeps what it was admitted with. Before that
    there is no NFD."""
    nfd = Beside(here)
    _without_nfd(nfd)
    nfd.install()
    overhead: Record = {"podFixed": {KATA: "1"}}
    runtime: Record = {"metadata": {"name": "kata"}, "handler": "runc", "overhead": overhead}
    nfd.cluster.client.call("POST", "/apis/node.k8s.io/v1/runtimeclasses", runtime)
    assert nfd.pass_over() == str(KEYS)
    until(lambda: here.pods.capacity(KATA) == (KEYS, KEYS), "kubelet has taken NFD's number over")
    here.runs("ours")
    for pod in ("kata-a", "kata-b"):
        nfd.kata(pod)
    mine = here.pods.held("ours", TDX)
    here.uses(KEYS, FOREIGN)

    free = KEYS - PROMISED - FOREIGN
    _row(nfd, "own", ", share: own", (KEYS, 1 + free), free, None)
    here.uses(KEYS + 1, FOREIGN)  # of this number nothing comes while the settings say that NFD has it
    _row(nfd, "override", ", share: override, capacity_from: nfd", (KEYS, 1 + free), free, 2 + free)
    _master_is_down(nfd)
    nfd.discovers(KEYS + 1)
    nfd.says("NFD's number is to be 7, and our object says 7")
    here.has(KEYS + 1, 2 + free)
    here.uses(KEYS, FOREIGN)
    _row(nfd, "split", f", share: split, split: {SPLIT}", (SPLIT, SPLIT), SPLIT - 1, KEYS - SPLIT - FOREIGN)
    _row(nfd, "shared", ", share: shared", None, None, 2 + free)
    assert here.pods.healthy(TDX) == 0
    assert [here.pods.phase(pod) for pod in STAYS] == ["Running"] * 3
    assert here.pods.held("ours", TDX) == mine
    (line,) = [line.strip() for line in here.shown().splitlines() if line.strip().startswith("default/ours:")]
    assert "promised 1" in line, line
    tell(f"    {line}")

    nfd.is_left_by(*STAYS)


def _without_nfd(nfd: Beside) -> None:
    """Given an API server that does not serve NFD's kinds, then `auto` is `own`, and `override` is found to need NFD;
    kubelet has all keys with either."""
    nfd.allow()
    asyncio.run(nfd.cluster.remove())
    for share, sentence in (
        (
            "auto",
            f"share is own (chosen: auto): our plugin offers {TDX} and may sell {KEYS} more; NFD's number is left",
        ),
        ("override", f"NFD's number is to be {KEYS}, and our object says nothing yet"),
    ):
        nfd.begins(f"{SHARED}, share: {share}}}")
        nfd.says(sentence)
        nfd.here.has(KEYS, KEYS)
        found = nfd.diagnosed()
        assert sentence in found["keys-mode"], found
        assert ("keys-nfd-away" in found) == (share == "override"), found
        tell(f"no NFD, share {share}: the node has {nfd.pods.capacity(TDX)} of {TDX}; doctor: {found}")


def _row(nfd: Beside, mode: str, more: str, has: tuple[int, int] | None, sells: int | None, number: int | None) -> None:
    """The mode's row of the table of docs/keys.md, as kubelet, the node, our object, `nodeward keys` and doctor say."""
    nfd.begins(f"{SHARED}{more}}}")
    ours = f"our plugin offers {TDX} and may sell {sells} more" if has is not None else "we offer nothing"
    theirs = f"NFD's number is to be {number}, and our object says {number}" if number else "NFD's number is left alone"
    sentence = f"share is {mode}: {ours}; {theirs}, and pods here ask 2 by it"
    nfd.says(sentence)
    if has is not None:
        nfd.pods.has(TDX, has)
    there = nfd.pass_over()
    assert there == str(number or KEYS)
    found = nfd.diagnosed()
    assert found["keys-mode"] == sentence, found
    removal = found["keys-removal"]
    assert WITHOUT in removal, removal
    assert (OUR_PLUGIN in removal) == (has is not None), removal
    assert (OUR_OBJECT.format(KEYS) in removal) == (number is not None), removal
    tell(f"mode {mode}: the node has {nfd.pods.capacity(TDX)} of {TDX}, and {there} of {KATA}; doctor: {sentence}")
    tell(f"    {removal}")


def _master_is_down(nfd: Beside) -> None:
    """Given NFD's master that does nothing, when machines outside take more, then our object says so and doctor says
    who does not follow; when it is back, the node has the number."""
    nfd.here.uses(KEYS + 1, FOREIGN + 2)
    nfd.says("NFD's number is to be 4, and our object says 4")
    late = nfd.diagnosed().get("keys-nfd-late", "nothing")
    assert late.startswith(LATE), late
    tell(f"NFD's master down: doctor: {late}")
    assert nfd.pass_over() == "4"
    nfd.here.uses(KEYS + 1, FOREIGN)
    nfd.says("NFD's number is to be 6, and our object says 6")
    assert nfd.pass_over() == "6"


@contextmanager
def _loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop of its own, for a double that answers while the test waits."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WITHIN_S)
        loop.close()


def auto_and_quotes(here: Offered) -> None:
    """Given share `auto` and attestation `enforce`: NFD goes, and the mode is `own`; while QGS is away, no id but what
    pods were granted is healthy, and a pod that was granted one waits at its start, with a reason; NFD and QGS come
    back, the pod starts and the mode is `override`, all without a restart."""
    nfd, folder = Beside(here), here.node.nodeward.folder / "qgs"
    folder.mkdir()
    with _loop() as loop:
        service = Qgs(folder / "qgs.socket")
        nfd.install()
        asyncio.run_coroutine_threadsafe(service.start(), loop).result(WITHIN_S)
        row = f"{SHARED}, share: auto, attestation: enforce, attestation_socket: {service.path}}}"
        nfd.begins(row)
        sells = f"our plugin offers {TDX} and may sell {KEYS} more"
        nfd.says(f"share is override (chosen: auto): {sells}; NFD's number is to be {KEYS}, and our object says {KEYS}")
        here.has(KEYS, KEYS)
        assert nfd.pass_over() == str(KEYS)
        asyncio.run(nfd.cluster.remove())
        nfd.says(f"share is own (chosen: auto): our plugin offers {TDX} and may sell {KEYS} more")
        found = nfd.diagnosed()
        assert found["keys-mode"].startswith("share is own (chosen: auto)")
        assert f"the node has {KATA} {KEYS}, which Node Feature Discovery put there" in found["keys-nfd-left"]
        tell(f"NFD gone: doctor: {found['keys-nfd-left']}")
        nfd.install()
        _quotes_lost(here, service, loop)
        nfd.says("share is override (chosen: auto)")
        nfd.is_left_by("vm-a", "late")
        asyncio.run_coroutine_threadsafe(service.stop(), loop).result(WITHIN_S)


def _quotes_lost(here: Offered, service: Qgs, loop: asyncio.AbstractEventLoop) -> None:
    pods, away = here.pods, f"the service that makes quotes at {service.path} does not answer"
    here.runs("vm-a")
    folder = str(service.path.parent)
    (mount,) = [one for one in pods.asked_mounts("vm-a") if one.get("container_path") == folder]
    assert (mount.get("host_path"), mount.get("readonly")) == (folder, True)
    tell(f"CreateContainer of vm-a: {mount}")
    pods.create("late", TDX, init=(0,))
    until(lambda: pods.held("late", TDX) != (), "late has its id")
    asyncio.run_coroutine_threadsafe(service.stop(), loop).result(WITHIN_S)
    here.has(KEYS, 2)
    pods.end_init("late")
    until(lambda: "code = Unavailable" in pods.waits("late"), "late waits")
    tell(f"QGS lost: the node has {pods.capacity(TDX)}; {pods.waits('late')}")
    assert f"Nodeward gives out no {TDX} for 'tdx-key-0001': {away}" in pods.waits("late")
    assert (pods.phase("vm-a"), pods.phase("late")) == ("Running", "Pending")
    asyncio.run_coroutine_threadsafe(service.start(), loop).result(WITHIN_S)
    until(lambda: pods.phase("late") == "Running", "late runs")
    here.has(KEYS, KEYS)
    tell(f"QGS back: the node has {pods.capacity(TDX)}, and late runs with {pods.held('late', TDX)}")
