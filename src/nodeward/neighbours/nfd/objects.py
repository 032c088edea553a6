"""Node Feature Discovery's NodeFeature objects (nfd.k8s-sigs.io/v1alpha1), as far as TEE keys go: read, and made.

NFD's master merges all objects that bear a node's name in the label `nfd.node.kubernetes.io/node-name`: those of its
own namespace first, then by the object's name, then by namespace; of an attribute the last one counts
(features/keys, N2). Kata's unmodified rule puts `@cpu.security.tdx.total_keys` on the node, so an object of ours
that says the same attribute and sorts last sets that number.

Must not: do I/O, or know what a number should be.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec
from msgspec import Raw, Struct, field
from msgspec.json import Decoder

from nodeward.core.errors import WireError
from nodeward.core.modes import NFD_NUMBERS
from nodeward.neighbours.formats.kube_node import NODE
from nodeward.neighbours.formats.kube_objects import ENVELOPE, Change, ListMetadata, decode_bounded

API = "/apis/nfd.k8s-sigs.io/v1alpha1"
OBJECTS = f"{API}/nodefeatures"
NODE_LABEL = "nfd.node.kubernetes.io/node-name"
_PUT_THERE = re.compile(r"(?:.+\.)?nfd\.node\.kubernetes\.io/extended-resources")
"""The annotation of a node in which NFD's master keeps what it put there; one with `-instance` has that before it."""
_OF_NFD = "feature.node.kubernetes.io/"
"""What it leaves out of a resource's name."""
_MANAGED_BY, _OURS = "app.kubernetes.io/managed-by", "nodeward"
MAX_BYTES = 8 * 1024 * 1024
"""One page. An object in etcd is at most 1.5 MiB, and a page has four of them."""
PAGE = 4
MOST_OBJECTS = 10_000
"""In one page, of an API server that has never heard of pages."""
MAX_NAME = 253
_MOST_KEYS = 2**31


