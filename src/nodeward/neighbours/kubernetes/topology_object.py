"""Reads, writes and deletes this node's NodeResourceTopology object.

Promises: every failure is a KubeError that says what to do; every wait and every body is bounded; nothing is tried
twice here. Must not: choose what the object says, or touch one that is not ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from msgspec import Raw, Struct, field
from msgspec.json import Decoder

from nodeward.core.errors import WireError
from nodeward.core.topology import NodeZones, Zone
from nodeward.host.clock import Clock
from nodeward.neighbours.formats.kube_node import NODE
from nodeward.neighbours.formats.kube_objects import decode_bounded
from nodeward.neighbours.kubernetes.errors import (
    KubeError,
    KubeExpiredError,
    KubeGarbageError,
    KubeMissingError,
    from_transport,
)
from nodeward.neighbours.kubernetes.events import MERGE_PATCH
from nodeward.neighbours.kubernetes.settings import KubeSettings
from nodeward.neighbours.sockets.kube_http import KubeHttp, KubeHttpError, KubeRefusedError, Waits

VERSION = "topology.node.k8s.io/v1alpha2"
OBJECTS = f"/apis/{VERSION}/noderesourcetopologies"
MAX_BYTES = 8 * 1024 * 1024
"""An object in etcd is at most 1.5 MiB; JSON may triple it."""
_MANAGED_BY, _OURS = "app.kubernetes.io/managed-by", "nodeward"
_MOST_WRITERS = 5


class _Entry(Struct, frozen=True):
    manager: str = ""


class _Metadata(Struct, frozen=True, rename="camel"):
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    managed_fields: tuple[_Entry, ...] | None = None


class _Object(Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    zones: Raw = field(default_factory=lambda: Raw(b"[]"))
    attributes: Raw = field(default_factory=lambda: Raw(b"[]"))


_OBJECT = Decoder(_Object)


@dataclass(frozen=True, slots=True)
class Found:
    """The object of a node. `others`: who else has written it, by the names of its field managers."""

    uid: str
    version: str
    ours: bool
    others: tuple[str, ...]
    zones: bytes
    attributes: bytes

    def says(self, wanted: NodeZones) -> bool:
        """Whether it is just what `body` makes."""
        try:
            there: object = [msgspec.json.decode(self.zones), msgspec.json.decode(self.attributes)]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        return there == [_zones(wanted), _attributes(wanted.attributes)]


def found(data: bytes) -> Found:
    """One object."""
    one = decode_bounded(_OBJECT, data, "NodeResourceTopology", MAX_BYTES)
    of = one.metadata
    managers = dict.fromkeys(entry.manager[:64] for entry in of.managed_fields or () if entry.manager != _OURS)
    ours = (of.labels or {}).get(_MANAGED_BY) == _OURS
    others = tuple(managers)[:_MOST_WRITERS]
    return Found(of.uid, of.resource_version, ours, others, bytes(one.zones), bytes(one.attributes))


def uid_of_node(data: bytes) -> str:
    """The uid of a Node."""
    return decode_bounded(NODE, data, "node", MAX_BYTES).metadata.uid


def body(node: str, uid: str, wanted: NodeZones) -> bytes:
    """Our object, which is deleted with its node."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
    metadata = {"name": node, "labels": {_MANAGED_BY: _OURS}, "ownerReferences": [owner]}
    said = {"zones": _zones(wanted), "attributes": _attributes(wanted.attributes)}
    return msgspec.json.encode({"apiVersion": VERSION, "kind": "NodeResourceTopology", "metadata": metadata, **said})


def patch(version: str, wanted: NodeZones) -> bytes:
    """The merge patch that makes this version of our object say it, and no newer one."""
    said = {"zones": _zones(wanted), "attributes": _attributes(wanted.attributes)}
    return msgspec.json.encode({"metadata": {"resourceVersion": version}, **said})


def deletion(uid: str) -> bytes:
    """The options by which this very object is deleted, and none in its place."""
    return msgspec.json.encode({"preconditions": {"uid": uid}})


def _zones(of: NodeZones) -> list[object]:
    return [_zone(one) for one in of.zones]


