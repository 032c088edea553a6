"""Keeps one object of ours in the API server in step with what it should say.

Each round looks at the object and writes it if it does not say that. A round begins when something else is wanted, when
somebody has touched the object (a watch says so), and after a while. So a restart of ours, an object deleted or edited
by somebody, and a kind that is served later are one and the same.

Promises: at most one write in `gap_s`; nothing is written that is there already; what somebody takes back again and
again is put back less and less often; every failure is a KubeError that says what to do; every wait and every body is
bounded. Must not: choose what the object says, or touch one that is not ours.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import random
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.json import Decoder

from nodeward.core.decision import Special
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock
from nodeward.host.waits import first_of
from nodeward.neighbours.formats.kube_node import NODE
from nodeward.neighbours.formats.kube_objects import decode_bounded
from nodeward.neighbours.kubernetes.errors import (
    KubeError,
    KubeExpiredError,
    KubeMissingError,
    errors_of,
)
from nodeward.neighbours.kubernetes.events import MERGE_PATCH
from nodeward.neighbours.kubernetes.settings import KubeSettings
from nodeward.neighbours.sockets.kube_http import KubeHttp, KubeRefusedError
from nodeward.neighbours.sockets.kube_watch import until_news

log = logging.getLogger(__name__)
T = TypeVar("T")
W = TypeVar("W")
MAX_BYTES = 8 * 1024 * 1024
"""An object in etcd is at most 1.5 MiB; JSON may triple it."""
CALM_S = 300.0
"""So long after another one has written the object, it is said; and after so long in peace it is put back at once."""
RETIRE_S = 3.0
"""So long a person waits for the end of the object."""
FIRST_PAUSE_S, LAST_PAUSE_S = 0.5, 60.0
_MANAGED_BY, OURS = "app.kubernetes.io/managed-by", "nodeward"
_MOST_WRITERS = 5
Said = Mapping[str, Any]
"""An object's fields beside its metadata, as JSON has them."""


class _Entry(Struct, frozen=True):
    manager: str = ""
    time: str | None = None


class _Metadata(Struct, frozen=True, rename="camel"):
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    managed_fields: tuple[_Entry, ...] | None = None


class _Object(Struct, frozen=True):
    metadata: _Metadata = _Metadata()


_OBJECT, _FIELDS = Decoder(_Object), Decoder(dict[str, Raw])


class NotOursError(KubeError):
    """The object has another owner."""


class UnservedError(KubeError):
    """The kind is not served."""


class DroppedError(KubeError):
    """The API server does not keep all that the object should say, so it says nothing."""


@dataclass(frozen=True, slots=True)
class ObjectKind(Generic[W]):
    """A kind of object that has one of ours for each node."""

    kind: str
    version: str
    """Group and version."""
    plural: str
    setting: str
    """What is to be changed in our settings so that the object is not wanted any more, in words."""
    unserved: str
    """What to do where the kind is not served."""
    said: Callable[[W], Said]
    """The object's fields."""
    plain: Callable[[str, Any], Any] = lambda _, value: value
    """The value of one of these fields, or what the API server makes of it, in one form."""
    dropped: str = ""
    """What it means where the API server drops a part of what is sent, as with a feature gate that is off: then the
    object is not made. Empty where that cannot be."""

    needs: str = ""
    """What the daemon must be allowed, where that is not the usual."""

    @property
    def objects(self) -> str:
        """The path of all of them."""
        return f"/{'apis' if '/' in self.version else 'api'}/{self.version}/{self.plural}"

    @property
    def rights(self) -> str:
        """What the daemon must be allowed."""
        return self.needs or f"get, watch, create, patch and delete on {self.plural}, and get on nodes"


