"""The API servers the contract is checked on: the double, and a real kube-apiserver when one is named.

    NODEWARD_KUBE_APISERVER="https://127.0.0.1:6443 TOKEN [CA_FILE [ETCD_URL]]"

Without a CA file the server's certificate is not verified, and without the URL of its etcd the case is skipped in which
old versions are compacted. The token must be able to create and delete pods in the namespace `default` (the `default`
ServiceAccount has to exist there). With NODEWARD_REQUIRE_ALL=1 what is missing fails instead of being skipped.
"""

import asyncio
import base64
import json
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NoReturn
from urllib.parse import urlencode

import aiohttp
import pytest

from nodeward.neighbours.sockets.kube_http import Endpoint
from nodeward_sim.doubles.apiserver import ApiServer
from tests.patience import scaled

VARIABLE = "NODEWARD_KUBE_APISERVER"
Json = dict[str, object]

_KINDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_KIND: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.contract.nodeward.io"},
    "spec": {
        "group": "contract.nodeward.io",
        "scope": "Namespaced",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        ],
    },
}


class OnDouble:
    """The double, driven by its methods. On either, `expired_watch` is the path and query of a watch from a version
    that is no longer kept, and `compact` has older versions forgotten: what this page, by path and query, is answered
    once its own is among them."""

    bookmark_within_s = 3
    """A watch of so many seconds has a bookmark in it while pods change anywhere."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self.endpoint = Endpoint(server.url, token="good")

    async def create_pod(self, name: str, node: str) -> None:
        self._server.add_pod(manifest(name, node))

    async def delete_pod(self, name: str) -> None:
        self._server.delete_pod("default", name)

    async def expired_watch(self) -> str:
        old = self._server.version
        self._server.add_pod(manifest("compacted", "n2"))
        self._server.compact()
        return f"/api/v1/pods?watch=1&timeoutSeconds=2&resourceVersion={old}"

    async def compact(self, page: str) -> Json:
        self._server.compact()
        async with http(self.endpoint) as session, session.get(page) as answer:
            assert answer.status == 410, await answer.text()
            found: Json = await answer.json()
            return found


class OnReal:
    """A real kube-apiserver, driven over HTTP by plain aiohttp: nothing of ours can agree with itself."""

    bookmark_within_s = 10

    def __init__(self, endpoint: Endpoint, etcd_url: str) -> None:
        self.endpoint, self._etcd_url = endpoint, etcd_url
        self._made: list[str] = []
        self._kind = False

    async def create_pod(self, name: str, node: str) -> None:
        self._made.append(name)
        await self._send("POST", "/api/v1/namespaces/default/pods", 201, manifest(name, node))

    async def delete_pod(self, name: str) -> None:
        self._made.remove(name)
        await self._send("DELETE", f"/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds=0", 200)

    async def expired_watch(self) -> str:
        """On a kind made just now: its watch cache begins later than version 1 (that of pods may not)."""
        await self._send("POST", _KINDS, 201, _KIND)
        self._kind = True
        path = "/apis/contract.nodeward.io/v1/things?watch=1&timeoutSeconds=2&resourceVersion=1"
        async with http(self.endpoint) as session:
            while True:  # bounded by the case's minute; 404 and 429 until the kind is served
                async with session.get(path) as answer:
                    if answer.status == 200:
                        return path
                await asyncio.sleep(0.1)

    async def compact(self, page: str) -> Json:
        """etcd is told, and the API server by the key in which API servers tell one another. It looks there every 15
        seconds, and until then gives pages from its own memory."""
        if not self._etcd_url:
            not_named(f"{VARIABLE} names no etcd by which versions could be compacted")
        async with aiohttp.ClientSession(self._etcd_url) as etcd:
            version = str(at(await _told(etcd, "range", key="/"), "header", "revision"))
            await _told(etcd, "compaction", revision=version)
            await _told(etcd, "put", key="compact_rev_key", value=version)
        async with http(self.endpoint) as session:
            while True:  # bounded by the case's minute
                async with session.get(page) as answer:
                    found: Json = await answer.json()
                    if answer.status != 200:
                        assert answer.status == 410, found
                        return found
                await asyncio.sleep(0.1)

    async def clean(self) -> None:
        if self._kind:
            await self._send("DELETE", f"{_KINDS}/things.contract.nodeward.io", 200)
        for name in list(self._made):
            await self.delete_pod(name)

    async def _send(self, verb: str, path: str, expected: int, body: Json | None = None) -> None:
        async with http(self.endpoint) as session, session.request(verb, path, json=body) as answer:
            assert answer.status == expected, await answer.text()


Adapter = OnDouble | OnReal


async def _told(etcd: aiohttp.ClientSession, call: str, *, revision: str = "", **texts: str) -> Json:
    """What etcd's HTTP gateway answers to a call on keys; it takes bytes as base64."""
    body: Json = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
    if revision:
        body["revision"] = revision
    async with etcd.post(f"/v3/kv/{call}", json=body) as answer:
        assert answer.status == 200, await answer.text()
        found: Json = await answer.json()
        return found


