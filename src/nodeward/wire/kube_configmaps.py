"""ConfigMaps and a Node's label, as far as CRI Resource Manager's configuration goes: lists of one object by its name.

Must not: do I/O, or know which ConfigMap holds.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.json import Decoder

from nodeward.wire.errors import WireError
from nodeward.wire.kube_objects import ENVELOPE, MAX_LINE_BYTES, Change, ListMetadata, decode_bounded

MAX_BYTES: Final = MAX_LINE_BYTES
"""A ConfigMap is at most 1 MiB; JSON may triple it."""


class _ConfigMap(Struct, frozen=True):
    data: dict[str, str] | None = None


class _ConfigMaps(Struct, frozen=True):
    metadata: ListMetadata
    items: tuple[_ConfigMap, ...] | None = None


class _NodeMetadata(Struct, frozen=True):
    labels: dict[str, str] | None = None


class _Node(Struct, frozen=True):
    metadata: _NodeMetadata = _NodeMetadata()


class _Nodes(Struct, frozen=True):
    metadata: ListMetadata
    items: tuple[_Node, ...] | None = None


_MAPS, _NODES, _NODE = Decoder(_ConfigMaps), Decoder(_Nodes), Decoder(_Node)


def config_map(data: bytes) -> tuple[Mapping[str, str] | None, str]:
    """The data of the only ConfigMap of a list, None where there is none, and the list's version."""
    found = decode_bounded(_MAPS, data, "list of ConfigMaps", MAX_BYTES)
    return (found.items[0].data or {} if found.items else None), found.metadata.resource_version


def label(data: bytes, name: str) -> tuple[str | None, str]:
    """The label of the only Node of a list, empty where it has none, None where there is no Node; the list's
    version."""
    found = decode_bounded(_NODES, data, "list of nodes", MAX_BYTES)
    return ((found.items[0].metadata.labels or {}).get(name, "") if found.items else None), (
        found.metadata.resource_version
    )


def label_now(line: bytes, name: str) -> str | None:
    """The Node's label as in `label`, from a line of a watch on it; WireError where the server ends the watch."""
    event = decode_bounded(ENVELOPE, line, "watch event", MAX_BYTES)
    if event.type is Change.ERROR:
        raise WireError("watch on the node", "the server ended it")
    if event.type is Change.DELETED:
        return None
    node = decode_bounded(_NODE, bytes(event.object), "node", MAX_BYTES)
    return (node.metadata.labels or {}).get(name, "")
