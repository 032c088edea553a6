"""NodeResourceTopology objects (topology.node.k8s.io/v1alpha2), as far as one node's goes: read, and made.

The API is cluster-scoped, and an object has its node's name, whoever writes it. Ours bears the label
`app.kubernetes.io/managed-by: nodeward`.

Must not: do I/O, or know what a zone should say.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from msgspec import Raw, Struct, field
from msgspec.json import Decoder

from nodeward.core.zones import NodeZones, Zone
from nodeward.neighbours.formats.kube_node import NODE
from nodeward.neighbours.formats.kube_objects import decode_bounded

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
