"""Reads policy objects of `config.nri` that select this node, and writes its status into them.

Promises: every failure is a KubeError that says what to do; every wait and every body is bounded; nothing is tried
twice here. Must not: choose which object holds, or judge one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from nodeward.core.errors import WireError
from nodeward.host.clock import Clock
from nodeward.neighbours.formats.kube_objects import LineSplitter
from nodeward.neighbours.kubernetes import policy_format as wire
from nodeward.neighbours.kubernetes.errors import KubeGarbageError, KubeMissingError, from_transport
from nodeward.neighbours.kubernetes.events import MERGE_PATCH
from nodeward.neighbours.kubernetes.policy_object import PolicyKind, PolicyObject, Said, names
from nodeward.neighbours.kubernetes.settings import KubeSettings
from nodeward.neighbours.sockets.kube_http import KubeHttp, KubeHttpError, Waits

RIGHTS = (
    "get, list and watch on balloonspolicies and topologyawarepolicies, patch on their status, and get and watch on "
    "nodes"
)
WATCH_S = 240
_WATCH = Waits(connect_s=5.0, read_s=WATCH_S + 30.0, total_s=WATCH_S + 30.0)


@dataclass(frozen=True, slots=True)
class PolicyObjectList:
    """What there is for this node. `objects`: the strongest first, and of one name BalloonsPolicy first. `versions`: of
    the kinds that are served, where a watch goes on."""

    group: str = ""
    objects: tuple[PolicyObject, ...] = ()
    versions: Mapping[PolicyKind, str] = field(default_factory=dict)

    def marks(self, kind: PolicyKind) -> Mapping[str, tuple[str, int]]:
        """The mark of each object of this kind, by name."""
        return {one.name: one.mark for one in self.objects if one.kind is kind}


class PolicyObjectsClient:
    """Requests for one node, over connections of its own: three watches stay open."""

    def __init__(self, settings: KubeSettings, namespace: str, clock: Clock) -> None:
        self._settings, self.namespace, self._clock = settings, namespace, clock
        self.node = settings.node_name
        self._node_path = f"/api/v1/nodes/{self.node}"
        self._http = KubeHttp(
            settings.endpoint, clock, check_files_s=settings.check_files_s, user_agent=settings.user_agent
        )

    async def aclose(self) -> None:
        """Closes every connection."""
        await self._http.aclose()

    async def look(self) -> PolicyObjectList:
        """What there is now. The versions are older than the objects, so a watch from them misses nothing."""
        versions = dict[PolicyKind, str]()
        for kind in PolicyKind:
            try:
                versions[kind] = wire.version_of(await self._get(self._path(kind), {"limit": "1"}))
            except KubeMissingError:
                continue  # the kind is not served: its definition is not installed
            except WireError as error:
                raise KubeGarbageError(f"GET {self._path(kind)}: {error}") from error
        group = await self._group()
        found = [await self._object(kind, name) for name in names(self.node, group) for kind in versions]
        return PolicyObjectList(group, tuple(one for one in found if one is not None), versions)

    async def until_touched(self, seen: PolicyObjectList, kind: PolicyKind) -> None:
        """Returns when an object that means this node has come, gone or got another spec; or after a while."""
        query = {"watch": "1", "resourceVersion": seen.versions[kind], "timeoutSeconds": str(WATCH_S)}
        query["allowWatchBookmarks"] = "true"
        ours, marks = names(self.node, seen.group), seen.marks(kind)
        splitter, path = LineSplitter(), self._path(kind)
        try:
            async with self._http.stream(path, query, waits=_WATCH) as chunks:
                async for chunk in chunks:
                    for line in splitter.feed(chunk):
                        name, mark = wire.touched(line)
                        if name in ours and mark != marks.get(name):
                            return
        except KubeHttpError as error:
            raise from_transport(error, RIGHTS) from error
        except WireError as error:
            raise KubeGarbageError(f"watch on {path}: {error}") from error

    async def until_moved(self, group: str) -> None:
        """Returns when this node is of another group, or after a while."""
        query = {"watch": "1", "fieldSelector": f"metadata.name={self.node}", "timeoutSeconds": str(WATCH_S)}
        splitter = LineSplitter()
        try:
            async with self._http.stream("/api/v1/nodes", query, waits=_WATCH) as chunks:
                async for chunk in chunks:
                    if any(wire.group_in(line) != group for line in splitter.feed(chunk)):
                        return
        except KubeHttpError as error:
            raise from_transport(error, RIGHTS) from error
        except WireError as error:
            raise KubeGarbageError(f"watch on node {self.node}: {error}") from error

    async def say(self, kind: PolicyKind, name: str, said: Said | None) -> None:
        """Writes what the object's status has of this node; None takes it away."""
        at = datetime.fromtimestamp(self._clock.wall_ns() // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        path = f"{self._path(kind)}/{name}/status"
        try:
            body = wire.status_patch(self.node, said, at)
            await self._http.send("PATCH", path, body, MERGE_PATCH, waits=self._settings.request)
        except KubeHttpError as error:
            raise from_transport(error, RIGHTS) from error

    def _path(self, kind: PolicyKind) -> str:
        return f"{wire.API}/namespaces/{self.namespace}/{wire.PLURALS[kind]}"

    async def _get(self, path: str, query: Mapping[str, str]) -> bytes:
        try:
            return await self._http.get(path, query, waits=self._settings.request, max_bytes=wire.MAX_BYTES)
        except KubeHttpError as error:
            raise from_transport(error, RIGHTS) from error

    async def _group(self) -> str:
        try:
            return wire.group(await self._get(self._node_path, {}))
        except KubeMissingError:
            return ""  # kubelet has not registered it yet
        except WireError as error:
            raise KubeGarbageError(f"GET {self._node_path}: {error}") from error

    async def _object(self, kind: PolicyKind, name: str) -> PolicyObject | None:
        path = f"{self._path(kind)}/{name}"
        try:
            return wire.policy_object(await self._get(path, {}), kind, self.node)
        except KubeMissingError:
            return None
        except WireError as error:
            raise KubeGarbageError(f"GET {path}: {error}") from error
