"""Makes Kubernetes Events, and counts them up.

Promises: one Event ends within its bounds, made or with a KubeError; nothing is tried again, except that an Event which
is no longer there is made anew. Must not: decide what is said, or how often.
"""

from nodeward.neighbours.kubernetes.client import PodsClient
from nodeward.neighbours.kubernetes.errors import KubeGarbageError, KubeMissingError, from_transport
from nodeward.neighbours.kubernetes.kube_events import MERGE_PATCH, EventObject, counted_up, created, path_of
from nodeward.neighbours.sockets.kube_http import KubeHttpError, Waits

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
        try:
            await self._client.http.send(verb, path, body, kind, waits=WAITS)
        except KubeHttpError as error:
            raise from_transport(error, RIGHTS) from error
