"""A Kubernetes API server in one process, as far as pods go: the double that tests, demo and simulation talk to.

Promises what the real one does and `tests/contract/apiserver` checks on both: one rising resourceVersion, lists in
pages of one moment, watches that start after a version and miss nothing, bookmarks, 410 for versions that are
compacted (for a page with a token for the rest as it is now), the field selectors spec.nodeName and metadata.name, 401
without a good token. Beyond that it does harm on request: refuses, hangs, sends garbage, cuts lines, ends watches.

Must not: validate objects, schedule, or stand in for etcd.
"""

import asyncio
import base64
import copy
import json
import ssl
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from aiohttp import web

from nodeward_sim.doubles.kube_claims import SimClaimKinds
from nodeward_sim.doubles.kube_events import EVENTS, SimEvents
from nodeward_sim.doubles.kube_nfd import SimNfdKinds
from nodeward_sim.doubles.kube_refusals import Json, guarded, refusal, status_of

Key = tuple[str, str]

_BOOKMARK_LEAD_S = 2.0
_LATEST = -1
_CLOSED = b""
_ABORTED = b"\0"


@dataclass(frozen=True, slots=True)
class _Change:
    """One entry of the log: `before` and `after` are the pod on either side (None: it did not exist)."""

    version: int
    before: Json | None
    after: Json | None


@dataclass(slots=True)
class Faults:
    """Harm on request; each knob stays until it is set back, but `refuse` loses one entry a request."""

    refuse: deque[int] = field(default_factory=deque)
    """HTTP statuses to answer the next requests with."""
    events_refuse: int = 0
    """The HTTP status with which every request about Kubernetes Events is refused; 0 for none."""
    events_hang: bool = False
    """Such requests are read and never answered."""
    hang: bool = False
    """Requests are read and never answered."""
    hang_at: str = ""
    """Such requests too whose path ends so."""
    silent_watches: bool = False
    """Watches are opened, and neither events nor their end ever come."""
    expire_pages: int = 0
    """So many of the next requests for a further page find it expired."""
    expired_as_status: bool = False
    """A watch from a compacted version is refused with HTTP 410; otherwise 200 and an ERROR event, as the real one."""


@dataclass(eq=False, slots=True)
class _Watcher:
    node: str | None
    name: str | None
    bookmarks: bool
    queue: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)