def _zone(one: Zone) -> dict[str, object]:
    zone: dict[str, object] = {"name": one.name, "type": one.type}
    if one.parent:
        zone["parent"] = one.parent
    if one.costs:
        zone["costs"] = [{"name": name, "value": value} for name, value in one.costs.items()]
    if one.cpu is not None:
        amounts = (one.cpu.capacity_m, one.cpu.allocatable_m, one.cpu.available_m)
        texts = zip(("capacity", "allocatable", "available"), map(_quantity, amounts), strict=True)
        zone["resources"] = [{"name": "cpu", **dict(texts)}]
    if one.attributes:
        zone["attributes"] = _attributes(one.attributes)
    return zone


def _attributes(of: Mapping[str, str]) -> list[object]:
    return [{"name": name, "value": value} for name, value in of.items()]


def _quantity(milli: int) -> str:
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


RIGHTS = "get, watch, create, patch and delete on noderesourcetopologies, and get on nodes"
WATCH_S = 240
_WATCH = Waits(connect_s=5.0, read_s=WATCH_S + 30.0, total_s=WATCH_S + 30.0)


class NotOursError(KubeError):
    """The object has another owner."""


class UnservedError(KubeError):
    """The kind is not served."""


class TopologyObjectClient:
    """Requests for one node."""

    def __init__(self, settings: KubeSettings, clock: Clock) -> None:
        self._settings, self.node = settings, settings.node_name
        self._path = f"{OBJECTS}/{self.node}"
        self._http = KubeHttp(
            settings.endpoint, clock, check_files_s=settings.check_files_s, user_agent=settings.user_agent
        )

    async def aclose(self) -> None:
        """Closes every connection."""
        await self._http.aclose()

    async def look(self) -> Found | None:
        """The object; None where there is none, or no such kind."""
        try:
            return found(await self._get(self._path))
        except KubeMissingError:
            return None
        except WireError as error:
            raise KubeGarbageError(f"GET {self._path}: {error}") from error

    async def write(self, wanted: NodeZones, old: Found | None) -> None:
        """Makes the object, or changes `old` where that is still the newest: of a conflict the next look tells."""
        if old is not None:
            self._check_ours(old)
            await self._send("PATCH", self._path, patch(old.version, wanted), MERGE_PATCH)
            return
        try:
            uid = uid_of_node(await self._get(f"/api/v1/nodes/{self.node}"))
        except WireError as error:
            raise KubeGarbageError(f"GET node {self.node}: {error}") from error
        try:
            await self._send("POST", OBJECTS, body(self.node, uid, wanted), "application/json")
        except KubeMissingError as error:
            raise UnservedError(
                f"NodeResourceTopology objects are not served ({VERSION}); install their "
                "CustomResourceDefinition, or set topology_objects.enabled to false"
            ) from error

    async def remove(self, found: Found) -> None:
        """Deletes this very object; none in its place."""
        self._check_ours(found)
        try:
            await self._send("DELETE", self._path, deletion(found.uid), "application/json")
        except KubeMissingError:
            return

    async def until_touched(self, version: str) -> None:
        """Returns when something has happened to the object since, or after a while. What happened is not looked at."""
        query = {"watch": "1", "fieldSelector": f"metadata.name={self.node}", "timeoutSeconds": str(WATCH_S)}
        try:
            async with self._http.stream(OBJECTS, {**query, "resourceVersion": version}, waits=_WATCH) as chunks:
                async for _ in chunks:
                    return
        except KubeHttpError as error:
            of = from_transport(error, RIGHTS)
            if not isinstance(of, KubeExpiredError | KubeMissingError):
                raise of from error

    def _check_ours(self, found: Found) -> None:
        if not found.ours:
            raise NotOursError(
                f"NodeResourceTopology {self.node} is not ours: it has no label app.kubernetes.io/managed-by: nodeward "
                f"({self.writers(found)}); stop who writes it on this node and delete it, or set "
                "topology_objects.enabled to false"
            )

    @staticmethod
    def writers(found: Found) -> str:
        """Who else has written it, in words."""
        return f"written by {', '.join(found.others) or 'somebody else'}"

    async def _get(self, path: str) -> bytes:
        try:
            return await self._http.get(path, {}, waits=self._settings.request, max_bytes=MAX_BYTES)
        except KubeHttpError as error:
            raise from_transport(error, RIGHTS) from error

    async def _send(self, verb: str, path: str, body: bytes, kind: str) -> None:
        try:
            await self._http.send(verb, path, body, kind, waits=self._settings.request)
        except KubeRefusedError as error:
            if error.status != 409:
                raise from_transport(error, RIGHTS) from error
        except KubeHttpError as error:
            raise from_transport(error, RIGHTS) from error
