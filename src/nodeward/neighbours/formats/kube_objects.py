"""The few fields of Kubernetes objects that Nodeward reads, as partial structs over the API server's JSON.

Promises: only declared fields are ever decoded, so environment values, commands, and annotations that are not named
here do not exist behind this room, and a list of 500 pods keeps some 2 MiB. Every input is bounded, and whatever is
wrong with it is a WireError that names the place and never shows the content. Null and absent are the same, as in Go.

Must not: do I/O, know what a field means to Nodeward (`neighbours.kubernetes.mapping` does), or write JSON.
"""

from enum import Enum
from typing import TypeVar

from msgspec import DecodeError, Raw, Struct, field
from msgspec.json import Decoder

from nodeward.core.annotations import CONFIG_HASH, MIRROR
from nodeward.core.errors import WireError

MAX_LINE_BYTES = 8 * 1024 * 1024
"""One watch event. An object in etcd is at most 1.5 MiB; JSON may triple it."""

MAX_LIST_BYTES = 64 * 1024 * 1024
"""One page of a list."""

MAX_OBJECT_BYTES = MAX_LINE_BYTES

MOST_COMMAS = 1_000_000
"""In any input. A value may be two bytes long and come to a hundred; in what an API server says some thirty bytes have
one comma."""

Quantities = dict[str, str | int]
"""Resource name to quantity: text from the API server, a plain number where a person's JSON was passed on."""


class ClaimOfContainer(Struct, frozen=True):
    """A claim by the pod's own name of it; `request`: the container uses only that request of it."""

    name: str = ""
    request: str | None = None


class Resources(Struct, frozen=True):
    """The `resources` of a container, or of a pod as a whole."""

    limits: Quantities | None = None
    requests: Quantities | None = None
    claims: tuple[ClaimOfContainer, ...] | None = None


class PodClaim(Struct, frozen=True, rename="camel"):
    """A claim of a pod by the pod's own name, and the object's, which of one that is made of a template only the status
    has."""

    name: str = ""
    resource_claim_name: str | None = None


class ContainerObject(Struct, frozen=True, rename="camel"):
    """A container, init container or ephemeral container of a pod's spec."""

    name: str
    resources: Resources | None = None
    restart_policy: str | None = None


class SpecObject(Struct, frozen=True, rename="camel"):
    """`spec` of v1.Pod."""

    node_name: str | None = None
    runtime_class_name: str | None = None
    overhead: Quantities | None = None
    containers: tuple[ContainerObject, ...] | None = None
    init_containers: tuple[ContainerObject, ...] | None = None
    ephemeral_containers: tuple[ContainerObject, ...] | None = None
    resources: Resources | None = None
    resource_claims: tuple[PodClaim, ...] | None = None


class ContainerStatusObject(
    Struct, frozen=True, rename={"container_id": "containerID", "allocated_resources": "allocatedResources"}
):
    """A container's name, its id at the runtime with the runtime's scheme (`containerd://`), and what kubelet has
    allocated to it and set, which a resize of the spec may not reach (KEP-1287)."""

    name: str
    container_id: str | None = None
    allocated_resources: Quantities | None = None
    resources: Resources | None = None


class StatusOfPod(Struct, frozen=True, rename="camel"):
    """`status` of v1.Pod."""

    phase: str | None = None
    qos_class: str | None = None
    container_statuses: tuple[ContainerStatusObject, ...] | None = None
    init_container_statuses: tuple[ContainerStatusObject, ...] | None = None
    ephemeral_container_statuses: tuple[ContainerStatusObject, ...] | None = None
    resource_claim_statuses: tuple[PodClaim, ...] | None = None


class AnnotationsObject(Struct, frozen=True):
    """The annotations that are decoded at all."""

    config_hash: str | None = field(default=None, name=CONFIG_HASH)
    mirror: str | None = field(default=None, name=MIRROR)


class PodMetadata(Struct, frozen=True, rename="camel"):
    """`metadata` of v1.Pod."""

    name: str
    namespace: str
    uid: str
    resource_version: str = ""
    annotations: AnnotationsObject | None = None


class PodObject(Struct, frozen=True):
    """v1.Pod, in part."""

    metadata: PodMetadata
    spec: SpecObject = SpecObject()
    status: StatusOfPod = StatusOfPod()


class ListMetadata(Struct, frozen=True, rename={"resource_version": "resourceVersion", "continue_token": "continue"}):
    """`metadata` of a list. `continue_token` is empty on the last page."""

    resource_version: str = ""
    continue_token: str = ""


