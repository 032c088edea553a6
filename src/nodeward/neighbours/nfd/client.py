"""The requests to the API server for Node Feature Discovery's objects, and for our own.

Promises: every failure is a KubeHttpError or a WireError whose text says what to do; nothing is tried twice here; every
wait and every body is bounded.
"""

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nodeward.core.errors import NodewardError, WireError
from nodeward.neighbours.nfd import objects as nfd
from nodeward.neighbours.nfd.objects import NodeFeature, Owner
from nodeward.neighbours.sockets.kube_http import KubeHttp, KubeRefusedError, Waits
from nodeward.neighbours.sockets.kube_watch import until_news

log = logging.getLogger(__name__)
_REQUEST = Waits()
_MOST_PAGES = 64


class NotOursError(NodewardError):
    """An object has the name of ours, and is somebody else's."""


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """The node of the keys, and the name and namespace of our object: in `namespace`. `pod` is this pod's name there;
    empty where the daemon runs in none."""

    node: str
    namespace: str
    pod: str = ""

    @property
    def name(self) -> str:
        """Our object's name."""
        return nfd.object_name(self.node)


@dataclass(frozen=True, slots=True)
class NodeFeatureList:
    """What there is. `version` is the list's; `node_uid` is empty where the API server has no such node."""

    objects: tuple[NodeFeature, ...]
    version: str
    node_uid: str
    on_node: Mapping[str, int]
    kept: bool = True
    """Whether some object of NFD's worker is kept up by a pod that runs here, as far as can be told."""


