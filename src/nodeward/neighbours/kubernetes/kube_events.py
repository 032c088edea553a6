"""Kubernetes Events as the API `events.k8s.io/v1` takes them: one made, and one counted up.

That API and not the older one of group "": a series is counted up by a patch of `series` alone, so a daemon that may
only create and patch needs no reading, and everything else of an Event cannot be changed by whoever patches. Both show
the same objects, in `kubectl describe pod` as well.

Must not: do I/O, or know what happened.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

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
    """Where an Event is made, or counted up. ValueError for names that cannot stand in a path."""
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
