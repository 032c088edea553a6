"""A real kube-apiserver with a node, our account with its rights, and NFD as far as objects go."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from nodeward.aio.clock import SystemClock
from nodeward.doubles.nfd import KATA_RULE, NfdMaster, worker_object
from nodeward.transport.kube_http import Endpoint, KubeHttp, Waits
from nodeward.wire.nfd import object_name
from tests.patience import scaled
from tests.peers.kube import ApiServer, running_apiserver
from tests.peers.kubeclient import ApiError, KubeClient
from tests.peers.nriside import Record, member

HERE = Path(__file__).resolve().parent
DEPLOY = HERE.parents[1] / "deploy" / "node"
WITHIN_S = scaled(60.0)
KEYS = "tdx.intel.com/keys"
NFD = "node-feature-discovery"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
API = "/apis/nfd.k8s-sigs.io/v1alpha1"
OURS = f"{API}/namespaces/nodeward/nodefeatures"
THEIRS = f"{API}/namespaces/{NFD}/nodefeatures"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PLACES = {
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "Role": f"{RBAC}/namespaces/nodeward/roles",
    "RoleBinding": f"{RBAC}/namespaces/nodeward/rolebindings",
}
HOST = {"tdx.enabled": "true", "tdx.total_keys": "16", "sev.es.enabled": "true", "sev.encrypted_state_ids": "99"}


def asked(one: object) -> Record:
    assert isinstance(one, dict)
    return one


@dataclass(frozen=True, slots=True)
class Cluster:
    """An API server with our account, and a node."""

    server: ApiServer
    client: KubeClient

    @property
    def node(self) -> str:
        return self.server.node

    @property
    def ours(self) -> str:
        return f"{OURS}/{object_name(self.node)}"

    async def call(self, verb: str, path: str, body: object = None, kind: str = "application/json") -> Record:
        return await asyncio.to_thread(self.client.call, verb, path, None if body is None else asked(body), kind)

    async def find(self, path: str) -> Record | None:
        return await asyncio.to_thread(self.client.find, path)

    async def install(self) -> None:
        """NFD's kinds, its worker's object for the node, and Kata's rule."""
        for one in yaml.safe_load_all((HERE / "nfd_crds.yaml").read_text()):
            await self.call("POST", CRDS, one)
        async with asyncio.timeout(WITHIN_S):
            while True:
                with suppress(ApiError):  # 404 until it is served
                    await self.call("POST", f"{API}/nodefeaturerules", KATA_RULE)
                    await self.call("POST", THEIRS, worker_object(NFD, self.node, HOST))
                    return
                with suppress(ApiError):
                    await self.call("DELETE", f"{API}/nodefeaturerules/kata-tee-keys")
                await asyncio.sleep(0.1)

    async def remove(self) -> None:
        """NFD's kinds, and with them every object."""
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


def allow(client: KubeClient, user: str, *files: str) -> None:
    """Our namespace and NFD's; this user has the rights that these files of ours ask for."""
    for name in ("nodeward", NFD):
        client.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    for file in files:
        for one in yaml.safe_load_all((DEPLOY / file).read_text()):
            if "Binding" in one["kind"]:
                one["subjects"] = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]
            if one["kind"] in PLACES:
                client.call("POST", f"{PLACES[one['kind']]}?fieldValidation=Strict", one)


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """A cluster for as long as the block."""
    with tempfile.TemporaryDirectory(prefix="nwk") as folder, running_apiserver(Path(folder)) as server:
        client = KubeClient(server.base_url, server.ca_file, server.token)
        metadata: Record = {"name": server.node, "annotations": {"a-kubelet/has": "some"}}
        status: Record = {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}}
        client.call("POST", "/api/v1/nodes", {"metadata": metadata, "status": status})
        allow(client, "somebody", "rbac.yaml", "nfd.yaml")
        yield Cluster(server, client)


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
    """NFD's master, with an administrator's rights."""
    async with KubeHttp(cluster.endpoint(cluster.server.token), SystemClock(), user_agent="master") as http:
        yield _BesideKubelet(http, NFD)


async def capacity(cluster: Cluster) -> dict[str, str]:
    """The node's, of extended resources."""
    found = member(await cluster.call("GET", f"/api/v1/nodes/{cluster.node}"), "status")
    amounts = asked(found).get("capacity", {})
    return {name: str(text) for name, text in asked(amounts).items() if "/" in name}
