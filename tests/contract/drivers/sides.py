"""The ends of the contract of kubelet's manager of claims: the double, and a real kubelet joined to a real API server,
where the test allocates claims itself, since no scheduler stands between.
"""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from nodeward.host.clock import SystemClock
from nodeward.host.hostfs import OsFiles
from nodeward.neighbours.formats import kubelet_claims
from nodeward.neighbours.formats.kubelet_claims import KubeletClaim
from nodeward_sim.doubles.kubelet_claims import KubeClaim, PrepareError, SimClaims
from tests.contract.kubelet.sides import Cases, Looped
from tests.peers.containerd import IMAGE
from tests.peers.daemon import until
from tests.peers.dradriver import DraDriver
from tests.peers.keynode import PODS, KeyNode, key_node
from tests.peers.kubeclient import MERGE
from tests.peers.nriside import Json, Record, member, objects, text

RETRY_S = 0.2
RESOURCES = "/apis/resource.k8s.io/v1"
CLAIMS, SLICES = f"{RESOURCES}/namespaces/default/resourceclaims", f"{RESOURCES}/resourceslices"


class DoubleSide(Looped):
    """On either side `root` is kubelet's --root-dir; `claim` makes and allocates one and gives its UID; `says` is what
    is told of a pod whose claims are not prepared; `publish` puts a driver's slice of this node there; after `restart`
    kubelet was killed and is back."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._slices: dict[str, None] = {}
        self._kubelet = SimClaims(str(root), OsFiles(), SystemClock(), self._wipe)
        super().__init__()
        self._claims: dict[str, KubeClaim] = {}
        self._pods: dict[str, asyncio.Task[None]] = {}
        self._said: dict[str, str] = {}
        self.do(self._kubelet.start())

    def claim(self, name: str, driver: str) -> str:
        self._claims[name] = KubeClaim("default", name, f"uid-{name}", (driver,))
        return self._claims[name].uid

    def create(self, pod: str, claim: str) -> None:
        async def made() -> None:
            self._said[pod] = ""
            self._pods[pod] = asyncio.create_task(self._live(pod, self._claims[claim]))

        self.do(made())

    def runs(self, pod: str) -> bool:
        return self._said.get(pod) == "Running"

    def says(self, pod: str) -> str:
        return self._said.get(pod, "")

    def delete(self, pod: str) -> None:
        async def ended() -> None:
            self._pods[pod].cancel()
            await asyncio.gather(self._pods[pod], return_exceptions=True)
            self._pods[pod] = asyncio.create_task(self._end(pod))

        self.do(ended())

    def is_gone(self, pod: str) -> bool:
        return pod not in self._pods

    def publish(self, driver: str) -> None:
        self._slices[driver] = None

    def published(self, driver: str) -> bool:
        return driver in self._slices

    def restart(self) -> None:
        self.do(self._kubelet.stop())
        self.do(self._kubelet.start())

    def close(self) -> None:
        self.do(self._kubelet.stop())
        super().close()

    def _wipe(self, driver: str) -> None:
        for one in [one for one in self._slices if driver in ("", one)]:
            del self._slices[one]

    async def _live(self, pod: str, claim: KubeClaim) -> None:
        while True:
            try:
                await self._kubelet.prepare(f"uid-{pod}", [claim])
            except PrepareError as error:
                self._said[pod] = str(error)
                await asyncio.sleep(RETRY_S)
                continue
            self._said[pod] = "Running"
            return

    async def _end(self, pod: str) -> None:
        while await self._kubelet.unprepare(f"uid-{pod}"):
            await asyncio.sleep(RETRY_S)
        del self._pods[pod], self._said[pod]


class RealSide:
    def __init__(self, node: KeyNode) -> None:
        self._node, self._api = node, node.api
        self.root = node.root

    def claim(self, name: str, driver: str) -> str:
        request: Record = {"name": "one", "exactly": {"deviceClassName": "any"}}
        made = self._api.call(
            "POST", CLAIMS, {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
        )
        result: Record = {"request": "one", "driver": driver, "pool": "p", "device": "d"}
        status: Record = {"allocation": {"devices": {"results": [result]}}}
        self._api.call("PATCH", f"{CLAIMS}/{name}/status", {"status": status}, MERGE)
        return str(member(made, "metadata", "uid"))

    def create(self, pod: str, claim: str) -> None:
        own: Record = {"claims": [{"name": "own"}]}
        app: Json = {"name": "app", "image": IMAGE, "imagePullPolicy": "Never", "resources": own}
        spec: Record = {
            "nodeName": self._node.name,
            "terminationGracePeriodSeconds": 1,
            "containers": [app],
            "resourceClaims": [{"name": "own", "resourceClaimName": claim}],
        }
        made = self._api.call("POST", PODS, {"metadata": {"name": pod}, "spec": spec})
        path = f"{CLAIMS}/{claim}"
        before = objects(member(self._api.find(path) or {}, "status", "reservedFor"))
        mine: Record = {"resource": "pods", "name": pod, "uid": str(member(made, "metadata", "uid"))}
        status: Record = {"reservedFor": [*before, mine]}
        self._api.call("PATCH", f"{path}/status", {"status": status}, MERGE)

    def runs(self, pod: str) -> bool:
        return self._node.runs(pod)

    def says(self, pod: str) -> str:
        every = objects(self._api.call("GET", "/api/v1/namespaces/default/events").get("items"))
        of = [one for one in every if member(one, "involvedObject", "name") == pod]
        return "\n".join(text(one, "message") for one in of)

    def delete(self, pod: str) -> None:
        self._api.call("DELETE", f"{PODS}/{pod}")

    def is_gone(self, pod: str) -> bool:
        return self._api.find(f"{PODS}/{pod}") is None

    def publish(self, driver: str) -> None:
        pool: Record = {"name": self._node.name, "generation": 1, "resourceSliceCount": 1}
        spec: Record = {"driver": driver, "nodeName": self._node.name, "pool": pool, "devices": [{"name": "d"}]}
        body: Record = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": driver}}
        self._api.call("POST", SLICES, {**body, "spec": spec})

    def published(self, driver: str) -> bool:
        return self._api.find(f"{SLICES}/{driver}") is not None

    def restart(self) -> None:
        self._node.restart()


Side = DoubleSide | RealSide


@dataclass(slots=True)
class Node:
    side: Side
    driver: str
    left: list[str] = field(default_factory=list)

    def instance(self, name: str = "") -> DraDriver:
        return DraDriver(self.driver, self.side.root, name)

    @contextmanager
    def registered(self, driver: DraDriver | None = None) -> Iterator[DraDriver]:
        of = driver if driver is not None else self.instance()
        with of.running():
            until(lambda: of.told[-1:] == [(True, "")], f"{of.door} is registered")
            yield of

    def claim(self) -> tuple[str, str]:
        """Name and UID of a claim that pods may have."""
        name = self.driver.partition(".")[0]
        return name, self.side.claim(name, self.driver)

    def create(self, pod: str, claim: str) -> None:
        self.left.append(pod)
        self.side.create(pod, claim)

    def run(self, pod: str, claim: str) -> None:
        self.create(pod, claim)
        until(lambda: self.side.runs(pod), f"{pod} runs")

    def end(self, pod: str) -> None:
        self.side.delete(pod)
        until(lambda: self.side.is_gone(pod), f"{pod} is gone")
        self.left.remove(pod)

    def known(self) -> list[KubeletClaim]:
        """The claims of the driver in kubelet's checkpoint."""
        place = self.side.root / kubelet_claims.PLACE
        found = kubelet_claims.decode(place.read_bytes()) if place.exists() else ()
        return [one for one in found if one.name.startswith(self.driver.partition(".")[0])]


@contextmanager
def opened(side: str) -> Iterator[Side]:
    if side == "real":
        with key_node() as node:
            until(lambda: (node.root / "plugins_registry").is_dir(), "kubelet watches its plugins")
            yield RealSide(node)
        return
    with tempfile.TemporaryDirectory(prefix="dra") as folder, closing(DoubleSide(Path(folder))) as double:
        yield double


def play(cases: Cases[Node], case: str, side: Side) -> None:
    """Plays it with a driver of its own, whose name is short: it is in the paths of sockets. No pod of it is left."""
    node = Node(side, f"d{list(cases).index(case)}.io")
    cases[case](node)
    assert node.left == []
