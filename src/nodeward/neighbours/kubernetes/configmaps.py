"""Finds which of CRI Resource Manager's ConfigMaps holds for this node, and follows it.

A node's own holds before that of its group; a node in no group has the default one. One replaces the other whole. A
group without a ConfigMap has the empty configuration, as CRI Resource Manager's agent has it.

Promises: each request ends within its bounds; every failure is a KubeError. What a watch says is not used, except that
something happened: what holds is listed anew, so no event can be missed or misread.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct
from msgspec.json import Decoder

from nodeward.core.errors import WireError
from nodeward.host.waits import first_of
from nodeward.neighbours.formats.kube_objects import (
    ENVELOPE,
    MAX_LINE_BYTES,
    Change,
    ListMetadata,
    decode_bounded,
)
from nodeward.neighbours.kubernetes.errors import KubeConfigError, errors_of
from nodeward.neighbours.kubernetes.node_marks import Marks, NodeObject, marks
from nodeward.neighbours.sockets.kube_http import KubeHttp, Waits
from nodeward.neighbours.sockets.kube_watch import until_news

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


_MAPS, _NODE_LIST, _NODE = Decoder(_ConfigMaps), Decoder(_Nodes), Decoder(NodeObject)


@dataclass(frozen=True, slots=True)
class SeenNode:
    """`group`: the node's label, empty where it has none, None where the API server has no such node."""

    group: str | None = None
    marks: Marks = field(default_factory=Marks)


def config_map(data: bytes) -> tuple[Mapping[str, str] | None, str]:
    """The data of the only ConfigMap of a list, None for an empty list, and the list's version."""
    found = decode_bounded(_MAPS, data, "list of ConfigMaps", MAX_BYTES)
    return (found.items[0].data or {} if found.items else None), found.metadata.resource_version


def node_of_list(data: bytes, label: str) -> tuple[SeenNode, str]:
    """The only Node of a list, and the list's version."""
    found = decode_bounded(_NODE_LIST, data, "list of nodes", MAX_BYTES)
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


_REQUEST: Final = Waits()
_RIGHTS: Final = "get, list and watch on configmaps in its namespace, and on nodes"
_NODES: Final = "/api/v1/nodes"


@dataclass(frozen=True, slots=True)
class Names:
    """The node, the namespace, and the names by which its configuration is found."""

    node: str
    namespace: str = "kube-system"
    configmap: str = "cri-resmgr-config"
    label: str = "cri-resource-manager.intel.com/group"

    def __post_init__(self) -> None:
        for what, name in (("node", self.node), ("namespace", self.namespace), ("ConfigMap's name", self.configmap)):
            plain = name.replace("-", "").replace(".", "")
            if not (plain.isascii() and plain.isalnum()) or len(name) > 253:
                raise KubeConfigError(
                    f"{what} {name[:64]!r} is no name of Kubernetes; give it as the API server has it"
                )


@dataclass(frozen=True, slots=True)
class Held:
    """What holds: the ConfigMap's name and data. `missing`: it is not there, and so the configuration is empty.
    `versions`: of what was listed, by path and name."""

    name: str
    config: Mapping[str, str]
    missing: bool
    node: SeenNode
    versions: Mapping[tuple[str, str], str]


class ConfigMapsClient:
    """Requests for one node, over connections that others may use too."""

    def __init__(self, http: KubeHttp, names: Names) -> None:
        self._http, self._names = http, names
        self._maps = f"/api/v1/namespaces/{names.namespace}/configmaps"

    async def look(self) -> Held:
        """What holds now."""
        names = self._names
        with errors_of(f"configuration of node {names.node}", _RIGHTS):
            node, at = node_of_list(await self._list(_NODES, names.node), names.label)
            own, below = f"{names.configmap}.node.{names.node}", f"{names.configmap}.default"
            if node.group:
                below = f"{names.configmap}.group.{node.group}"
            config, version = config_map(await self._list(self._maps, own))
            shared, shared_version = config_map(await self._list(self._maps, below))
        versions = {(_NODES, names.node): at, (self._maps, own): version, (self._maps, below): shared_version}
        name, found = (below, shared) if config is None else (own, config)
        return Held(name, found or {}, found is None, node, versions)

    async def _list(self, path: str, name: str) -> bytes:
        query = {"fieldSelector": f"metadata.name={name}", "limit": "1"}
        return await self._http.get(path, query, waits=_REQUEST, max_bytes=MAX_BYTES)

    async def until_touched(self, held: Held) -> None:
        """Returns when another configuration may hold than this one, or after a while."""
        with errors_of(f"watch for node {self._names.node}", _RIGHTS):
            await first_of(*(self._watch(*at, version, held) for at, version in held.versions.items()))

    async def _watch(self, path: str, name: str, version: str, held: Held) -> None:
        is_news = None if path != _NODES else lambda line: node_now(line, self._names.label) != held.node
        await until_news(self._http, path, is_news, fieldSelector=f"metadata.name={name}", resourceVersion=version)