@dataclass(frozen=True, slots=True)
class Found:
    """The object as it is. `others`: who else has written it, by the names of its field managers."""

    uid: str
    version: str
    ours: bool
    others: tuple[str, ...]
    fields: Mapping[str, bytes]
    written: str = ""
    """When somebody has last written a field (RFC 3339); empty where that is not said."""

    def says(self, kind: ObjectKind[W], wanted: W) -> bool:
        """Whether it is just what is wanted."""
        return all(self._field(kind, name) == kind.plain(name, value) for name, value in kind.said(wanted).items())

    def _field(self, kind: ObjectKind[W], name: str) -> object:
        try:
            return kind.plain(name, msgspec.json.decode(self.fields.get(name, b"[]")))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, TypeError, AttributeError):
            return None


def found(data: bytes, kind: str) -> Found:
    """One object."""
    of = decode_bounded(_OBJECT, data, kind, MAX_BYTES).metadata
    fields = decode_bounded(_FIELDS, data, kind, MAX_BYTES)
    managers = dict.fromkeys(entry.manager[:64] for entry in of.managed_fields or () if entry.manager != OURS)
    ours = (of.labels or {}).get(_MANAGED_BY) == OURS
    rest = {name: bytes(value) for name, value in fields.items() if name not in ("metadata", "apiVersion", "kind")}
    written = max([entry.time or "" for entry in of.managed_fields or ()], default="")
    return Found(of.uid, of.resource_version, ours, tuple(managers)[:_MOST_WRITERS], rest, written)


def uid_of_node(data: bytes) -> str:
    """The uid of a Node."""
    return decode_bounded(NODE, data, "node", MAX_BYTES).metadata.uid


