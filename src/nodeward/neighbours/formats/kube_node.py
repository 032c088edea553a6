"""Parses a Node: one extended resource with its owner, its labels, and what is allocatable.

Who has changed a field last is in `metadata.managedFields`. Kubelet is whoever writes the heartbeat of the condition
Ready, whatever it calls itself (k3s has its kubelet's say by the name of k3s). What is not said there of a resource, as
with an API server that keeps no such list, is said by nobody.

Must not: do I/O, or judge.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from msgspec import DecodeError, Raw, Struct, field
from msgspec.json import Decoder

from nodeward.core.quantity import QuantityError, milli_units, whole_units
from nodeward.core.vms import Allocatable
from nodeward.neighbours.formats.kube_objects import decode_bounded

MAX_BYTES = 4 * 1024 * 1024
"""An object in etcd is at most 1.5 MiB."""


@dataclass(frozen=True, slots=True)
class OnNode:
    """How many of a resource the node's capacity has; `writer` is who wrote it there, empty where nobody says."""

    amount: int = 0
    writer: str = ""
    by_kubelet: bool = False
    """It was kubelet: for a device plugin, then or now."""


class _Of(Struct, frozen=True):
    capacity: dict[str, Raw] = field(default_factory=dict, name="f:capacity")
    conditions: dict[str, dict[str, Raw]] = field(default_factory=dict, name="f:conditions")


class _Labels(Struct, frozen=True):
    labels: dict[str, Raw] = field(default_factory=dict, name="f:labels")


class _Fields(Struct, frozen=True):
    status: _Of = field(default=_Of(), name="f:status")
    metadata: _Labels = field(default=_Labels(), name="f:metadata")


class _Entry(Struct, frozen=True):
    manager: str = ""
    fields: Raw = field(default=Raw(b"{}"), name="fieldsV1")


class _Metadata(Struct, frozen=True):
    uid: str = ""
    version: str = field(default="", name="resourceVersion")
    annotations: dict[str, Raw] | None = None
    labels: dict[str, str] | None = None
    managed: tuple[_Entry, ...] | None = field(default=None, name="managedFields")


class _Status(Struct, frozen=True):
    capacity: dict[str, str | int] | None = None


class _Node(Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    status: _Status = _Status()


class _Whole(Struct, frozen=True):
    allocatable: dict[str, str | int] | None = None


class _Sizes(Struct, frozen=True):
    """By a decoder of its own, so that odd text in it spoils no other reading of the Node."""

    status: _Whole = _Whole()


NODE, _FIELDS, _SIZES = Decoder(_Node), Decoder(_Fields), Decoder(_Sizes)
_READY, _BEAT = 'k:{"type":"Ready"}', "f:lastHeartbeatTime"


def on_node(data: bytes, resource: str) -> OnNode:
    """What the Node's status has of the resource. An amount that is none counts for 1: somebody wrote it."""
    found = decode_bounded(NODE, data, "node", MAX_BYTES)
    text = (found.status.capacity or {}).get(resource)
    if text is None:
        return OnNode()
    try:
        amount = whole_units(str(text))
    except QuantityError:
        amount = 1
    entries = [(name, fields.status) for name, fields in _entries(found.metadata)]
    writers = [name for name, of in entries if f"f:{resource}" in of.capacity]
    kubelets = [name for name, of in entries if _BEAT in of.conditions.get(_READY, {})]
    others = [name for name in writers if name not in kubelets]
    return OnNode(amount, (others or writers or [""])[0], bool(writers) and not others)


def labels_on_node(data: bytes, manager: str) -> tuple[Mapping[str, str], frozenset[str]]:
    """The Node's labels, and which of them this field manager has written last."""
    found = decode_bounded(NODE, data, "node", MAX_BYTES).metadata
    written = [fields.metadata.labels for name, fields in _entries(found) if name == manager]
    return found.labels or {}, frozenset(name.removeprefix("f:") for of in written for name in of)


def version_of(data: bytes) -> str:
    """The Node's resourceVersion."""
    return decode_bounded(NODE, data, "node", MAX_BYTES).metadata.version


def allocatable(data: bytes) -> Allocatable:
    """What pods may have of the node's CPUs and memory. An amount that is missing or none is unknown."""
    table = decode_bounded(_SIZES, data, "node", MAX_BYTES).status.allocatable or {}
    return Allocatable(_amount(table.get("cpu"), milli_units), _amount(table.get("memory"), whole_units))


def _amount(text: str | int | None, units: Callable[[str], int]) -> int | None:
    try:
        return None if text is None else units(str(text))
    except QuantityError:
        return None


def _entries(metadata: _Metadata) -> Iterator[tuple[str, _Fields]]:
    """Each who has written something of the Node, with what; one that is not as the API server makes it says
    nothing."""
    for entry in metadata.managed or ():
        try:
            yield entry.manager, _FIELDS.decode(entry.fields)
        except (DecodeError, UnicodeDecodeError, RecursionError):
            continue
