"""The Pods API of a real kubelet 1.37, on by default there: its pods are those of the API server, as they are there."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from nodeward.core.events import Event, PodsOfKubelet
from nodeward.core.workload import PodSpec, PodUid
from nodeward.host.backoff import Backoff
from nodeward.host.clock import SystemClock
from nodeward.neighbours.formats import kube_objects
from nodeward.neighbours.kubelet import pods_api
from nodeward.neighbours.kubernetes.mapping import pod_spec
from nodeward.neighbours.sockets.grpc_unix import GrpcClient
from tests.patience import scaled
from tests.peers.containerd import IMAGE
from tests.peers.daemon import until
from tests.peers.keynode import PODS
from tests.peers.kubeclient import STRATEGIC
from tests.peers.nriside import Record
from tests.peers.podnode import EPC, Node, container, running_node
from tests.told import tell

WITHIN_S = scaled(120.0)
NOBODY = PodSpec(PodUid(""), "", "")
WORDS = {EPC: "sgx_epc", "cpu": "cpu"}


class Heard:
    def __init__(self) -> None:
        self.events: list[PodsOfKubelet] = []

    def tell(self, event: Event) -> int:
        assert isinstance(event, PodsOfKubelet)
        self.events.append(event)
        return len(self.events)

    @property
    def now(self) -> dict[str, PodSpec]:
        return {pod.name: pod for pod in self.events[-1].pods} if self.events else {}


def heard_by(node: Node, story: Callable[[Heard, pods_api.PodsApi], Awaitable[None]]) -> None:
    async def play() -> None:
        heard = Heard()
        path = Path("/proc", str(node.kubelet.pid), f"root{node.kubelet.plan.folder}", "root", pods_api.PLACE)
        spec = partial(pod_spec, resources=WORDS)
        pauses = Backoff(0.1, 1.0, lambda: 0.5)
        api = pods_api.PodsApi(
            lambda: GrpcClient(str(path)), spec, heard.tell, lambda: len(heard.events), SystemClock(), pauses
        )
        following = asyncio.ensure_future(api.run())
        try:
            async with asyncio.timeout(WITHIN_S):
                await story(heard, api)
        finally:
            following.cancel()
            await asyncio.wait((following,))

    asyncio.run(play())


async def hears(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.05)


def test_kubelets_pods_are_the_api_servers_and_changes_are_heard() -> None:
    manifest: Record = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "fixed", "namespace": "default"},
        "spec": {"containers": [{"name": "app", "image": IMAGE, "imagePullPolicy": "Never"}]},
    }

    def of_api(node: Node, name: str) -> PodSpec:
        return pod_spec(kube_objects.decode_pod(json.dumps(node.api.find(f"{PODS}/{name}")).encode()), WORDS)

    async def story(heard: Heard, api: pods_api.PodsApi, node: Node) -> None:
        sidecar = container("beside", "2Mi", restartPolicy="Always")
        asked = [container("app", "3Mi"), container("log")]
        await asyncio.to_thread(node.create, "heavy", asked, runtimeClassName="heavy", initContainers=[sidecar])
        node.kubelet.add_static("fixed", json.dumps(manifest))
        await asyncio.to_thread(until, lambda: node.keys.phase("heavy") == "Running", "the pod runs")
        debug: Record = {"spec": {"ephemeralContainers": [container("debug")]}}
        await asyncio.to_thread(node.api.call, "PATCH", f"{PODS}/heavy/ephemeralcontainers", debug, STRATEGIC)
        await hears(lambda: len(heard.now.get("heavy", NOBODY).container_ids) == 4)
        await hears(lambda: heard.now["heavy"] == of_api(node, "heavy"))
        assert heard.now["heavy"].overhead == {"sgx_epc": 3 << 20}
        static = heard.now[f"fixed-{node.kubelet.plan.node}"]
        mirror = await asyncio.to_thread(of_api, node, static.name)
        assert (static.uid, static.config_hash) == (mirror.config_hash, "")
        claims: Record = {"kubernetes.io/config.hash": heard.now["heavy"].uid, "kubernetes.io/config.source": "file"}
        await asyncio.to_thread(node.create, "forged", [container("app", "9Mi")], notes=claims)
        await hears(lambda: "forged" in heard.now)
        assert heard.now["forged"] != heard.now["heavy"]
        assert {heard.now[name].config_hash for name in ("forged", "heavy")} == {""}
        count = len(heard.events)
        assert await api.fetch("tdx") == ""
        assert len(heard.events) == count + 1
        tell(f"kubelet 1.37, Pods API: {len(heard.now)} pods as the API server has them")
        await asyncio.to_thread(node.delete, "heavy")
        await hears(lambda: "heavy" not in heard.now)

    with running_node() as node:
        heard_by(node, partial(story, node=node))
