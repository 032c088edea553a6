"""BalloonsPolicy and TopologyAwarePolicy objects of `config.nri/v1alpha1`, as far as one node reads and writes them.

Promises: a spec is handed on as it was sent, for the settings' own reader; of a status only this node's part is read.
Must not: do I/O, or judge a spec.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Raw, Struct, field
from msgspec.json import Decoder

from nodeward.core.errors import WireError
from nodeward.neighbours.formats.kube_objects import ENVELOPE, Change, ListMetadata, decode_bounded
from nodeward.neighbours.kubernetes.policy_object import PolicyKind, PolicyObject, Said

API = "/apis/config.nri/v1alpha1"
PLURALS: Mapping[PolicyKind, str] = {
    PolicyKind.BALLOONS: "balloonspolicies",
    PolicyKind.TOPOLOGY_AWARE: "topologyawarepolicies",
}
GROUP_LABELS = ("config.nri/group", "group.config.nri", "resource-policy.nri.io/group")
"""A node's group; the first that is there counts. The last two are deprecated."""
MAX_BYTES = 8 * 1024 * 1024
"""An object in etcd is at most 1.5 MiB; JSON may triple it."""
MAX_SPEC_BYTES = 1024 * 1024
MAX_ERRORS = 1024
"""Characters of what is written into a status, where each node that an object means writes its own."""


class _Metadata(Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None


class _NodeStatus(Struct, frozen=True):
    status: str = ""
    generation: int = 0
    errors: str | None = None


class _Status(Struct, frozen=True):
    nodes: dict[str, Raw] | None = None


class _Object(Struct, frozen=True):
    metadata: _Metadata
    spec: Raw = field(default_factory=lambda: Raw(b"{}"))
    status: _Status | None = None


class _Labelled(Struct, frozen=True):
    metadata: _Metadata


class _List(Struct, frozen=True):
    metadata: ListMetadata


_OBJECT, _LABELLED, _LIST = Decoder(_Object), Decoder(_Labelled), Decoder(_List)
_NODE_STATUS = Decoder(_NodeStatus)


def policy_object(data: bytes, kind: PolicyKind, node: str) -> PolicyObject:
    """One object."""
    found = decode_bounded(_OBJECT, data, kind.value, MAX_BYTES)
    spec, nodes = bytes(found.spec), (found.status.nodes or {}) if found.status is not None else {}
    if len(spec) > MAX_SPEC_BYTES:
        raise WireError(kind.value, f"a spec of {len(spec)} bytes: at most {MAX_SPEC_BYTES} are read")
    said = _said(bytes(nodes[node])) if node in nodes else None
    of = found.metadata
    return PolicyObject(kind, of.namespace, of.name, of.uid, of.generation, spec, said)


def _said(data: bytes) -> Said:
    """This node's part of a status; one that cannot be read is none that we wrote."""
    try:
        found = _NODE_STATUS.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Said("", 0)
    return Said(found.status, found.generation, found.errors or "")


def version_of(data: bytes) -> str:
    """The version of a list, from which a watch goes on."""
    return decode_bounded(_LIST, data, "list of policy objects", MAX_BYTES).metadata.resource_version


def touched(line: bytes) -> tuple[str, tuple[str, int] | None]:
    """The object's name and mark in a line of a watch, None for a deleted one. The name is empty where the line is a
    bookmark. WireError where the server ends the watch."""
    found = decode_bounded(ENVELOPE, line, "watch event", MAX_BYTES)
    if found.type is Change.ERROR:
        raise WireError("watch on policy objects", "the server ended it")
    if found.type is Change.BOOKMARK:
        return "", None
    of = decode_bounded(_LABELLED, bytes(found.object), "watch event", MAX_BYTES).metadata
    return of.name, None if found.type is Change.DELETED else (of.uid, of.generation)


def group(data: bytes) -> str:
    """The group of a Node; empty for none."""
    labels = decode_bounded(_LABELLED, data, "node", MAX_BYTES).metadata.labels or {}
    return next((labels[key] for key in GROUP_LABELS if key in labels), "")


def group_in(line: bytes) -> str:
    """The same from a line of a watch on it."""
    found = decode_bounded(ENVELOPE, line, "watch event", MAX_BYTES)
    if found.type is Change.ERROR:
        raise WireError("watch on the node", "the server ended it")
    return group(bytes(found.object))


def status_patch(node: str, said: Said | None, at: str) -> bytes:
    """A merge patch of a status: what it says of the node since the time `at` (RFC 3339); None takes it away."""
    entry: object = None
    if said is not None:
        entry = {
            "status": said.status,
            "generation": said.generation,
            "errors": said.errors[:MAX_ERRORS] or None,
            "timestamp": at,
        }
    return msgspec.json.encode({"status": {"nodes": {node: entry}}})
