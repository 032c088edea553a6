"""Makes Kubernetes Events, and counts them up.

Promises: one Event ends within its bounds, made or with a KubeError; nothing is tried again, except that an Event which
is no longer there is made anew. Must not: decide what is said, or how often.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from nodeward.neighbours.kubernetes.client import PodsClient
from nodeward.neighbours.kubernetes.errors import KubeGarbageError, KubeMissingError, errors_of
from nodeward.neighbours.sockets.kube_http import Waits

MOST_NOTE = 1024
"""Bytes of a note; more is refused by the API server."""
MOST_NAME = 253
MERGE_PATCH = "application/merge-patch+json"


@dataclass(frozen=True, slots=True)
class EventObject:
    """One Event on a pod. Times are nanoseconds since 1970; `node` is who reports."""

    name: str
    namespace: str
    pod: str
    pod_uid: str
    field_path: str
    reason: str
    is_warning: bool
    note: str
    node: str
    count: int
    first_wall_ns: int
    last_wall_ns: int
    of_node: bool = False
    """It is on a Node, and `pod` names that."""
    action: str = ""
    """What was done; empty for a limit set, or on a Node keys granted."""


def path_of(event: EventObject, *, is_there: bool) -> str:
    """The path at which an Event is made, or counted up. ValueError for names that cannot stand in a path."""
    for name in (event.namespace, event.name, event.pod):
        plain = name.replace("-", "").replace(".", "")
        if not (plain.isascii() and plain.isalnum()) or name[0] in "-." or len(name) > MOST_NAME:
            raise ValueError(f"{name[:MOST_NAME]!r} is no name of Kubernetes")
    path = f"/apis/events.k8s.io/v1/namespaces/{event.namespace}/events"
    return f"{path}/{event.name}" if is_there else path


def created(event: EventObject) -> bytes:
    """The body that makes it."""
    body: dict[str, object] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": event.name, "namespace": event.namespace},
        "eventTime": _micro(event.first_wall_ns),
        "reportingController": "nodeward.io/node",
        "reportingInstance": f"nodeward-{event.node}"[:128],
        "action": event.action or ("Grant" if event.of_node else "Limit"),
        "reason": event.reason,
        "type": "Warning" if event.is_warning else "Normal",
        "regarding": _regarding(event),
        "note": event.note.encode(errors="replace")[:MOST_NOTE].decode(errors="ignore"),
    }
    if event.count > 1:
        body["series"] = _series(event)
    return msgspec.json.encode(body)


def _regarding(event: EventObject) -> dict[str, str]:
    if event.of_node:  # kubelet names it as the uid too, and `kubectl describe node` looks for that
        return {"apiVersion": "v1", "kind": "Node", "name": event.pod, "uid": event.pod}
    pod = {"apiVersion": "v1", "kind": "Pod", "namespace": event.namespace, "name": event.pod, "uid": event.pod_uid}
    return {**pod, "fieldPath": event.field_path} if event.field_path else pod


def counted_up(event: EventObject) -> bytes:
    """The merge patch that counts it up."""
    return msgspec.json.encode({"series": _series(event)})


def _series(event: EventObject) -> dict[str, object]:
    return {"count": max(2, event.count), "lastObservedTime": _micro(event.last_wall_ns)}


def _micro(wall_ns: int) -> str:
    seconds, rest = divmod(wall_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1000:06d}Z"


RIGHTS = "create and patch on events of events.k8s.io"
WAITS = Waits(connect_s=2.0, read_s=5.0, total_s=5.0)


def _whom(event: EventObject) -> str:
    return f"node {event.pod}" if event.of_node else f"pod {event.namespace}/{event.pod}"


class EventSender:
    """Events of one node, over the connections of its watch."""

    def __init__(self, client: PodsClient) -> None:
        self._client = client

    @property
    def node(self) -> str:
        """Who reports."""
        return self._client.settings.node_name

    async def send(self, event: EventObject, *, is_there: bool) -> None:
        """One Event. Raises KubeError; a namespace or pod that is being deleted is refused like a lack of rights."""
        if is_there:
            try:
                await self._send("PATCH", event, counted_up(event), MERGE_PATCH, is_there=True)
            except KubeMissingError:
                pass  # the API server keeps Events for an hour
            else:
                return
        await self._send("POST", event, created(event), "application/json", is_there=False)

    async def _send(self, verb: str, event: EventObject, body: bytes, kind: str, *, is_there: bool) -> None:
        try:
            path = path_of(event, is_there=is_there)
        except ValueError as error:
            raise KubeGarbageError(f"an Event on {_whom(event)}: {error}") from error
        with errors_of(f"{verb} {path}", RIGHTS):
            await self._client.http.send(verb, path, body, kind, waits=WAITS)