class ApiServer:
    """The double. Pods are dicts as in JSON; every method that changes one returns its new resourceVersion."""

    def __init__(self, tokens: tuple[str, ...] = ()) -> None:
        self.tokens = set(tokens)
        """Bearer tokens that are let in; empty lets everybody in."""
        self.faults = Faults()
        self.requests: list[str] = []
        """Path and query of every request, in order."""
        self.url = ""
        self.events: dict[Key, Json] = {}
        """Kubernetes Events, by namespace and name."""
        self.nfd = SimNfdKinds(self._refuse)
        """The kinds of Node Feature Discovery, not served at first, and Nodes."""
        self.dra = SimClaimKinds(self._refuse)
        """ResourceSlices and ResourceClaims."""
        self._version = 100
        self._compacted = 0
        self._pods: dict[Key, Json] = {}
        self._log: list[_Change] = []
        self._pages: dict[int, list[Json]] = {}
        self._watchers: dict[int, _Watcher] = {}
        self._runner: web.AppRunner | None = None
        self._stopping = asyncio.Event()

    # ---- its life ------------------------------------------------------------------------------------------------

    async def start(self, *, port: int = 0, unix_socket: str = "", tls: ssl.SSLContext | None = None) -> Self:
        """Listens on loopback (`url` says where) or on a unix socket."""
        app = web.Application()
        let_in, of_event = partial(guarded, self._refuse), partial(guarded, self._refuse_event)
        app.router.add_get("/api/v1/pods", let_in(self._pods_handler))
        app.router.add_get("/api/v1/namespaces/{namespace}/pods", let_in(self._pods_handler))
        app.router.add_get("/api/v1/namespaces/{namespace}/pods/{name}", let_in(self._get))
        app.router.add_post("/api/v1/namespaces/{namespace}/pods", let_in(self._create))
        app.router.add_delete("/api/v1/namespaces/{namespace}/pods/{name}", let_in(self._delete))
        events = SimEvents(self.events)
        app.router.add_post(EVENTS, of_event(events.create))
        app.router.add_patch(f"{EVENTS}/{{name}}", of_event(events.patch))
        app.router.add_get(f"{EVENTS}/{{name}}", of_event(events.get))
        self.nfd.routes(app)
        self.dra.routes(app)
        self._stopping.clear()
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2, handler_cancellation=True)
        await self._runner.setup()
        if unix_socket:
            await web.UnixSite(self._runner, unix_socket).start()
            self.url = "http://localhost"
            return self
        await web.TCPSite(self._runner, "127.0.0.1", port, ssl_context=tls).start()
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        return self

    @property
    def port(self) -> int:
        """The port it listens on."""
        if self._runner is None or not self._runner.addresses:
            raise RuntimeError("the API server double does not listen; call start()")
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Stops listening and closes every connection; the pods stay for the next start."""
        self._stopping.set()
        self.kill_watches()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Self:
        return self if self._runner is not None else await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # ---- what a test or scenario does ------------------------------------------------------------------------------

    @property
    def version(self) -> str:
        """The resourceVersion of the last change."""
        return str(self._version)

    @property
    def open_watches(self) -> int:
        """How many watches are open now."""
        return len(self._watchers)

    def add_pod(self, manifest: Json) -> str:
        """Creates the pod; one without a uid gets one."""
        metadata = _metadata(manifest)
        key = (str(metadata.get("namespace", "default")), str(metadata["name"]))
        if key in self._pods:
            raise KeyError(f"pod {key} is there already")
        return self._put(key, manifest, f"uid-{self._version + 1}")

    def update_pod(self, manifest: Json) -> str:
        """Replaces the pod of that name."""
        metadata = _metadata(manifest)
        key = (str(metadata.get("namespace", "default")), str(metadata["name"]))
        return self._put(key, manifest, str(_metadata(self._pods[key])["uid"]))

    def delete_pod(self, namespace: str, name: str) -> str:
        """Removes the pod at once, as after its grace period."""
        before = self._pods.pop((namespace, name))
        self._version += 1
        self._record(_Change(self._version, before, None))
        return self.version

    def compact(self) -> None:
        """Forgets how it came to be as it is: older versions, and pages that are half read, are 410 from now on."""
        self._log.clear()
        self._pages.clear()
        self._compacted = self._version

    def send_bookmarks(self) -> None:
        """A bookmark now, to every watch that allows them."""
        for watcher in self._watchers.values():
            if watcher.bookmarks:
                watcher.queue.put_nowait(self._bookmark())

    def send_raw(self, data: bytes) -> None:
        """These bytes, into every open watch."""
        for watcher in self._watchers.values():
            watcher.queue.put_nowait(data)

    def send_error(self, code: int, reason: str, message: str) -> None:
        """An ERROR event, into every open watch."""
        self.send_raw(_line("ERROR", status_of(code, reason, message)))

    def kill_watches(self, *, mid_line: bool = False, abort: bool = False) -> None:
        """Ends every watch; `mid_line` leaves half an event behind, `abort` breaks the connection."""
        for watcher in self._watchers.values():
            if mid_line:
                watcher.queue.put_nowait(b'{"type":"MODIFIED","object":{"metadata":{"na')
            watcher.queue.put_nowait(_ABORTED if abort else _CLOSED)

    # ---- inside --------------------------------------------------------------------------------------------------

    def _put(self, key: Key, manifest: Json, uid: str) -> str:
        self._version += 1
        pod: Json = {"apiVersion": "v1", "kind": "Pod", "spec": {}, "status": {}, **copy.deepcopy(manifest)}
        metadata = {"uid": uid, **_metadata(pod), "namespace": key[0], "resourceVersion": str(self._version)}
        pod["metadata"] = metadata
        before = self._pods.get(key)
        self._pods[key] = pod
        self._record(_Change(self._version, before, pod))
        return self.version

    def _record(self, change: _Change) -> None:
        self._log.append(change)
        for watcher in self._watchers.values():
            line = _seen_by(watcher, change)
            if line:
                watcher.queue.put_nowait(line)

    def _bookmark(self) -> bytes:
        return _line("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": self.version}})

    async def _refuse(self, request: web.Request) -> web.Response | None:
        """The answer to a request that is not let through."""
        self.requests.append(request.path_qs)
        if self.faults.hang or (self.faults.hang_at and request.path.endswith(self.faults.hang_at)):
            await self._stopping.wait()
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.tokens and given not in self.tokens:
            return refusal(401, "Unauthorized", "Unauthorized")
        if self.faults.refuse:
            return refusal(self.faults.refuse.popleft(), "InternalError", "harm on request")
        return None

    async def _refuse_event(self, request: web.Request) -> web.Response | None:
        if self.faults.events_hang:
            self.requests.append(request.path_qs)
            await self._stopping.wait()
        if self.faults.events_refuse:
            self.requests.append(request.path_qs)
            return refusal(self.faults.events_refuse, "InternalError", "harm on request")
        return await self._refuse(request)

    async def _get(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        pod = self._pods.get((request.match_info["namespace"], name))
        if pod is None:
            return refusal(404, "NotFound", f'pods "{name}" not found')
        return web.json_response(pod)

    async def _create(self, request: web.Request) -> web.Response:
        manifest: Json = await request.json()
        namespace, name = request.match_info["namespace"], str(_metadata(manifest)["name"])
        if (namespace, name) in self._pods:
            return refusal(409, "AlreadyExists", f'pods "{name}" already exists')
        manifest["metadata"] = {**_metadata(manifest), "namespace": namespace}
        self.add_pod(manifest)
        return web.json_response(self._pods[namespace, name], status=201)

    async def _delete(self, request: web.Request) -> web.Response:
        key = (request.match_info["namespace"], request.match_info["name"])
        if key not in self._pods:
            return refusal(404, "NotFound", f'pods "{key[1]}" not found')
        pod = self._pods[key]
        self.delete_pod(*key)
        return web.json_response(pod)

    async def _pods_handler(self, request: web.Request) -> web.StreamResponse:
        selector = request.query.get("fieldSelector", "")
        wanted = dict(part.split("=", 1) for part in selector.split(",") if part)
        if set(wanted) - {"spec.nodeName", "metadata.name"}:
            return refusal(400, "BadRequest", f"field label not supported: {selector}")
        if request.query.get("watch") in ("1", "true"):
            return await self._watch(request, wanted)
        return self._list(request, wanted)

    def _list(self, request: web.Request, wanted: Mapping[str, str]) -> web.Response:
        token, limit = request.query.get("continue", ""), int(request.query.get("limit", "0") or "0")
        version, after = _read_token(token) if token else (_LATEST, ("", ""))
        if version == _LATEST:
            watcher = _Watcher(wanted.get("spec.nodeName"), wanted.get("metadata.name"), False)
            version = self._version
            pods = [pod for _, pod in sorted(self._pods.items()) if _matches(watcher, pod)]
        else:
            if self.faults.expire_pages:
                self.faults.expire_pages -= 1
                self._pages.pop(version, None)
            if version not in self._pages:
                status = status_of(410, "Expired", "The provided continue parameter is too old")
                status["metadata"] = {"continue": _token(_LATEST, after)}
                return web.json_response(status, status=410)
            pods = self._pages[version]
        left = [pod for pod in pods if _key(pod) > after]
        items = left[:limit] if limit else left
        metadata: Json = {"resourceVersion": str(version)}
        if len(items) < len(left):
            self._pages[version] = pods
            metadata["continue"] = _token(version, _key(items[-1]))
            metadata["remainingItemCount"] = len(left) - len(items)
        return web.json_response({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items})

    async def _watch(self, request: web.Request, wanted: Mapping[str, str]) -> web.StreamResponse:
        query = request.query
        since = int(query.get("resourceVersion", "0") or "0")
        expired = 0 < since < self._compacted or 0 < since < 100
        if expired and self.faults.expired_as_status:
            return refusal(410, "Expired", f"too old resource version: {since} ({self._compacted})")
        bookmarks = query.get("allowWatchBookmarks") in ("1", "true")
        watcher = _Watcher(wanted.get("spec.nodeName"), wanted.get("metadata.name"), bookmarks)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        for line in [] if expired else self._history(watcher, since):
            watcher.queue.put_nowait(line)
        self._watchers[id(watcher)] = watcher
        try:
            await response.prepare(request)
            if expired:
                status = status_of(410, "Expired", f"too old resource version: {since} ({self._compacted})")
                await response.write(_line("ERROR", status))
                return response
            if self.faults.silent_watches:
                await self._stopping.wait()
            await self._pump(watcher, request, response, float(query.get("timeoutSeconds", "1800")))
        except ConnectionError:
            pass
        finally:
            del self._watchers[id(watcher)]
        return response

    async def _pump(
        self, watcher: _Watcher, request: web.Request, response: web.StreamResponse, seconds: float
    ) -> None:
        """Writes what comes into the watcher's queue, a bookmark shortly before the end, and ends it in time."""
        for wait_s in (max(0.0, seconds - _BOOKMARK_LEAD_S), min(_BOOKMARK_LEAD_S, seconds)):
            try:
                async with asyncio.timeout(wait_s):
                    while (data := await watcher.queue.get()) not in (_CLOSED, _ABORTED):
                        await response.write(data)
                if data == _ABORTED and request.transport is not None:
                    request.transport.abort()
                return
            except TimeoutError:
                if watcher.bookmarks:
                    await response.write(self._bookmark())

    def _history(self, watcher: _Watcher, since: int) -> list[bytes]:
        if since == 0:
            return [_line("ADDED", pod) for _, pod in sorted(self._pods.items()) if _matches(watcher, pod)]
        lines = [_seen_by(watcher, change) for change in self._log if change.version > since]
        return [line for line in lines if line]


