"""A real kube-apiserver with what tests do there: our manifests, tokens of accounts, and refusals."""

from __future__ import annotations

import json
import re
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import yaml

from nodeward.features.settings import KubeSection
from tests.pages import ROOT
from tests.peers.daemon import WITHIN_S, until
from tests.peers.kube import ApiServer, running_apiserver
from tests.peers.kubeclient import ApiError, KubeClient
from tests.peers.nriside import Json, Record, member
from tests.peers.relay import Relay

DEPLOY: Final = ROOT / "deploy"
JSON: Final = "application/json"
PODS: Final = "/api/v1/namespaces/default/pods"
NODES: Final = "/api/v1/nodes"
DEFINITIONS: Final = ROOT / "tests" / "real"
"""Where our own definitions of others' kinds are."""


def manifests(file: str | Path) -> list[Record]:
    """The objects of a file of deploy, or of another one."""
    return list(yaml.safe_load_all((DEPLOY / file).read_text()))


def record(value: Mapping[str, object]) -> Record:
    """The same value as the client's type."""
    found: Record = json.loads(json.dumps(value))
    return found


def listed(value: object) -> list[Record]:
    assert isinstance(value, list)
    return [one for one in value if isinstance(one, dict)]


def part(value: object, *path: str) -> Record:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    assert isinstance(value, dict)
    return value


def place_of(one: Record) -> str:
    """Where objects of its kind are made."""
    namespace = member(one, "metadata", "namespace")
    kind = re.sub("ys$", "ies", re.sub("sss$", "sses", f"{str(one['kind']).lower()}s"))
    group = f"/api{'' if one['apiVersion'] == 'v1' else 's'}/{one['apiVersion']}"
    return f"{group}/namespaces/{namespace}/{kind}" if namespace else f"{group}/{kind}"


def make(client: KubeClient, *made: Record) -> Record:
    """Makes the objects, of which no field may be unknown; the last one, as it is stored."""
    found: Record = {}
    for one in made:
        found = client.call("POST", f"{place_of(one)}?fieldValidation=Strict", one)
    return found


def refusal(
    client: KubeClient, verb: str, path: str, body: Mapping[str, object] | None = None, kind: str = JSON
) -> str:
    """The status and the words with which the server says no; empty where it does it."""
    try:
        client.call(verb, path, None if body is None else record(body), kind)
    except ApiError as error:
        return f"{error.status} {error}".replace("\\u003c", "<").replace("\\u003e", ">").replace('\\"', '"')
    return ""


def is_served(client: KubeClient, path: str) -> bool:
    """Whether the server knows the kind by now and has its storage: 404 until then, and 429."""
    try:
        return client.find(path) is not None
    except ApiError as error:
        if error.status != 429:
            raise
        return False


def define(client: KubeClient, *files: str) -> None:
    """Kinds of others, once they are served."""
    for one in (one for file in files for one in manifests(DEFINITIONS / file)):
        make(client, one)
        group, kinds = member(one, "spec", "group"), member(one, "spec", "names", "plural")
        for version in listed(part(one, "spec")["versions"]):
            until(partial(is_served, client, f"/apis/{group}/{version['name']}/{kinds}"), f"{kinds} are served")


def allow(client: KubeClient, user: str, *files: str) -> None:
    """Has this user the rights that these files of ours ask for, in the namespaces that they name."""
    for one in (one for file in files for one in manifests(file)):
        kind, namespace = str(one["kind"]), member(one, "metadata", "namespace")
        if namespace and client.find(f"/api/v1/namespaces/{namespace}") is None:
            client.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        if kind.endswith("Binding"):
            one["subjects"] = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]
        if "Role" in kind:
            make(client, one)


def token_of(client: KubeClient, account: str, bound: Record | None = None) -> str:
    """A token of an account, `NAMESPACE/NAME`; with `bound`, an object as it is stored, it ends with that."""
    namespace, _, name = account.partition("/")
    asked: Record = {"expirationSeconds": 3600}
    if bound is not None:
        kind, metadata = bound.get("kind"), part(bound, "metadata")
        asked["boundObjectRef"] = {"kind": kind, "apiVersion": "v1", "name": metadata["name"], "uid": metadata["uid"]}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    return str(member(client.call("POST", path, {"spec": asked}), "status", "token"))


def claim_template(name: str, requests: list[Json], **more: Json) -> Record:
    """Of claims in the namespace `default`. `more`: the device claim's other fields."""
    metadata: Record = {"name": name, "namespace": "default"}
    spec: Record = {"spec": {"devices": {"requests": requests, **more}}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec}


def pod_on(client: KubeClient, node: str, account: str) -> Record:
    """A pod of the account there, to which a token can be bound."""
    namespace, _, name = account.partition("/")
    spec: Record = {"nodeName": node, "serviceAccountName": name, "containers": [{"name": "app", "image": "none"}]}
    metadata: Record = {"name": f"{name}-{node}"}
    return client.call("POST", f"/api/v1/namespaces/{namespace}/pods", {"metadata": metadata, "spec": spec})


@dataclass(frozen=True, slots=True)
class Cluster:
    server: ApiServer
    client: KubeClient

    def user(self, token: str) -> KubeClient:
        return KubeClient(self.server.base_url, self.server.ca_file, token)

    def metrics(self) -> list[str]:
        trust = ssl.create_default_context(cafile=str(self.server.ca_file))
        asked = Request(f"{self.server.base_url}/metrics", headers={"Authorization": f"Bearer {self.server.token}"})
        with urlopen(asked, timeout=WITHIN_S, context=trust) as answer:
            return str(answer.read().decode()).splitlines()

    def section(self, folder: Path, url: str = "") -> KubeSection:
        """The settings of who has no rights but those that he was given, with a token in the folder."""
        (folder / "token").write_text(self.server.plain_token)
        ca_file = str(self.server.ca_file)
        return KubeSection(url=url or self.server.base_url, token_file=f"{folder}/token", ca_file=ca_file, events=False)


@contextmanager
def running_cluster(*nodes: str, own: str = "node-1") -> Iterator[Cluster]:
    """For as long as the block, with these nodes and the namespace `default`; the token of a node is `own`'s."""
    with tempfile.TemporaryDirectory(prefix="nwk") as folder, running_apiserver(Path(folder), own) as server:
        client = KubeClient(server.base_url, server.ca_file, server.token)
        for node in nodes:
            client.call("POST", NODES, {"metadata": {"name": node}})
        until(lambda: client.find("/api/v1/namespaces/default") is not None, "the default namespace is there")
        yield Cluster(server, client)


class Way(Relay):
    """The way to the API server, which can be cut: whoever was connected has to come again."""

    def cut(self) -> None:
        super().cut()
        self.mend()


@contextmanager
def way_to(server: ApiServer) -> Iterator[Way]:
    way = Way("127.0.0.1", urlsplit(server.base_url).port or 0)
    try:
        yield way
    finally:
        Relay.cut(way)


def words(value: object) -> list[str]:
    assert isinstance(value, list)
    return [str(word) for word in value]
