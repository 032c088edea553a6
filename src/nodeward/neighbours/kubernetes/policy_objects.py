"""Reads policy objects of `config.nri` that select this node, and writes its status into them.

Promises: every failure is a KubeError that says what to do; every wait and every body is bounded; nothing is tried
twice here. Must not: choose which object holds, or judge one.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from nodeward.host.clock import Clock
from nodeward.neighbours.kubernetes import policy_format as wire
from nodeward.neighbours.kubernetes.errors import KubeMissingError, errors_of
from nodeward.neighbours.kubernetes.events import MERGE_PATCH
from nodeward.neighbours.kubernetes.policy_object import PolicyKind, PolicyObject, Said, names
from nodeward.neighbours.kubernetes.settings import KubeSettings
from nodeward.neighbours.sockets.kube_http import KubeHttp
from nodeward.neighbours.sockets.kube_watch import until_news

T = TypeVar("T")
RIGHTS = (
    "get, list and watch on balloonspolicies and topologyawarepolicies, patch on their status, and get and watch on "
    "nodes"
)


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
            with suppress(KubeMissingError):  # the kind is not served: its definition is not installed
                versions[kind] = await self._get(self._path(kind), wire.version_of, limit="1")
        group = await self._group()
        found = [await self._object(kind, name) for name in names(self.node, group) for kind in versions]
        return PolicyObjectList(group, tuple(one for one in found if one is not None), versions)

    async def until_touched(self, seen: PolicyObjectList, kind: PolicyKind) -> None:
        """Returns when an object that means this node has come, gone or got another spec; or after a while."""
        ours, marks, path = names(self.node, seen.group), seen.marks(kind), self._path(kind)

        def is_news(line: bytes) -> bool:
            name, mark = wire.touched(line)
            return name in ours and mark != marks.get(name)

        with errors_of(f"watch on {path}", RIGHTS):
            version = seen.versions[kind]
            await until_news(self._http, path, is_news, resourceVersion=version, allowWatchBookmarks="true")

    async def until_moved(self, group: str) -> None:
        """Returns when this node is of another group, or after a while."""
        with errors_of(f"watch on node {self.node}", RIGHTS):
            named = f"metadata.name={self.node}"
            await until_news(
                self._http, "/api/v1/nodes", lambda line: wire.group_in(line) != group, fieldSelector=named
            )

    async def say(self, kind: PolicyKind, name: str, said: Said | None) -> None:
        """Writes what the object's status has of this node; None takes it away."""
        at = datetime.fromtimestamp(self._clock.wall_ns() // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        path = f"{self._path(kind)}/{name}/status"
        with errors_of(f"PATCH {path}", RIGHTS):
            body = wire.status_patch(self.node, said, at)
            await self._http.send("PATCH", path, body, MERGE_PATCH, waits=self._settings.request)

    def _path(self, kind: PolicyKind) -> str:
        return f"{wire.API}/namespaces/{self.namespace}/{wire.PLURALS[kind]}"

    async def _get(self, path: str, read: Callable[[bytes], T], **query: str) -> T:
        with errors_of(f"GET {path}", RIGHTS):
            return read(await self._http.get(path, query, waits=self._settings.request, max_bytes=wire.MAX_BYTES))

    async def _group(self) -> str:
        try:
            return await self._get(self._node_path, wire.group)
        except KubeMissingError:
            return ""  # kubelet has not registered it yet

    async def _object(self, kind: PolicyKind, name: str) -> PolicyObject | None:
        try:
            return await self._get(f"{self._path(kind)}/{name}", lambda data: wire.policy_object(data, kind, self.node))
        except KubeMissingError:
            return None
