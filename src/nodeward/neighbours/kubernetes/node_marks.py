"""The marks that the policy static-pools puts on a Node: an extended resource, a label and a taint.

An annotation of Nodeward's tells that an agent put them there. Without it they are another's, as CMK's own, and stay
where the policy is another. Each patch is one step from the Node as it is, so an agent may end between two of them.

Must not: do I/O, or know a policy.
"""

from dataclasses import dataclass, replace
from typing import Final

import msgspec
from msgspec import Raw, Struct, field
from msgspec.json import Decoder

from nodeward.core.modes import EXCLUSIVE_CORES
from nodeward.core.quantity import QuantityError, whole_units
from nodeward.neighbours.formats.kube_objects import decode_bounded

MAX_BYTES: Final = 4 * 1024 * 1024
"""An object in etcd is at most 1.5 MiB."""
LABEL: Final = "cmk.intel.com/cmk-node"
OURS: Final = "nodeward.io/static-pools"
"""The annotation of a Node whose marks an agent of Nodeward put there."""
_TRUE: Final = "true"


@dataclass(frozen=True, slots=True)
class Marks:
    """`cores`: the capacity of exclusive cores, None where the Node has none, -1 where it is no number."""

    cores: int | None = None
    label: bool = False
    taint: bool = False
    ours: bool = False


class _Taint(Struct, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


_TAINT: Final = _Taint("cmk", _TRUE, "NoSchedule")
"""CRI Resource Manager writes quotes into the value, which no API server takes."""


class _Metadata(Struct, frozen=True, rename={"version": "resourceVersion"}):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    version: str = ""


class _Spec(Struct, frozen=True):
    taints: tuple[Raw, ...] | None = None


class _Status(Struct, frozen=True):
    capacity: dict[str, str | int] | None = None


class NodeObject(Struct, frozen=True):
    """A Node as far as its marks go, and its labels."""

    metadata: _Metadata = field(default_factory=_Metadata)
    spec: _Spec = field(default_factory=_Spec)
    status: _Status = field(default_factory=_Status)


_NODE, _ONE_TAINT = Decoder(NodeObject), Decoder(_Taint)


def marks(node: NodeObject) -> Marks:
    """What the Node has of them."""
    amount = (node.status.capacity or {}).get(EXCLUSIVE_CORES)
    try:
        cores = None if amount is None else whole_units(str(amount))
    except QuantityError:
        cores = -1
    label = (node.metadata.labels or {}).get(LABEL) == _TRUE
    return Marks(cores, label, _TAINT in map(_taint, node.spec.taints or ()), OURS in (node.metadata.annotations or {}))


def _taint(raw: Raw) -> _Taint:
    return decode_bounded(_ONE_TAINT, bytes(raw), "taint", MAX_BYTES)


def is_met(found: Marks, wanted: Marks) -> bool:
    """Whether there is nothing to do: a Node that is to have none may have another's."""
    return found == wanted or not (found.ours or wanted.ours)


def next_patch(data: bytes, wanted: Marks) -> tuple[str, bytes] | None:
    """The next merge patch by which the Node gets these marks, and below which path of it; None where it has them. The
    annotation comes first and goes last. Taints are one list, so a patch of them holds for this version of the Node."""
    node = decode_bounded(_NODE, data, "node", MAX_BYTES)
    found = marks(node)
    if is_met(found, wanted):
        return None
    if found.cores != wanted.cores and (not wanted.ours or replace(found, cores=wanted.cores) == wanted):
        amount = None if wanted.cores is None else str(wanted.cores)
        return "/status", msgspec.json.encode({"status": {"capacity": {EXCLUSIVE_CORES: amount}}})
    metadata: dict[str, object] = {
        "labels": {LABEL: _TRUE if wanted.label else None},
        "annotations": {OURS: _TRUE if wanted.ours else None},
    }
    body: dict[str, object] = {"metadata": metadata}
    if found.taint != wanted.taint:
        taints = node.spec.taints or ()
        others = [one for one in taints if (_taint(one).key, _taint(one).effect) != (_TAINT.key, _TAINT.effect)]
        body["spec"] = {"taints": [*others, _TAINT] if wanted.taint else others}
        metadata["resourceVersion"] = node.metadata.version
    return "", msgspec.json.encode(body)
