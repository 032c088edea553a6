"""The requests for pods: a page of the node's pods, a watch on them, one pod.

Promises: every failure is a KubeError that says what to do; nothing is tried twice here.

Must not: keep versions or state; `reflector` does.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from nodeward.host.clock import Clock
from nodeward.neighbours.formats.kube_objects import (
    MAX_LIST_BYTES,
    MAX_OBJECT_BYTES,
    Bookmark,
    LineSplitter,
    PodChange,
    PodListPage,
    PodObject,
    WatchFailure,
    decode_pod,
    decode_pod_list,
    decode_watch_line,
)
from nodeward.neighbours.kubernetes.errors import KubeAwayError, KubeExpiredError, errors_of, is_expired
from nodeward.neighbours.kubernetes.settings import KubeSettings
from nodeward.neighbours.sockets.kube_http import KubeHttp, Waits

_PODS = "/api/v1/pods"


class PodsClient:
    """Requests about pods. Opens itself at the first one; `aclose` ends it, whatever else goes over `http`."""

    def __init__(self, settings: KubeSettings, clock: Clock) -> None:
        self.settings, self._clock = settings, clock
        self.heard_ns = 0
        """When the API server last said anything about the node's pods, 0 for never."""
        self.http = KubeHttp(
            settings.endpoint, clock, check_files_s=settings.check_files_s, user_agent=settings.user_agent
        )

    async def aclose(self) -> None:
        """Closes every connection."""
        await self.http.aclose()

    async def list_page(self, continue_token: str = "") -> PodListPage:
        """One page of the pods bound to this node; the next is asked for with its `metadata.continue_token`.

        No resourceVersion is sent: a list from the server's cache may be older than the request, and then a pod's
        absence from it would prove nothing.
        """
        query = {"fieldSelector": f"spec.nodeName={self.settings.node_name}", "limit": str(self.settings.page_limit)}
        if continue_token:
            query["continue"] = continue_token
        with errors_of(f"GET {_PODS}"):
            body = await self.http.get(_PODS, query, waits=self.settings.request, max_bytes=MAX_LIST_BYTES)
            self.heard_ns = self._clock.now_ns()
            return decode_pod_list(body)

    @asynccontextmanager
    async def watch(self, resource_version: str) -> AsyncGenerator[AsyncIterator[PodChange | Bookmark], None]:
        """Changes after `resource_version`, until the server ends the watch in good order. Entered once it answers."""
        query = {
            "watch": "1",
            "fieldSelector": f"spec.nodeName={self.settings.node_name}",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self.settings.watch_s),
        }
        silence_s = self.settings.watch_silence_s
        waits = Waits(self.settings.request.connect_s, silence_s, self.settings.watch_s + silence_s)
        with errors_of(f"watch on {_PODS}"):
            async with self.http.stream(_PODS, query, waits=waits) as chunks:
                yield _events(self._heard(chunks))

    async def _heard(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        self.heard_ns = self._clock.now_ns()
        async for chunk in chunks:
            self.heard_ns = self._clock.now_ns()
            yield chunk

    async def get_pod(self, namespace: str, name: str) -> PodObject:
        """The pod of that name as it is now."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        with errors_of(f"GET {path}"):
            return decode_pod(await self.http.get(path, {}, waits=self.settings.read_pod, max_bytes=MAX_OBJECT_BYTES))

    async def get_json(self, namespace: str, name: str, max_bytes: int) -> bytes:
        """The same pod's JSON as the server sent it: all fields, secrets too. Redact it before it is kept."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        with errors_of(f"GET {path}"):
            return await self.http.get(path, {}, waits=self.settings.read_pod, max_bytes=max_bytes)


async def _events(chunks: AsyncIterator[bytes]) -> AsyncIterator[PodChange | Bookmark]:
    splitter = LineSplitter()
    async for chunk in chunks:
        for line in splitter.feed(chunk):
            yield _event(decode_watch_line(line))
    if splitter.pending_bytes():
        raise KubeAwayError(f"watch on {_PODS}: the stream ended within a line of {splitter.pending_bytes()} bytes")


def _event(event: PodChange | Bookmark | WatchFailure) -> PodChange | Bookmark:
    if not isinstance(event, WatchFailure):
        return event
    status = event.status
    text = f"watch on {_PODS}: the server ended it: {status.code} {status.reason} {status.message}"
    if is_expired(status.code, status.reason):
        raise KubeExpiredError(text)
    raise KubeAwayError(text)
