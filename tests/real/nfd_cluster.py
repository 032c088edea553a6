"""A real kube-apiserver with a node, our account with its rights, and NFD as far as objects go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass

from nodeward.host.clock import SystemClock
from nodeward.neighbours.nfd.objects import object_name
from nodeward.neighbours.sockets.kube_http import Endpoint, KubeHttp, Waits
from nodeward_sim.doubles.nfd import KATA_RULE, NfdMaster, worker_object
from tests.patience import scaled
from tests.peers.kubeclient import ApiError
from tests.peers.nriside import Record, member
from tests.rigs import cluster as rig
from tests.rigs.cluster import part

WITHIN_S = scaled(60.0)
KEYS = "tdx.intel.com/keys"
NFD = "node-feature-discovery"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
API = "/apis/nfd.k8s-sigs.io/v1alpha1"
OURS = f"{API}/namespaces/nodeward/nodefeatures"
THEIRS = f"{API}/namespaces/{NFD}/nodefeatures"
HOST = {"tdx.enabled": "true", "tdx.total_keys": "16", "sev.es.enabled": "true", "sev.encrypted_state_ids": "99"}


@dataclass(frozen=True, slots=True)
class Cluster(rig.Cluster):
    @property
    def node(self) -> str:
        return self.server.node

    @property
    def ours(self) -> str:
        return f"{OURS}/{object_name(self.node)}"

    async def call(self, verb: str, path: str, body: object = None, kind: str = "application/json") -> Record:
        return await asyncio.to_thread(self.client.call, verb, path, None if body is None else part(body), kind)

    async def find(self, path: str) -> Record | None:
        return await asyncio.to_thread(self.client.find, path)

    async def numbers(self) -> dict[str, str] | None:
        """Those in our object; None where there is none."""
        found = await self.find(self.ours)
        return None if found is None else numbers_of(found)

    async def version(self) -> object:
        return member(await self.call("GET", self.ours), "metadata", "resourceVersion")

    async def install(self) -> None:
        """NFD's kinds, its worker's object for the node, and Kata's rule."""
        await asyncio.to_thread(rig.define, self.client, "nfd_crds.yaml")
        await self.call("POST", f"{API}/nodefeaturerules", KATA_RULE)
        await self.call("POST", THEIRS, worker_object(NFD, self.node, HOST))

    async def remove(self) -> None:
        for name in ("nodefeatures", "nodefeaturerules"):
            with suppress(ApiError):
                await self.call("DELETE", f"{CRDS}/{name}.nfd.k8s-sigs.io")
        async with asyncio.timeout(WITHIN_S):
            while await self.find(f"{CRDS}/nodefeatures.nfd.k8s-sigs.io") or await self.find(
                f"{CRDS}/nodefeaturerules.nfd.k8s-sigs.io"
            ):
                await asyncio.sleep(0.1)

    def endpoint(self, token: str) -> Endpoint:
        return Endpoint(self.server.base_url, ca_file=str(self.server.ca_file), token=token)


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    with rig.running_cluster() as found:
        client, node = found.client, found.server.node
        metadata: Record = {"name": node, "annotations": {"a-kubelet/has": "some"}}
        status: Record = {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}}
        client.call("POST", "/api/v1/nodes", {"metadata": metadata, "status": status})
        client.call("POST", "/api/v1/namespaces", {"metadata": {"name": NFD}})
        rig.allow(client, "somebody", "node/rbac.yaml", "node/nfd.yaml")
        yield Cluster(found.server, client)


def numbers_of(found: Record) -> dict[str, str]:
    elements = member(found, "spec", "features", "attributes", "cpu.security", "elements")
    assert isinstance(elements, dict)
    return {str(name): str(text) for name, text in elements.items()}


@asynccontextmanager
async def installed(cluster: Cluster) -> AsyncIterator[None]:
    await cluster.install()
    try:
        yield
    finally:
        await cluster.remove()


class _BesideKubelet(NfdMaster):
    """A master that comes once kubelet has made allocatable what capacity has: till then its patches fail."""

    async def reconcile(self, node: str) -> dict[str, str]:
        path = f"/api/v1/nodes/{node}"
        status = json.loads(await self.http.get(path, {}, waits=Waits(), max_bytes=1 << 20))["status"]
        missing = {name: text for name, text in status["capacity"].items() if name not in status["allocatable"]}
        body = json.dumps({"status": {"allocatable": missing}}).encode()
        await self.http.send("PATCH", f"{path}/status", body, "application/merge-patch+json", waits=Waits())
        return await super().reconcile(node)


@asynccontextmanager
async def master(cluster: Cluster) -> AsyncIterator[NfdMaster]:
    async with KubeHttp(cluster.endpoint(cluster.server.token), SystemClock(), user_agent="master") as http:
        yield _BesideKubelet(http, NFD)


async def capacity(cluster: Cluster) -> dict[str, str]:
    found = member(await cluster.call("GET", f"/api/v1/nodes/{cluster.node}"), "status")
    amounts = part(found).get("capacity", {})
    return {name: str(text) for name, text in part(amounts).items() if "/" in name}