class _Owner(Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class _Annotations(Struct, frozen=True):
    worker: str | None = field(default=None, name="nfd.node.kubernetes.io/worker.version")


class _Metadata(Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: _Annotations | None = None
    owner_references: tuple[_Owner, ...] | None = None


class _Set(Struct, frozen=True):
    elements: dict[str, str] | None = None


class _Sets(Struct, frozen=True):
    security: _Set | None = field(default=None, name="cpu.security")


class _Features(Struct, frozen=True):
    attributes: _Sets | None = None


class _Spec(Struct, frozen=True):
    features: _Features | None = None


class _Object(Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: Raw = Raw(b"{}")


class _Page(Struct, frozen=True):
    metadata: ListMetadata = ListMetadata()
    items: tuple[_Object, ...] | None = None


class _Container(Struct, frozen=True):
    ready: bool = True


class _Life(Struct, frozen=True, rename="camel"):
    phase: str = ""
    container_statuses: tuple[_Container, ...] | None = None


class _Pod(Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    status: _Life = _Life()


class _Pods(Struct, frozen=True):
    items: tuple[_Pod, ...] | None = None


_PAGES, _OBJECT, _PODS, _SPEC = Decoder(_Page), Decoder(_Object), Decoder(_Pods), Decoder(_Spec)
_TEXT = Decoder(str)


@dataclass(frozen=True, slots=True)
class Owner:
    """What an object is deleted with."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class NodeFeature:
    """One object. `numbers` are those it says of keys, by the misc controller's name."""

    namespace: str
    name: str
    uid: str
    version: str
    node: str
    ours: bool
    """It bears our mark, whatever its name."""
    worker: bool
    """NFD's own worker made it."""
    going: bool
    """It is being deleted."""
    owners: tuple[Owner, ...]
    numbers: Mapping[str, int]
    spec: bytes
    """The whole spec of an object that bears our mark, as JSON; of others nothing is kept."""


def object_name(node: str) -> str:
    """The name of our object for a node. It sorts behind every name that begins with a letter below z."""
    name = f"zzz-nodeward-{node}"
    if len(name) <= MAX_NAME:
        return name
    return f"{name[: MAX_NAME - 17]}-{hashlib.sha256(node.encode()).hexdigest()[:16]}"


def page(data: bytes) -> tuple[tuple[NodeFeature, ...], str, str]:
    """The objects of one page of a list, its version, and the token of the next page."""
    found = decode_bounded(_PAGES, data, "list of NodeFeatures", MAX_BYTES)
    items = found.items or ()
    if len(items) > MOST_OBJECTS:
        raise WireError("NodeFeature", f"a page of {len(items)} objects: at most {MOST_OBJECTS} are read")
    objects = tuple(map(_feature, items))
    return objects, found.metadata.resource_version, found.metadata.continue_token


def node_feature(data: bytes) -> NodeFeature:
    """One object."""
    return _feature(decode_bounded(_OBJECT, data, "NodeFeature", MAX_BYTES))


def node(data: bytes, names: Iterable[str]) -> tuple[str, Mapping[str, int], tuple[str, ...]]:
    """The uid of a Node, its capacity of those of the named extended resources that it has, and which of these NFD's
    master says on it to have put there."""
    found = decode_bounded(NODE, data, "node", MAX_BYTES)
    capacity, notes = found.status.capacity or {}, found.metadata.annotations or {}
    amounts = {name: _number(str(capacity[name])) for name in names if name in capacity}
    there = {name: amount for name, amount in amounts.items() if amount is not None}
    of_master = [name for key, text in notes.items() if _PUT_THERE.fullmatch(key) for name in _names(text)]
    return found.metadata.uid, there, tuple(name for name in there if name.removeprefix(_OF_NFD) in of_master)


def _names(text: Raw) -> list[str]:
    """The names in an annotation's text; none where it is no text."""
    try:
        return _TEXT.decode(text).split(",")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []


def on_node(line: bytes, names: Iterable[str]) -> Mapping[str, int]:
    """The Node's capacity as in `node`, from a line of a watch on it; WireError where the server ends the watch."""
    found = decode_bounded(ENVELOPE, line, "watch event", MAX_BYTES)
    if found.type is Change.ERROR:
        raise WireError("watch on the node", "the server ended it")
    return node(bytes(found.object), names)[1]


def controller_of(data: bytes) -> Owner:
    """What controls a pod, such as its DaemonSet; the pod itself where nothing does."""
    found = decode_bounded(_OBJECT, data, "pod", MAX_BYTES).metadata
    for owner in found.owner_references or ():
        if owner.controller:
            return Owner(owner.api_version, owner.kind, owner.name, owner.uid)
    return Owner("v1", "Pod", found.name, found.uid)


def running(data: bytes) -> tuple[str, ...]:
    """The uids of those pods of a list that work and are not to end, and of what they belong to. A container that dies
    again and again leaves its pod in the phase Running; the condition Ready is taken away from all while kubelet is
    away, and the containers' `ready` is not."""
    found = decode_bounded(_PODS, data, "list of pods", MAX_BYTES)
    pods = [one.metadata for one in found.items or () if _works(one.status)]
    alive = [one for one in pods if not one.deletion_timestamp]
    return tuple(uid for one in alive for uid in (one.uid, *(owner.uid for owner in one.owner_references or ())))


def _works(life: _Life) -> bool:
    return life.phase == "Running" and all(one.ready for one in life.container_statuses or ())


def body(namespace: str, of_node: str, owner: Owner, numbers: Mapping[str, int], version: str = "") -> bytes:
    """Our object. With `version` it takes the place of that version and of no newer one."""
    unknown = [key for key in numbers if key not in NFD_NUMBERS]
    if unknown:
        raise WireError("NodeFeature", f"NFD has no number for {', '.join(unknown)}")
    metadata: dict[str, object] = {
        "name": object_name(of_node),
        "namespace": namespace,
        "labels": {NODE_LABEL: of_node, _MANAGED_BY: _OURS},
        "ownerReferences": [
            {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
        ],
    }
    if version:
        metadata["resourceVersion"] = version
    return msgspec.json.encode(
        {
            "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
            "kind": "NodeFeature",
            "metadata": metadata,
            "spec": _spec(numbers),
        }
    )


def says(found: NodeFeature, of_node: str, owner: Owner, numbers: Mapping[str, int]) -> bool:
    """Whether an object of ours has the content of `body`, even if another client changed it."""
    if found.node != of_node or found.owners != (owner,):
        return False
    try:
        there: object = msgspec.json.decode(found.spec)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return there == _spec(numbers)


def _spec(numbers: Mapping[str, int]) -> object:
    elements = {NFD_NUMBERS[key]: str(number) for key, number in sorted(numbers.items())}
    return {"features": {"flags": {}, "instances": {}, "attributes": {"cpu.security": {"elements": elements}}}}


def _feature(found: _Object) -> NodeFeature:
    metadata = found.metadata
    labels = metadata.labels or {}
    notes = metadata.annotations
    of_node, ours = labels.get(NODE_LABEL, ""), labels.get(_MANAGED_BY) == _OURS
    return NodeFeature(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        version=metadata.resource_version,
        node=of_node,
        ours=ours,
        worker=(notes is not None and bool(notes.worker)) or (bool(of_node) and metadata.name == of_node),
        going=bool(metadata.deletion_timestamp),
        owners=tuple(Owner(one.api_version, one.kind, one.name, one.uid) for one in metadata.owner_references or ()),
        numbers=_numbers(bytes(found.spec)),
        spec=bytes(found.spec) if ours else b"",
    )


def _numbers(data: bytes) -> Mapping[str, int]:
    """What a spec says of keys; nothing for one that is not as NFD has them, since it is only one among others."""
    try:
        features = _SPEC.decode(data).features
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    sets = features.attributes if features is not None else None
    security = sets.security if sets is not None else None
    elements = (security.elements or {}) if security is not None else {}
    found = {key: _number(elements[name]) for key, name in NFD_NUMBERS.items() if name in elements}
    return {key: number for key, number in found.items() if number is not None}


def _number(text: str) -> int | None:
    """A count of keys; None for what is none."""
    plain = text.isascii() and text.isdigit() and len(text) <= 10
    return int(text) if plain and int(text) <= _MOST_KEYS else None
