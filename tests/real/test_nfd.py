"""Our NodeFeature object on a real kube-apiserver, beside a double of NFD's master that puts Kata's number on the node.

The account has the rights of deploy/node/rbac.yaml and nfd.yaml and no others. What NFD itself does is a double's
(`nodeward_sim.doubles.nfd`), which follows the reference; its worker's object is made by hand.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nodeward.core import events as ev
from nodeward.core.decision import Goal, Special
from nodeward.core.refusal import Reason
from nodeward.host.clock import SystemClock
from nodeward.host.slots import ByEdge
from nodeward.neighbours.nfd.client import NfdClient, ObjectPlace
from nodeward.neighbours.nfd.objects import object_name
from nodeward.neighbours.nfd.session import NfdReconciler, Pace
from nodeward.neighbours.sockets.kube_http import KubeHttp
from nodeward_sim.doubles.nfd import worker_object
from tests.goals import target
from tests.peers.controllers import running_controllers
from tests.peers.kubeclient import MERGE, ApiError, KubeClient
from tests.peers.nriside import Json, Record, member
from tests.real.nfd_cluster import (
    API,
    HOST,
    KEYS,
    NFD,
    OURS,
    THEIRS,
    WITHIN_S,
    Cluster,
    capacity,
    installed,
    master,
    running_cluster,
)
from tests.rigs.cluster import part
from tests.rigs.stories import under_way

FAST = Pace(gap_s=0.05, absent_s=0.2, resync_s=0.5, unsettled_s=0.1, most_s=0.3, stale_s=1.0)
WORKERS: Record = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "nfd-worker", "uid": "d1", "controller": True}
ESIDS = "sev-snp.amd.com/esids"
RESOURCES = {"tdx": ("devices.kubevirt.io/tdx", KEYS), "sev_es": (ESIDS,)}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as found:
        yield found


@dataclass(slots=True)
class Life:
    cluster: Cluster
    goals: ByEdge
    told: list[ev.NfdSeen] = field(default_factory=list)
    outcomes: list[ev.Event] = field(default_factory=list)
    remembered: int = 0

    def want(self, **numbers: int | None) -> None:
        self.goals.set(
            Goal(target(f"nfd:{key}"), Special.ABSENT if number is None else str(number), Reason("shared"))
            for key, number in numbers.items()
        )

    async def until(self, true: Callable[[], Awaitable[bool]] | Callable[[], bool]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while True:
                found = true()
                if found if isinstance(found, bool) else await found:
                    return
                await asyncio.sleep(0.02)

    async def until_told(self, **wanted: object) -> None:
        await self.until(lambda: bool(self.told) and all(getattr(self.told[-1], k) == v for k, v in wanted.items()))

    async def until_written(self, numbers: Mapping[str, str] | None) -> None:
        """Until our object has just these numbers; None: until there is none."""

        async def so() -> bool:
            try:
                return await self.cluster.numbers() == numbers
            except ApiError:
                return False

        await self.until(so)

    async def until_missed(self, text: str) -> None:
        await self.until(lambda: any(isinstance(one, ev.Missed) and text in str(one.why) for one in self.outcomes[-3:]))

    def seen(self, event: ev.Event) -> int:
        if isinstance(event, ev.NfdSeen):
            self.told.append(event)
        else:
            self.outcomes.append(event)
        return 0

    def remember(self) -> None:
        self.remembered += 1


@asynccontextmanager
async def living(
    cluster: Cluster, token: str = "", pod: str = "", ready: Callable[[], bool] = lambda: True
) -> AsyncIterator[Life]:
    life = Life(cluster, ByEdge("nfd"))
    life.goals.connect(life.seen)
    async with KubeHttp(
        cluster.endpoint(token or cluster.server.plain_token), SystemClock(), user_agent="test"
    ) as http:
        place = ObjectPlace(cluster.node, "nodeward", pod)
        client, clock = NfdClient(http, place), SystemClock()
        session = NfdReconciler(client, life.goals, RESOURCES, life.seen, clock, life.remember, ready, pace=FAST)
        async with under_way(session.forever()):
            yield life


async def test_nfd_that_comes_later_goes_and_comes_back_is_followed_live(cluster: Cluster) -> None:
    async with living(cluster) as life, master(cluster) as nfd:
        life.want(tdx=12)
        await life.until_told(served=False, worker=False, fault="")
        await life.until_missed("is not installed")
        async with installed(cluster):
            await life.until_told(served=True, worker=True, discovered={"tdx": 16, "sev_es": 99})
            await life.until_written({"tdx.total_keys": "12"})
            assert life.remembered == 1
            await nfd.reconcile(cluster.node)
            assert (await capacity(cluster))[KEYS] == "12"
            await life.until_told(written={"tdx": 12}, on_node={KEYS: 12})
            life.want(tdx=9, sev_es=50)
            await life.until_written({"tdx.total_keys": "9", "sev.encrypted_state_ids": "50"})
            await nfd.reconcile(cluster.node)
            assert await capacity(cluster) == {KEYS: "9"}  # Kata's rule for SNP waits for sev.snp.enabled
            life.want(tdx=None, sev_es=None)
            await life.until_written(None)
            await nfd.reconcile(cluster.node)
            assert (await capacity(cluster))[KEYS] == "16"
            theirs: list[tuple[list[Json], bool]] = [([WORKERS], False), ([], True)]  # and none of its pods is here
            for owners, is_fresh in theirs:
                refs: Record = {"metadata": {"ownerReferences": owners}}
                await cluster.call("PATCH", f"{THEIRS}/{cluster.node}", refs, MERGE)
                await life.until_told(served=True, worker=is_fresh, discovered={"tdx": 16, "sev_es": 99}, fault="")
            life.want(tdx=7)
            await life.until_written({"tdx.total_keys": "7"})
        await life.until_told(served=False, worker=False, written={})
        async with installed(cluster):
            await life.until_written({"tdx.total_keys": "7"})


async def test_what_somebody_deletes_or_edits_is_put_back(cluster: Cluster) -> None:
    edits: list[Record] = [
        {"spec": {"features": {"attributes": {"cpu.security": {"elements": {"tdx.total_keys": "1000"}}}}}},
        {"spec": {"features": {"attributes": {"cpu.security": {"elements": {"tdx.enabled": "true"}}}}}},
        {"spec": {"labels": {"stolen": "true"}}},
        {"metadata": {"labels": {"nfd.node.kubernetes.io/node-name": "another"}}},
        {"metadata": {"labels": {"nfd.node.kubernetes.io/node-name": None}}},
        {"metadata": {"ownerReferences": None}},
    ]

    async def is_ours() -> bool:
        found = await cluster.find(cluster.ours)
        attributes = {"cpu.security": {"elements": {"tdx.total_keys": "12"}}}
        wanted = {"features": {"flags": {}, "instances": {}, "attributes": attributes}}
        if found is None or found["spec"] != wanted:
            return False
        labels = part(member(found, "metadata", "labels"))
        owners = part(found["metadata"]).get("ownerReferences")
        is_the_nodes = isinstance(owners, list) and [part(one)["kind"] for one in owners] == ["Node"]
        return labels.get("nfd.node.kubernetes.io/node-name") == cluster.node and is_the_nodes

    async with installed(cluster), living(cluster) as life:
        life.want(tdx=12)
        await life.until(is_ours)
        await cluster.call("DELETE", cluster.ours)
        await life.until(is_ours)
        for edit in edits:
            await cluster.call("PATCH", cluster.ours, edit, MERGE)
            await life.until(is_ours)


async def test_an_object_of_our_name_that_is_somebody_elses_is_left_alone(cluster: Cluster) -> None:
    async with installed(cluster), living(cluster) as life:
        other = part(worker_object("nodeward", cluster.node, {"tdx.total_keys": "3"}))
        part(other["metadata"]).update(name=object_name(cluster.node), annotations=None)
        await cluster.call("POST", OURS, other)
        life.want(tdx=12)
        await life.until_missed("is not ours")
        await life.until_told(served=True, written={})
        life.want(tdx=None)
        life.want(tdx=11)
        await life.until_written({"tdx.total_keys": "3"})
        await cluster.call("DELETE", cluster.ours)
        await life.until_written({"tdx.total_keys": "11"})


async def test_the_object_of_an_earlier_life_stands_until_enough_is_known_of_keys(cluster: Cluster) -> None:
    known: list[bool] = []
    async with installed(cluster):
        async with living(cluster) as life:
            life.want(tdx=12)
            await life.until_written({"tdx.total_keys": "12"})
        before = await cluster.version()
        async with living(cluster, ready=lambda: bool(known)) as life:
            await life.until_told(served=True, written={"tdx": 12})
            await asyncio.sleep(5 * FAST.gap_s)
            assert await cluster.version() == before
            known.append(True)
            await life.until_written(None)


async def test_the_object_vanishes_with_our_daemon_set(cluster: Cluster, tmp_path: Path) -> None:
    daemon_sets = "/apis/apps/v1/namespaces/nodeward/daemonsets"
    labels = {"app": "x"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "none"}]}}

    spec = {"selector": {"matchLabels": labels}, "template": template}
    made = await cluster.call("POST", daemon_sets, {"metadata": {"name": "nodeward-node"}, "spec": spec})
    uid = member(made, "metadata", "uid")
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "nodeward-node", "uid": uid, "controller": True}
    pod = {"metadata": {"name": "owned", "ownerReferences": [owner]}, "spec": template["spec"]}
    await cluster.call("POST", "/api/v1/namespaces/nodeward/pods", pod)
    async with installed(cluster):
        with running_controllers(cluster.server, tmp_path, ["garbage-collector-controller"]):
            async with living(cluster, pod="owned") as life:
                life.want(tdx=12)
                await life.until_written({"tdx.total_keys": "12"})
            await cluster.call("DELETE", f"{daemon_sets}/nodeward-node")
            await life.until_written(None)


async def test_without_rights_it_says_which_and_what_was_seen_stands(cluster: Cluster) -> None:
    async with installed(cluster), living(cluster, token=cluster.server.node_token) as life:
        life.want(tdx=12)
        await life.until_missed("allow list and watch on nodefeatures")
        assert "403" in life.told[-1].fault
        assert await cluster.find(cluster.ours) is None


async def test_the_account_writes_nowhere_but_in_its_own_namespace(cluster: Cluster) -> None:
    somebody = KubeClient(cluster.server.base_url, cluster.server.ca_file, cluster.server.plain_token)

    async with installed(cluster):
        body = part(worker_object(NFD, "other", HOST))
        for verb, path in (
            ("POST", THEIRS),
            ("DELETE", f"{THEIRS}/{cluster.node}"),
            ("GET", f"{API}/nodefeaturerules"),
        ):
            with pytest.raises(ApiError, match="403"):
                await asyncio.to_thread(somebody.call, verb, path, body if verb == "POST" else None)
        with pytest.raises(ApiError, match="403"):
            await asyncio.to_thread(
                somebody.call, "PATCH", f"/api/v1/nodes/{cluster.node}/status", {"status": {}}, MERGE
            )
