"""ConfigMaps and a Node's label and marks, as far as CRI Resource Manager's configuration goes: lists of one object by
its name.

Must not: do I/O, or know which ConfigMap holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct
from msgspec.json import Decoder

from nodeward.core.errors import WireError
from nodeward.neighbours.formats.kube_objects import ENVELOPE, MAX_LINE_BYTES, Change, ListMetadata, decode_bounded
from nodeward.neighbours.kubernetes.node_marks import Marks, NodeObject, marks

MAX_BYTES: Final = MAX_LINE_BYTES
"""A ConfigMap is at most 1 MiB; JSON may triple it."""


class _ConfigMap(Struct, frozen=True):
    data: dict[str, str] | None = None


class _ConfigMaps(Struct, frozen=True):
    metadata: ListMetadata
    items: tuple[_ConfigMap, ...] | None = None


class _Nodes(Struct, frozen=True):
    metadata: ListMetadata
    items: tuple[NodeObject, ...] | None = None


_MAPS, _NODES, _NODE = Decoder(_ConfigMaps), Decoder(_Nodes), Decoder(NodeObject)


@dataclass(frozen=True, slots=True)
class SeenNode:
    """`group`: the node's label, empty where it has none, None where the API server has no such node."""

    group: str | None = None
    marks: Marks = field(default_factory=Marks)


def config_map(data: bytes) -> tuple[Mapping[str, str] | None, str]:
    """The data of the only ConfigMap of a list, None where there is none, and the list's version."""
    found = decode_bounded(_MAPS, data, "list of ConfigMaps", MAX_BYTES)
    return (found.items[0].data or {} if found.items else None), found.metadata.resource_version


def node(data: bytes, label: str) -> tuple[SeenNode, str]:
    """The only Node of a list, and the list's version."""
    found = decode_bounded(_NODES, data, "list of nodes", MAX_BYTES)
    return (_seen(found.items[0], label) if found.items else SeenNode()), found.metadata.resource_version


def node_now(line: bytes, label: str) -> SeenNode:
    """The Node as in `node`, from a line of a watch on it; WireError where the server ends the watch."""
    event = decode_bounded(ENVELOPE, line, "watch event", MAX_BYTES)
    if event.type is Change.ERROR:
        raise WireError("watch on the node", "the server ended it")
    if event.type is Change.DELETED:
        return SeenNode()
    return _seen(decode_bounded(_NODE, bytes(event.object), "node", MAX_BYTES), label)


def _seen(found: NodeObject, label: str) -> SeenNode:
    return SeenNode((found.metadata.labels or {}).get(label, ""), marks(found))