def body(kind: ObjectKind[W], name: str, node: str, uid: str, wanted: W) -> bytes:
    """Our object, which is deleted with its node."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
    metadata = {"name": name, "labels": {_MANAGED_BY: OURS}, "ownerReferences": [owner]}
    said = {"apiVersion": kind.version, "kind": kind.kind, "metadata": metadata, **kind.said(wanted)}
    return msgspec.json.encode(said)


def patch(kind: ObjectKind[W], version: str, wanted: W) -> bytes:
    """The merge patch that makes this version of our object say it, and no newer one."""
    return msgspec.json.encode({"metadata": {"resourceVersion": version}, **kind.said(wanted)})


def deletion(uid: str) -> bytes:
    """The options by which this very object is deleted, and none in its place."""
    return msgspec.json.encode({"preconditions": {"uid": uid}})


class OwnedClient(Generic[W]):
    """Requests for one object of a node."""

    def __init__(self, kind: ObjectKind[W], name: str, settings: KubeSettings, clock: Clock) -> None:
        self.kind, self.name, self._settings, self._node = kind, name, settings, settings.node_name
        self._path = f"{kind.objects}/{name}"
        self._http = KubeHttp(
            settings.endpoint, clock, check_files_s=settings.check_files_s, user_agent=settings.user_agent
        )

    @property
    def title(self) -> str:
        """The object in words."""
        return f"{self.kind.kind} {self.name}"

    async def aclose(self) -> None:
        """Closes every connection."""
        await self._http.aclose()

    async def look(self) -> Found | None:
        """The object; None where there is none, or no such kind."""
        try:
            return await self._get(self._path, self._found)
        except KubeMissingError:
            return None

    async def write(self, wanted: W, old: Found | None) -> bool:
        """Makes the object, or changes `old` where that is still the newest; whether it was: the next look tells."""
        if old is not None:
            self._check_ours(old)
            after = await self._send("PATCH", self._path, patch(self.kind, old.version, wanted), MERGE_PATCH)
            if after is not None and self._lacks(after, wanted):
                await self.remove(after)
                raise DroppedError(self.kind.dropped)
            return after is not None
        uid = await self._get(f"/api/v1/nodes/{self._node}", uid_of_node)
        whole = body(self.kind, self.name, self._node, uid, wanted)
        try:
            if self.kind.dropped:
                tried = await self._send("POST", f"{self.kind.objects}?dryRun=All", whole, "application/json")
                if tried is not None and self._lacks(tried, wanted):
                    raise DroppedError(self.kind.dropped)
            return await self._send("POST", self.kind.objects, whole, "application/json") is not None
        except KubeMissingError as error:
            raise UnservedError(
                f"{self.kind.kind} objects are not served ({self.kind.version}); {self.kind.unserved}, or "
                f"{self.kind.setting}"
            ) from error

    async def remove(self, found: Found) -> None:
        """Deletes this very object; none in its place."""
        self._check_ours(found)
        try:
            await self._send("DELETE", self._path, deletion(found.uid), "application/json")
        except KubeMissingError:
            return

    async def until_touched(self, version: str) -> None:
        """Returns when something has happened to the object since, or after a while. What happened is not looked at."""
        with suppress(KubeExpiredError, KubeMissingError), errors_of(f"watch on {self.title}", self.kind.rights):
            named = f"metadata.name={self.name}"
            await until_news(self._http, self.kind.objects, fieldSelector=named, resourceVersion=version)

    def _lacks(self, found: Found, wanted: W) -> bool:
        return bool(self.kind.dropped) and not found.says(self.kind, wanted)

    def _check_ours(self, found: Found) -> None:
        if not found.ours:
            raise NotOursError(
                f"{self.title} is not ours: it has no label {_MANAGED_BY}: {OURS} ({writers(found)}); stop who writes "
                f"it on this node and delete it, or {self.kind.setting}"
            )

    def _found(self, data: bytes) -> Found:
        return found(data, self.kind.kind)

    async def _get(self, path: str, read: Callable[[bytes], T]) -> T:
        with errors_of(f"GET {path}", self.kind.rights):
            return read(await self._http.get(path, {}, waits=self._settings.request, max_bytes=MAX_BYTES))

    async def _send(self, verb: str, path: str, body: bytes, kind: str) -> Found | None:
        """The object after the request; None where another version of it is there by now."""
        with errors_of(f"{verb} {path}", self.kind.rights):
            try:
                return self._found(
                    await self._http.ask(path, body, verb, kind, waits=self._settings.request, max_bytes=MAX_BYTES)
                )
            except KubeRefusedError as error:
                if error.status != 409:
                    raise
                return None


async def removed(client: OwnedClient[Any]) -> str:
    """Deletes the object if it is ours, and ends the client; what became of it. KubeError where that cannot be done."""
    try:
        found = await client.look()
        if found is None:
            return "is gone already"
        await client.remove(found)
        return "deleted"
    finally:
        await client.aclose()


def writers(found: Found) -> str:
    """Who else has written it, in words."""
    return f"written by {', '.join(found.others) or 'somebody else'}"


class Owned(Generic[W]):
    """One object of a node, round after round."""

    def __init__(
        self,
        client: OwnedClient[W],
        wanted: Callable[[], W | Special | None],
        remember: Callable[[], None],
        clock: Clock,
        note: Callable[[bool, str], None],
        gap_s: float = 1.0,
        looked: Callable[[Found | None], None] = lambda _: None,
        writes: Callable[[W], None] = lambda _: None,
        pause_s: float = LAST_PAUSE_S,
    ) -> None:
        """`wanted`: what it should say; ABSENT, and it is removed; None, and it stays as it is. `remember` puts it on
        the undo list; it may sleep. `note` hears whether the object is as it should be, and how it stands or why
        not; `looked` what it is at each look, and `writes` what is about to be sent: it may be there though no answer
        comes. `pause_s`: the longest wait before what somebody has taken back is put back."""
        self._client, self._wants, self._clock, self._note, self._gap_s = client, wanted, clock, note, gap_s
        self._remember, self._remembered, self._retired = remember, False, False
        self._looked, self._writes = looked, writes
        self._written: W | None = None
        self._undone = Backoff(gap_s, pause_s, random)
        self._undone_ns: int | None = None
        self._others = self._failed = ""

    @property
    def stands(self) -> W | None:
        """What the API server has taken last; None where that is not known, or nothing."""
        return self._written

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            await self._forever()
        finally:
            await self._client.aclose()  # opens itself again at the next request

    async def _forever(self) -> None:
        """Round after round."""
        delays = Backoff(FIRST_PAUSE_S, LAST_PAUSE_S, random)
        while True:
            wanted = self._wanted()
            try:
                if wanted is None:
                    await self._clock.sleep(self._gap_s)
                    continue
                found = await self._round(wanted)
                delays.reset()
                self._failed = ""
                if found is not None or wanted is Special.ABSENT:
                    self._say(wanted)
                    await self._until_next(wanted, found)
            except KubeError as error:
                self._written = None
                self._fails(str(error))
                await first_of(self._clock.sleep(delays.next_s()), self._changed(wanted))
            await self._clock.sleep(self._gap_s)

    def _fails(self, why: str) -> None:
        if why != self._failed:
            log.warning("object=%r why=%r", self._client.title, why)
        self._failed = why
        self._note(False, why)

    async def retire(self) -> tuple[str, ...]:
        """Takes the object away for good; what became of it."""
        self._retired = True
        where = self._client.title
        try:
            async with asyncio.timeout(RETIRE_S):
                found = await self._client.look()
                if found is None:
                    return (f"{where} is not there",)
                await self._client.remove(found)
        except TimeoutError:
            return (f"{where} is not deleted yet: the API server does not answer; the daemon goes on trying",)
        except KubeError as error:
            return (f"{where} is not deleted: {error}; the daemon goes on trying",)
        return (f"{where} is deleted",)

    def _wanted(self) -> W | Special | None:
        return Special.ABSENT if self._retired else self._wants()

    async def _round(self, wanted: W | Special) -> Found | None:
        """Makes the object what it should be; the object if it was so already."""
        found = await self._client.look()
        self._looked(found)
        if isinstance(wanted, Special):
            self._written = None
            if found is not None and found.ours:
                await self._client.remove(found)
                log.info("object=%r removed", self._client.title)
            return None
        if found is not None and found.ours and found.says(self._client.kind, wanted):
            self._written = wanted
            return found
        if wanted == self._written:
            await self._pause(found)
            self._written = None
            return None  # something else may be wanted by now
        if not self._remembered:
            await asyncio.to_thread(self._remember)
            self._remembered = True
        self._writes(wanted)
        self._written = wanted if await self._client.write(wanted, found) else None
        return None  # the next round reads it back

    async def _pause(self, found: Found | None) -> None:
        """Before what somebody has taken back is put back."""
        now_ns = self._clock.now_ns()
        if self._is_calm():
            self._undone.reset()
        self._undone_ns = now_ns
        self._others = writers(found) if found is not None and found.others else ""
        log.info("object=%r taken-back others=%r", self._client.title, self._others)
        await self._clock.sleep(self._undone.next_s())

    def _is_calm(self) -> bool:
        return self._undone_ns is None or self._clock.now_ns() - self._undone_ns > CALM_S * 1e9

    def _say(self, wanted: W | Special) -> None:
        if self._others and not self._is_calm():
            also = f"the object is {self._others} too, and was put back; let one alone write it"
            self._note(False, also)
        elif self._wanted() == wanted:
            self._note(True, "written" if self._written is not None else "removed")

    async def _until_next(self, wanted: W | Special, found: Found | None) -> None:
        """Returns when something else is wanted or the object was touched. Raises what the watch raised."""
        touched = [self._client.until_touched(found.version)] if found is not None else []
        await first_of(self._changed(wanted), *touched)

    async def _changed(self, wanted: W | Special | None) -> None:
        while self._wanted() in (wanted, None):
            await self._clock.sleep(self._gap_s)
