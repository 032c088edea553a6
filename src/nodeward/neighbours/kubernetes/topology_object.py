"""The requests that are made about this node's NodeResourceTopology object: seen, made, changed, deleted.

Promises: every failure is a KubeError that says what to do; every wait and every body is bounded; nothing is tried
twice here. Must not: choose what the object says, or touch one that is not ours.
"""

from nodeward.core.wire_errors import WireError
from nodeward.core.zones import NodeZones
from nodeward.host.clock import Clock
from nodeward.neighbours.kubernetes import topology_format as wire
from nodeward.neighbours.kubernetes.errors import (
    KubeError,
    KubeExpiredError,
    KubeGarbageError,
    KubeMissingError,
    from_transport,
)
from nodeward.neighbours.kubernetes.kube_events import MERGE_PATCH
from nodeward.neighbours.kubernetes.settings import KubeSettings
from nodeward.neighbours.kubernetes.topology_format import Found
from nodeward.neighbours.sockets.kube_http import KubeHttp, KubeHttpError, KubeRefusedError, Waits

RIGHTS = "get, watch, create, patch and delete on noderesourcetopologies, and get on nodes"
WATCH_S = 240
_WATCH = Waits(connect_s=5.0, read_s=WATCH_S + 30.0, total_s=WATCH_S + 30.0)


class NotOursError(KubeError):
    """The object has another owner."""


class UnservedError(KubeError):
    """The kind is not served."""


class TopologyObjectClient:
    """Requests for one node."""

    def __init__(self, settings: KubeSettings, clock: Clock) -> None:
        self._settings, self.node = settings, settings.node_name
        self._path = f"{wire.OBJECTS}/{self.node}"
        self._http = KubeHttp(
            settings.endpoint, clock, check_files_s=settings.check_files_s, user_agent=settings.user_agent
        )

    async def aclose(self) -> None:
        """Closes every connection."""
        await self._http.aclose()

    async def look(self) -> Found | None:
        """The object; None where there is none, or no such kind."""
        try:
            return wire.found(await self._get(self._path))
        except KubeMissingError:
            return None
        except WireError as error:
            raise KubeGarbageError(f"GET {self._path}: {error}") from error

    async def write(self, wanted: NodeZones, old: Found | None) -> None:
        """Makes the object, or changes `old` where that is still the newest: of a conflict the next look tells."""
        if old is not None:
            self._check_ours(old)
            await self._send("PATCH", self._path, wire.patch(old.version, wanted), MERGE_PATCH)
            return
        try:
            uid = wire.uid_of_node(await self._get(f"/api/v1/nodes/{self.node}"))
        except WireError as error:
            raise KubeGarbageError(f"GET node {self.node}: {error}") from error
        try:
            await self._send("POST", wire.OBJECTS, wire.body(self.node, uid, wanted), "application/json")
        except KubeMissingError as error:
            raise UnservedError(
                f"NodeResourceTopology objects are not served ({wire.VERSION}); install their "
                "CustomResourceDefinition, or set topology_objects.enabled to false"
            ) from error

    async def remove(self, found: Found) -> None:
        """Deletes this very object; none in its place."""
        self._check_ours(found)
        try:
            await self._send("DELETE", self._path, wire.deletion(found.uid), "application/json")
        except KubeMissingError:
            return

    async def until_touched(self, version: str) -> None:
        """Returns when something has happened to the object since, or after a while. What happened is not looked at."""
        query = {"watch": "1", "fieldSelector": f"metadata.name={self.node}", "timeoutSeconds": str(WATCH_S)}
        try:
            async with self._http.stream(wire.OBJECTS, {**query, "resourceVersion": version}, waits=_WATCH) as chunks:
                async for _ in chunks:
                    return
        except KubeHttpError as error:
            of = from_transport(error, RIGHTS)
            if not isinstance(of, KubeExpiredError | KubeMissingError):
                raise of from error

    def _check_ours(self, found: Found) -> None:
        if not found.ours:
            raise NotOursError(
                f"NodeResourceTopology {self.node} is not ours: it has no label app.kubernetes.io/managed-by: nodeward "
                f"({self.writers(found)}); stop who writes it on this node and delete it, or set "
                "topology_objects.enabled to false"
            )

    @staticmethod
    def writers(found: Found) -> str:
        """Who else has written it, in words."""
        return f"written by {', '.join(found.others) or 'somebody else'}"

    async def _get(self, path: str) -> bytes:
        try:
            return await self._http.get(path, {}, waits=self._settings.request, max_bytes=wire.MAX_BYTES)
        except KubeHttpError as error:
            raise from_transport(error, RIGHTS) from error

    async def _send(self, verb: str, path: str, body: bytes, kind: str) -> None:
        try:
            await self._http.send(verb, path, body, kind, waits=self._settings.request)
        except KubeRefusedError as error:
            if error.status != 409:
                raise from_transport(error, RIGHTS) from error
        except KubeHttpError as error:
            raise from_transport(error, RIGHTS) from error