class PodListPage(Struct, frozen=True):
    """One page of v1.PodList."""

    metadata: ListMetadata
    items: tuple[PodObject, ...] | None = None


class StatusObject(Struct, frozen=True):
    """metav1.Status: how the API server says no."""

    code: int = 0
    reason: str = ""
    message: str = ""


class Change(Enum):
    """The type of a watch event."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


class PodChange(Struct, frozen=True):
    """A pod appeared, changed or went; `change` is ADDED, MODIFIED or DELETED."""

    change: Change
    pod: PodObject


class Bookmark(Struct, frozen=True):
    """Everything up to this version has been sent."""

    resource_version: str


class WatchFailure(Struct, frozen=True):
    """The watch ends, with the reason."""

    status: StatusObject


class Envelope(Struct, frozen=True):
    """One line of a watch, whatever it is on."""

    type: Change
    object: Raw


class _BookmarkMetadata(Struct, frozen=True, rename="camel"):
    resource_version: str


class _BookmarkObject(Struct, frozen=True):
    metadata: _BookmarkMetadata


_T = TypeVar("_T")
_POD = Decoder(PodObject)
_PAGE = Decoder(PodListPage)
_STATUS = Decoder(StatusObject)
ENVELOPE = Decoder(Envelope)
_BOOKMARK = Decoder(_BookmarkObject)


def decode_pod(data: bytes) -> PodObject:
    """One v1.Pod."""
    return decode_bounded(_POD, data, "pod", MAX_OBJECT_BYTES)


def decode_pod_list(data: bytes) -> PodListPage:
    """One page of v1.PodList."""
    return decode_bounded(_PAGE, data, "list of pods", MAX_LIST_BYTES)


def decode_status(data: bytes) -> StatusObject:
    """A metav1.Status, as bodies of refusals carry it."""
    return decode_bounded(_STATUS, data, "status", MAX_OBJECT_BYTES)


def decode_watch_line(line: bytes) -> PodChange | Bookmark | WatchFailure:
    """One line of a watch on pods."""
    envelope = decode_bounded(ENVELOPE, line, "watch event", MAX_LINE_BYTES)
    body = bytes(envelope.object)
    if envelope.type is Change.ERROR:
        return WatchFailure(decode_bounded(_STATUS, body, "ERROR event", MAX_LINE_BYTES))
    if envelope.type is Change.BOOKMARK:
        mark = decode_bounded(_BOOKMARK, body, "BOOKMARK event", MAX_LINE_BYTES)
        return Bookmark(mark.metadata.resource_version)
    return PodChange(envelope.type, decode_bounded(_POD, body, f"{envelope.type.value} event", MAX_LINE_BYTES))


def decode_bounded(decoder: Decoder[_T], data: bytes | bytearray, what: str, limit: int) -> _T:
    """What `decoder` makes of `data`; WireError with the place, never the content, for everything that is wrong."""
    if len(data) > limit:
        raise WireError("kubernetes JSON", f"{what} of {len(data)} bytes: at most {limit} are read")
    if len(data) > MOST_COMMAS and data.count(b",") > MOST_COMMAS:
        raise WireError("kubernetes JSON", f"{what} of {len(data)} bytes: more than {MOST_COMMAS} values")
    try:
        return decoder.decode(data)
    except (DecodeError, UnicodeDecodeError) as error:
        fault = _without_values(error)
    except RecursionError:
        fault = "it is nested too deeply"
    raise WireError("kubernetes JSON", f"{what} of {len(data)} bytes cannot be read: {fault}")


def _without_values(error: Exception) -> str:
    """The decoder's sentence; one that quotes what it read is replaced by its place."""
    text = str(error)
    if isinstance(error, UnicodeDecodeError):
        return "text is not UTF-8"
    if "value '" in text:
        return "a word that is not one of those known - " + text.rpartition(" - ")[2]
    return text


class LineSplitter:
    """Cuts a byte stream into lines, holding at most one unfinished line of `limit` bytes."""

    __slots__ = ("_limit", "_parts", "_size")

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, without their line ends; empty lines are dropped."""
        *complete, rest = data.split(b"\n")
        lines = []
        for piece in complete:
            self._hold(piece)
            line = b"".join(self._parts).rstrip(b"\r")
            self._parts, self._size = [], 0
            if line:
                lines.append(line)
        if rest:
            self._hold(rest)
        return lines

    def pending_bytes(self) -> int:
        """How much of an unfinished line is held: more than 0 at the end of a stream means it was cut off."""
        return self._size

    def _hold(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            self._parts = []
            raise WireError("watch stream", f"a line of more than {self._limit} bytes: no watch event is that long")
        self._parts.append(piece)