def manifest(name: str, node: str) -> Json:
    container: Json = {"name": "c", "image": "localhost/none:1"}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"nodeName": node, "containers": [container]}}


def http(endpoint: Endpoint, token: str | None = None) -> aiohttp.ClientSession:
    """A plain session on the server, with its good token unless another is given."""
    context: ssl.SSLContext | bool = True
    if endpoint.base_url.startswith("https:"):
        context = ssl.create_default_context(cafile=endpoint.ca_file or None)
        if not endpoint.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
    return aiohttp.ClientSession(
        endpoint.base_url,
        headers={"Authorization": f"Bearer {token if token is not None else endpoint.token}"},
        connector=aiohttp.TCPConnector(ssl=context),
        timeout=aiohttp.ClientTimeout(total=30),
    )


@asynccontextmanager
async def opened(kind: str) -> AsyncIterator[Adapter]:
    """The server of this kind, within a minute, left as it was found."""
    async with asyncio.timeout(scaled(60)):
        if kind == "double":
            async with ApiServer(tokens=("good",)) as server:
                yield OnDouble(server)
            return
        real = OnReal(*real_server(os.environ))
        try:
            yield real
        finally:
            await real.clean()


def real_server(environ: Mapping[str, str]) -> tuple[Endpoint, str]:
    """Where the real server is, and the URL of its etcd or nothing; skips the test, or fails it where all are
    required."""
    words = environ.get(VARIABLE, "").split()
    if not 2 <= len(words) <= 4:
        not_named(f'{VARIABLE} is not set to "URL TOKEN [CA_FILE [ETCD_URL]]": no real kube-apiserver to check against')
    url, token, ca_file, etcd_url = (*words, "", "")[:4]
    return Endpoint(url.rstrip("/"), token=token, ca_file=ca_file, verify=bool(ca_file)), etcd_url


def not_named(text: str) -> NoReturn:
    """Skips the test, or fails it where all are required."""
    if os.environ.get("NODEWARD_REQUIRE_ALL") == "1":
        pytest.fail(text)
    pytest.skip(text)


async def listed(session: aiohttp.ClientSession, **query: str) -> Json:
    async with session.get(f"/api/v1/pods?{urlencode(query)}") as answer:
        assert answer.status == 200, await answer.text()
        body: Json = await answer.json()
        return body


def at(value: object, *path: str) -> object:
    for key in path:
        assert isinstance(value, dict), f"no {key} in {value!r}"
        value = value[key]
    return value


def items(body: Json) -> list[str]:
    found = body["items"]
    assert isinstance(found, list)
    return [str(at(one, "metadata", "name")) for one in found]


async def watched(session: aiohttp.ClientSession, **query: str) -> AsyncIterator[Json]:
    async for event in watched_at(session, f"/api/v1/pods?{urlencode({'watch': '1', **query})}"):
        yield event


async def watched_at(session: aiohttp.ClientSession, path: str) -> AsyncIterator[Json]:
    async with session.get(path) as answer:
        if answer.status != 200:
            yield {"type": "ERROR", "object": await answer.json()}
            return
        async for line in answer.content:
            event: Json = json.loads(line)
            yield event
