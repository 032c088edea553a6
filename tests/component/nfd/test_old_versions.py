"""Versions that the API server no longer goes by, as the NFD edge meets them: a watch or a page that has expired, an
object that somebody has changed or replaced since it was listed. What is newer is found and gone by, at once."""

import json
from collections.abc import Callable, Mapping

import pytest
from aiohttp import web

from nodeward.doubles.nfd import worker_object
from nodeward.edges.nfd.session import Pace
from nodeward.model.events import Event, Missed, NfdSeen, Reached
from nodeward.wire import nfd
from tests.component.kube.support import until
from tests.component.nfd.test_bad_servers import WITHIN_S, Server, living

ONCE = Pace(gap_s=0.02, absent_s=2 * WITHIN_S, resync_s=2 * WITHIN_S, unsettled_s=0.02, most_s=0.05)
"""Without another look for its own sake: what is found was told of, or asked for again."""
OURS = nfd.object_name("n1")
EXPIRED = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}


def json_of(body: object, status: int = 200) -> web.Response:
    return web.json_response(body, status=status)


class Versions(Server):
    """One object each of NFD's worker and of ours, with versions and uids; in one of its `mode`s something is old."""

    def __init__(self, mode: str, ours: int | None = None) -> None:
        super().__init__(mode)
        self.version = 5
        self.keys = 16
        self.uid = 1
        self.ours = ours
        self.changes: list[tuple[str, object]] = []
        """Each PUT with its version, each DELETE with its uid."""

    def _feature(self, name: str, keys: int) -> dict[str, object]:
        made = dict(worker_object("nodeward", "n1", {"tdx.total_keys": str(keys)}))
        labels = {nfd.NODE_LABEL: "n1", "app.kubernetes.io/managed-by": "nodeward"}
        mine = {"name": name, "namespace": "nodeward", "uid": str(self.uid), "labels": labels}
        return made | {"metadata": mine | {"resourceVersion": str(self.version)}} if name == OURS else made

    def _is_first(self, mode: str) -> bool:
        """Whether now is when it happens, which is once."""
        is_now = self.mode == mode
        if is_now:
            self.mode = "is good"
            self.version += 1
        return is_now

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method in ("PUT", "DELETE"):
            return await self._changed(request)
        if "/nodes/" in request.path:
            return json_of({}, 404)
        if request.query.get("watch"):
            return await self._watched(request)
        if request.query.get("continue") and self._is_first("page"):
            self.keys = 12
            return json_of(EXPIRED, 410)
        items = [self._feature("n1", self.keys), *([] if self.ours is None else [self._feature(OURS, self.ours)])]
        metadata = {"resourceVersion": str(self.version), "continue": "more" if self.mode == "page" else ""}
        return json_of({"metadata": metadata, "items": items})

    async def _watched(self, request: web.Request) -> web.StreamResponse:
        """Between the list and the watch the worker has told of fewer keys, and that version is gone."""
        if self._is_first("status"):
            self.keys = 12
            return json_of(EXPIRED, 410)
        if self._is_first("event"):
            self.keys = 12
            return web.Response(text=json.dumps({"type": "ERROR", "object": EXPIRED}) + "\n")
        return await self._hang()

    async def _changed(self, request: web.Request) -> web.Response:
        body = await request.json()
        if request.method == "PUT":
            if self._is_first("edited"):
                self.ours = 99
            version = body["metadata"]["resourceVersion"]
            self.changes.append(("PUT", version))
            if version != str(self.version):
                return json_of({"code": 409, "reason": "Conflict", "message": "the object has been modified"}, 409)
            elements = body["spec"]["features"]["attributes"]["cpu.security"]["elements"]
            self.version, self.ours = self.version + 1, int(elements["tdx.total_keys"])
            return json_of({})
        if self._is_first("replaced"):
            self.uid += 1
        uid = body["preconditions"]["uid"]
        self.changes.append(("DELETE", uid))
        if uid != str(self.uid):
            return json_of(
                {"code": 409, "reason": "Conflict", "message": "the UID in the precondition is another"}, 409
            )
        self.version, self.ours = self.version + 1, None
        return json_of({})


async def played(server: Versions, wanted: int | None, is_over: Callable[[list[Event]], bool]) -> list[Event]:
    """What was told by a session that wants this number, when `is_over` is true of it."""
    told: list[Event] = []

    def tell(event: Event) -> int:
        told.append(event)
        return 0

    async with living(server, tell, wanted, pace=ONCE):
        await until(lambda: is_over(told))
    return told


def numbers(told: list[Event]) -> list[Mapping[str, int]]:
    return [one.discovered for one in told if isinstance(one, NfdSeen) and not one.fault]


@pytest.mark.parametrize("mode", ["status", "event", "page"])
async def test_what_has_changed_behind_an_expired_version_is_listed_anew(mode: str) -> None:
    told = await played(Versions(mode), None, lambda told: {"tdx": 12} in numbers(told))
    assert numbers(told)[0] == {"tdx": 12 if mode == "page" else 16}


async def test_an_object_that_was_edited_since_it_was_listed_is_written_over_by_its_new_version() -> None:
    server = Versions("edited", ours=3)
    told = await played(server, 7, lambda told: any(isinstance(one, Reached) for one in told))
    assert server.ours == 7
    assert server.changes == [("PUT", "5"), ("PUT", "6")]
    outcomes = [one for one in told if isinstance(one, Missed | Reached)]
    assert [type(one) for one in outcomes] == [Missed, Reached]
    assert "409" in str(outcomes[0])


async def test_an_object_that_was_replaced_since_it_was_listed_is_removed_by_its_new_uid() -> None:
    server = Versions("replaced", ours=3)
    await played(server, None, lambda told: server.ours is None)
    assert server.changes == [("DELETE", "1"), ("DELETE", "2")]