def _metadata(pod: Mapping[str, object]) -> Json:
    metadata = pod["metadata"]
    if not isinstance(metadata, dict):
        raise TypeError("a pod's metadata is a mapping")
    return metadata


def _key(pod: Json) -> Key:
    metadata = _metadata(pod)
    return str(metadata["namespace"]), str(metadata["name"])


def _token(version: int, after: Key) -> str:
    """Asks for what comes after this pod, in the list of this version or, with _LATEST, in the one of now."""
    return base64.urlsafe_b64encode(f"{version}:{'/'.join(after)}".encode()).decode()


def _read_token(token: str) -> tuple[int, Key]:
    version, _, after = base64.urlsafe_b64decode(token).decode().partition(":")
    namespace, _, name = after.partition("/")
    return int(version), (namespace, name)


def _matches(watcher: _Watcher, pod: Json) -> bool:
    spec = pod.get("spec")
    node = spec.get("nodeName") if isinstance(spec, dict) else None
    return watcher.node in (None, node) and watcher.name in (None, _metadata(pod)["name"])


def _seen_by(watcher: _Watcher, change: _Change) -> bytes:
    """The watch line of a change: to a selecting watch, a pod that comes to match is ADDED, one that ceases DELETED."""
    was = change.before is not None and _matches(watcher, change.before)
    if change.after is not None and _matches(watcher, change.after):
        return _line("MODIFIED" if was else "ADDED", change.after)
    if not was or change.before is None:
        return b""
    metadata = {**_metadata(change.before), "resourceVersion": str(change.version)}
    return _line("DELETED", {**change.before, "metadata": metadata})


def _line(kind: str, body: Json) -> bytes:
    return json.dumps({"type": kind, "object": body}, separators=(",", ":")).encode() + b"\n"