class NfdClient:
    """Requests for one node."""

    def __init__(self, http: KubeHttp, place: ObjectPlace, waits: Waits = _REQUEST) -> None:
        self._http, self.place, self._waits = http, place, waits
        self._mine = f"{nfd.API}/namespaces/{place.namespace}/nodefeatures"
        self._controller: Owner | None = None
        self._refused = False

    async def look(self, resources: tuple[str, ...]) -> NodeFeatureList | None:
        """What NFD has for this node; None where NodeFeature objects are not served."""
        found = await self._objects()
        if found is None:
            return None
        objects, version = found
        uid, on_node, _ = await self._node(resources)
        return NodeFeatureList(objects, version, uid, on_node, await self._is_kept(objects))

    async def numbers(self, resources: tuple[str, ...]) -> tuple[Mapping[str, int], tuple[str, ...]]:
        """How many of the resources the node has at this moment; and of which of them NFD's master has left its number
        there: NFD has nothing for this node any more, so nobody changes them, or takes them back."""
        _, on_node, of_master = await self._node(resources)
        return on_node, of_master if of_master and await self._has_nothing() else ()

    async def _has_nothing(self) -> bool:
        """Whether NFD has no object for this node, as far as we may know: whether its kinds are served at all, anybody
        may know who has logged in."""
        try:
            await self._http.get(nfd.API, {}, waits=self._waits, max_bytes=nfd.MAX_BYTES)
            found = await self._objects()
        except KubeRefusedError as error:
            if error.status not in (401, 403, 404):
                raise
            return error.status == 404
        return found is None or all(one.going for one in found[0])

    async def _objects(self) -> tuple[tuple[NodeFeature, ...], str] | None:
        """This node's objects, and the version of their list; None where none are served."""
        objects: list[NodeFeature] = []
        query = {"labelSelector": f"{nfd.NODE_LABEL}={self.place.node}", "limit": str(nfd.PAGE)}
        for _ in range(_MOST_PAGES):
            try:
                data = await self._http.get(nfd.OBJECTS, query, waits=self._waits, max_bytes=nfd.MAX_BYTES)
            except KubeRefusedError as error:
                if error.status == 404:
                    return None
                raise
            found, version, token = nfd.page(data)
            objects += found
            if not token:
                return tuple(objects), version
            query["continue"] = token
        raise WireError("list of NodeFeatures", f"more than {_MOST_PAGES * nfd.PAGE} of them bear this node's name")

    async def _node(self, resources: tuple[str, ...]) -> tuple[str, Mapping[str, int], tuple[str, ...]]:
        path = f"/api/v1/nodes/{self.place.node}"
        try:
            return nfd.node(await self._http.get(path, {}, waits=self._waits, max_bytes=nfd.MAX_BYTES), resources)
        except KubeRefusedError as error:
            if error.status == 404:
                return "", {}, ()
            raise

    async def _is_kept(self, objects: Iterable[NodeFeature]) -> bool:
        """Whether the worker still runs here that made one of the objects: NFD names its pod and DaemonSet as owners.
        Nobody can tell of an object that has none of them (`-no-owner-refs`, or a worker that is no pod), nor where
        the pods of its namespace may not be listed."""
        of_workers = [one for one in objects if one.worker and not one.ours and not one.going]
        for one in of_workers:
            owners = [owner.uid for owner in one.owners if owner.kind in ("Pod", "DaemonSet")]
            alive = await self._running(one.namespace) if owners else None
            if alive is None or any(uid in alive for uid in owners):
                return True
        return not of_workers

    async def _running(self, namespace: str) -> tuple[str, ...] | None:
        """What runs on the node of that namespace, and what it belongs to; None where that may not be listed."""
        query = {"fieldSelector": f"spec.nodeName={self.place.node}"}
        path = f"/api/v1/namespaces/{namespace}/pods"
        try:
            alive = nfd.running(await self._http.get(path, query, waits=self._waits, max_bytes=nfd.MAX_BYTES))
        except KubeRefusedError as error:
            if error.status not in (401, 403):
                raise
            if not self._refused:
                log.warning("nfd=untold why=%r", f"{error}; allow list on pods there (deploy/node/nfd.yaml)")
            self._refused = True
            return None
        self._refused = False
        return alive

    async def until_touched(self, version: str) -> None:
        """Returns when something has happened to one of the objects since, or after a while. What happened is not
        looked at: it is listed anew, so no event can be misread, however large."""
        of_node = f"{nfd.NODE_LABEL}={self.place.node}"
        await until_news(self._http, nfd.OBJECTS, labelSelector=of_node, resourceVersion=version)

    async def until_renumbered(self, resources: tuple[str, ...], there: Mapping[str, int]) -> bool:
        """Whether the node comes to have other numbers than those that were there, for as long as it can be watched.
        The first that a watch without a version tells is the node as it is."""
        named = f"metadata.name={self.place.node}"
        return await until_news(
            self._http, "/api/v1/nodes", lambda line: nfd.on_node(line, resources) != there, fieldSelector=named
        )

    async def owner(self, node_uid: str) -> Owner:
        """What our object is deleted with: what controls our pod (its DaemonSet), so that it outlives an update and not
        an uninstallation; the node where the daemon is no pod."""
        place = self.place
        if not place.pod:
            return Owner("v1", "Node", place.node, node_uid)
        if self._controller is None:
            path = f"/api/v1/namespaces/{place.namespace}/pods/{place.pod}"
            self._controller = nfd.controller_of(
                await self._http.get(path, {}, waits=self._waits, max_bytes=nfd.MAX_BYTES)
            )
        return self._controller

    async def named(self, name: str) -> NodeFeature | None:
        """The object of this name in our namespace, whatever labels it has; None where there is none."""
        try:
            path = f"{self._mine}/{name}"
            return nfd.node_feature(await self._http.get(path, {}, waits=self._waits, max_bytes=nfd.MAX_BYTES))
        except KubeRefusedError as error:
            if error.status == 404:
                return None
            raise

    async def write(self, numbers: Mapping[str, int], owner: Owner, old: NodeFeature | None) -> None:
        """Our object, made, or in the place of `old`."""
        body = nfd.body(self.place.namespace, self.place.node, owner, numbers, old.version if old is not None else "")
        if old is not None:
            path = f"{self._mine}/{self.place.name}"
            await self._http.send("PUT", path, body, "application/json", waits=self._waits)
            return
        try:
            await self._http.send("POST", self._mine, body, "application/json", waits=self._waits)
        except KubeRefusedError as error:
            there = (
                await self.named(self.place.name) if error.status == 409 else None
            )  # without the label, so no list has it
            if there is None:
                raise
            self.check_ours(there, owner)
            await self.write(numbers, owner, there)

    def check_ours(self, found: NodeFeature, owner: Owner | None = None) -> None:
        """Raises NotOursError for an object of another owner."""
        if not (found.ours or (owner is not None and found.owners == (owner,))):
            raise NotOursError(
                f"NodeFeature {found.namespace}/{found.name} is there and is not ours (no label "
                "app.kubernetes.io/managed-by: nodeward); delete it, or set keys.kinds.*.share to own"
            )

    async def remove(self, found: NodeFeature) -> None:
        """Deletes this very object; none in its place."""
        self.check_ours(found)
        body = json.dumps({"preconditions": {"uid": found.uid}}).encode()
        path = f"{nfd.API}/namespaces/{found.namespace}/nodefeatures/{found.name}"
        try:
            await self._http.send("DELETE", path, body, "application/json", waits=self._waits)
        except KubeRefusedError as error:
            if error.status != 404:
                raise
