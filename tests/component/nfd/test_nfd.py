"""An API server that hangs, lies or floods, as the NFD edge meets it: a fault that is told once, within bounds;
versions that it no longer goes by, how fresh the object of NFD's worker is, and the node's own number."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from nodeward.core.decision import Goal
from nodeward.core.events import Event, Missed, NfdSeen, Reached
from nodeward.core.refusal import Reason
from nodeward.host.clock import SystemClock
from nodeward.host.slots import ByEdge
from nodeward.neighbours.nfd import objects
from nodeward.neighbours.nfd.client import NfdClient, ObjectPlace
from nodeward.neighbours.nfd.session import NfdReconciler, Pace
from nodeward.neighbours.sockets.kube_http import Endpoint, KubeHttp, Waits
from nodeward_sim.doubles.nfd import worker_object
from tests.component.kubernetes.support import answering, until
from tests.goals import target
from tests.patience import scaled
from tests.rigs.stories import under_way

WITHIN_S = scaled(30.0)
FAST = Pace(gap_s=0.02, absent_s=0.05, resync_s=0.05, unsettled_s=0.02, most_s=0.05)
QUICK = Waits(connect_s=0.5, read_s=0.5, total_s=2.0)
Json = Mapping[str, object]


def json_of(body: object, status: int = 200) -> web.Response:
    return web.json_response(body, status=status)


def list_of(*items: object, version: str = "1", more: str = "") -> web.Response:
    return json_of({"metadata": {"resourceVersion": version, "continue": more}, "items": items})


class Server:
    """It answers lists as `mode` says, knows no node, and keeps what is posted."""

    def __init__(self, mode: str = "is good") -> None:
        self.mode = mode
        self.lists = 0
        self.posted: list[bytes] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            self.posted.append(await request.read())
            conflicts = self.mode == "conflicts" and len(self.posted) < 3
            return json_of({}, 409 if conflicts else 201)
        if request.method in ("PUT", "DELETE"):
            return await self.changed(request)
        if "/nodes/" in request.path or "zzz-nodeward" in request.path:
            return self.one(request)
        if request.path.endswith("/pods"):
            return self.pods_of(request)
        if request.query.get("watch"):
            return await self.watched(request)
        self.lists += 1
        return await self.listed(request)

    async def changed(self, request: web.Request) -> web.Response:
        raise AssertionError(request)

    def one(self, request: web.Request) -> web.Response:
        return json_of({}, 404)

    def pods_of(self, request: web.Request) -> web.Response:
        raise AssertionError(request)

    async def watched(self, request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(WITHIN_S)
        return web.Response()

    async def listed(self, request: web.Request) -> web.StreamResponse:
        match self.mode:
            case "hangs":
                return await self.watched(request)
            case "lies":
                return web.Response(text='{"metadata": 1, "items": "none"}')
            case "floods":
                return web.Response(text=" " * (objects.MAX_BYTES + 1))
            case "never ends":
                return list_of(more="on")
            case "fails":
                return web.Response(status=500, text="oh")
            case "is absent":
                return json_of({}, 404)
            case _:
                return list_of()


@dataclass
class Heard:
    seen: list[NfdSeen] = field(default_factory=list)
    outcomes: list[Missed | Reached] = field(default_factory=list)

    def tell(self, event: Event) -> int:
        if isinstance(event, NfdSeen):
            self.seen.append(event)
        else:
            assert isinstance(event, Missed | Reached)
            self.outcomes.append(event)
        return 0

    @property
    def kinds(self) -> list[type[Event]]:
        return [type(one) for one in self.outcomes]


@asynccontextmanager
async def living(
    server: Server,
    wanted: int | None = None,
    *,
    keys: tuple[str, ...] = ("a/b",),
    pace: Pace = FAST,
    asked: Callable[[], bool] = lambda: True,
) -> AsyncIterator[Heard]:
    heard, goals = Heard(), ByEdge("nfd")
    goals.connect(heard.tell)
    if wanted is not None:
        goals.set([Goal(target("nfd:tdx"), str(wanted), Reason("shared"))])
    clock = SystemClock()
    async with (
        answering(server.answer) as url,
        asyncio.timeout(WITHIN_S),
        KubeHttp(Endpoint(url), clock, user_agent="test") as http,
    ):
        client = NfdClient(http, ObjectPlace("n1", "nodeward"), QUICK)
        session = NfdReconciler(client, goals, {"tdx": keys}, heard.tell, clock, lambda: None, asked=asked, pace=pace)
        async with under_way(session.forever()):
            yield heard


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("hangs", "no answer in time"),
        ("lies", "list of NodeFeatures of 32 bytes cannot be read"),
        ("floods", f"a body of more than {objects.MAX_BYTES} bytes"),
        ("never ends", "more than 256 of them bear this node's name"),
        ("fails", "500"),
    ],
)
async def test_a_bad_server_is_a_fault_told_once_and_nothing_is_written_until_it_is_good(mode: str, why: str) -> None:
    server = Server(mode)
    async with living(server, 12) as heard:
        more = server.lists + (3 if mode != "never ends" else 200)
        await until(lambda: server.lists >= more)
        assert [why in one.fault for one in heard.seen] == [True]
        assert [[why in text for _, text in one.why] for one in heard.outcomes if isinstance(one, Missed)] == [[True]]
        assert not server.posted
        server.mode = "is absent"
        await until(lambda: heard.seen[-1] == NfdSeen())
        server.mode = "is good"
        await until(lambda: bool(server.posted))
        assert heard.seen[-1].served or heard.seen[-2].served
    (made, *_) = (json.loads(one)["spec"]["features"] for one in server.posted)
    assert made["attributes"]["cpu.security"]["elements"] == {"tdx.total_keys": "12"}


async def test_where_the_settings_do_not_need_nfd_nobody_is_asked() -> None:
    server, asked, looked = Server("is absent"), list[bool](), list[bool]()

    def is_asked() -> bool:
        looked.append(True)
        return bool(asked)

    async with living(server, asked=is_asked):
        await until(lambda: len(looked) >= 5)
        assert server.lists == 0
        asked.append(True)
        await until(lambda: server.lists > 0)


async def test_a_write_that_another_came_before_is_tried_again() -> None:
    server = Server("conflicts")
    async with living(server, 12) as heard:
        await until(lambda: Reached in heard.kinds)
    assert len(server.posted) >= 3
    assert heard.kinds[:2] == [Missed, Reached]


ONCE = Pace(gap_s=0.02, absent_s=2 * WITHIN_S, resync_s=2 * WITHIN_S, unsettled_s=0.02, most_s=0.05)
"""Without another look for its own sake: what is found was told of, or asked for again."""
OURS = objects.object_name("n1")
EXPIRED = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}


class Versions(Server):
    """One object each of NFD's worker and of ours, with versions and uids; in one of its `mode`s something is old."""

    def __init__(self, mode: str, ours: int | None = None) -> None:
        super().__init__(mode)
        self.version, self.keys, self.uid, self.ours = 5, 16, 1, ours
        self.changes: list[tuple[str, object]] = []
        """Each PUT with its version, each DELETE with its uid."""

    def _is_first(self, mode: str) -> bool:
        """Whether now is when it happens, which is once."""
        is_now = self.mode == mode
        if is_now:
            self.mode = "is good"
            self.version += 1
        return is_now

    async def listed(self, request: web.Request) -> web.Response:
        if request.query.get("continue") and self._is_first("page"):
            self.keys = 12
            return json_of(EXPIRED, 410)
        items = [worker_object("nodeward", "n1", {"tdx.total_keys": str(self.keys)})]
        if self.ours is not None:
            labels = {objects.NODE_LABEL: "n1", "app.kubernetes.io/managed-by": "nodeward"}
            mine = {"name": OURS, "namespace": "nodeward", "uid": str(self.uid), "labels": labels}
            made = worker_object("nodeward", "n1", {"tdx.total_keys": str(self.ours)})
            items.append({**made, "metadata": mine | {"resourceVersion": str(self.version)}})
        return list_of(*items, version=str(self.version), more="more" if self.mode == "page" else "")

    async def watched(self, request: web.Request) -> web.StreamResponse:
        """Between the list and the watch the worker has told of fewer keys, and that version is gone."""
        if self._is_first("status"):
            self.keys = 12
            return json_of(EXPIRED, 410)
        if self._is_first("event"):
            self.keys = 12
            return web.Response(text=json.dumps({"type": "ERROR", "object": EXPIRED}) + "\n")
        return await super().watched(request)

    async def changed(self, request: web.Request) -> web.Response:
        body = await request.json()
        if request.method == "PUT":
            if self._is_first("edited"):
                self.ours = 99
            had, now = body["metadata"]["resourceVersion"], str(self.version)
        else:
            if self._is_first("replaced"):
                self.uid += 1
            had, now = body["preconditions"]["uid"], str(self.uid)
        self.changes.append((request.method, had))
        if had != now:
            return json_of({"code": 409, "reason": "Conflict", "message": "the object is another by now"}, 409)
        features = body["spec"]["features"]["attributes"] if request.method == "PUT" else {}
        self.ours = int(features["cpu.security"]["elements"]["tdx.total_keys"]) if features else None
        self.version += 1
        return json_of({})


def numbers(heard: Heard) -> list[Mapping[str, int]]:
    return [one.discovered for one in heard.seen if not one.fault]


@pytest.mark.parametrize("mode", ["status", "event", "page"])
async def test_what_has_changed_behind_an_expired_version_is_listed_anew(mode: str) -> None:
    async with living(Versions(mode), pace=ONCE) as heard:
        await until(lambda: {"tdx": 12} in numbers(heard))
    assert numbers(heard)[0] == {"tdx": 12 if mode == "page" else 16}


async def test_an_object_that_was_edited_since_it_was_listed_is_written_over_by_its_new_version() -> None:
    server = Versions("edited", ours=3)
    async with living(server, 7, pace=ONCE) as heard:
        await until(lambda: Reached in heard.kinds)
    assert server.ours == 7
    assert server.changes == [("PUT", "5"), ("PUT", "6")]
    assert heard.kinds == [Missed, Reached]
    assert "409" in str(heard.outcomes[0])


async def test_an_object_that_was_replaced_since_it_was_listed_is_removed_by_its_new_uid() -> None:
    server = Versions("replaced", ours=3)
    async with living(server, pace=ONCE):
        await until(lambda: server.ours is None)
    assert server.changes == [("DELETE", "1"), ("DELETE", "2")]


POD = {"apiVersion": "v1", "kind": "Pod", "name": "nfd-worker-x", "uid": "p1"}
DAEMON_SET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "nfd-worker", "uid": "d1", "controller": True}
STALE = replace(FAST, stale_s=0.2)
SELDOM = replace(STALE, resync_s=2 * WITHIN_S)


def pod(
    uid: str, phase: str = "Running", owner: str = "d1", *, going: bool = False, ready: Sequence[bool] = (True,)
) -> Json:
    ends: Json = {"deletionTimestamp": "2026-11-22T12:00:00Z"} if going else {}
    refs = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "some", "uid": owner, "controller": True}]
    status: Json = {"phase": phase, "containerStatuses": [{"ready": one} for one in ready]}
    return {"metadata": {"uid": uid, "ownerReferences": refs, **ends}, "status": status}


class Workers(Server):
    def __init__(self, owners: Sequence[Json] = (DAEMON_SET, POD), pods: Sequence[Json] | None = None) -> None:
        super().__init__()
        self.owners = owners
        self.pods = [pod("p1")] if pods is None else pods
        self.asked: list[str] = []
        self.status = 200

    def pods_of(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.path}?{request.query_string}")
        return json_of({"items": list(self.pods)}, self.status)

    async def listed(self, request: web.Request) -> web.Response:
        made = worker_object("nfd", "n1", {"tdx.total_keys": "16"})
        metadata = made["metadata"]
        assert isinstance(metadata, dict)
        return list_of({**made, "metadata": {**metadata, "ownerReferences": list(self.owners)}})


async def told(api: Workers, *changes: Callable[[Workers], None], pace: Pace = STALE, more: int = 10) -> list[bool]:
    """Whether the worker was told to be at work: at first, and after each change when that is told, with so many more
    rounds."""
    async with living(api, pace=pace) as heard:
        for number, change in enumerate((lambda api: None, *changes), 1):
            change(api)
            while len(heard.seen) < number:
                await asyncio.sleep(0.01)
        rounds = len(api.asked)
        await until(lambda: not api.asked or len(api.asked) >= rounds + more)
    assert {(one.fault, *one.discovered.items()) for one in heard.seen} == {("", ("tdx", 16))}, "what it found is known"
    assert heard.outcomes == []
    return [one.worker for one in heard.seen]


def _without_pods(api: Workers) -> None:
    api.pods = []


def _collected(api: Workers) -> None:
    """The garbage collector takes an owner that is gone from the object, while another is there."""
    api.owners, api.pods = [DAEMON_SET], []


def _again(api: Workers) -> None:
    api.pods = [pod("other", owner="other"), pod("p2")]


async def test_an_object_is_fresh_while_its_worker_runs_here_and_for_a_while_after() -> None:
    api = Workers()
    assert await told(api, _without_pods, _again, _collected, _again) == [True, False, True, False, True]
    assert api.asked[0] == "/api/v1/namespaces/nfd/pods?fieldSelector=spec.nodeName%3Dn1"


@pytest.mark.parametrize(
    "pods",
    [
        [],
        [pod("p1", "Pending")],
        [pod("p1", "Failed")],
        [pod("p1", going=True)],
        [pod("p1", ready=(True, False))],
        [pod("other", owner="other")],
    ],
    ids=["none", "not started", "failed", "being deleted", "dies again and again", "another's"],
)
async def test_who_does_not_run_here_keeps_nothing_up(pods: list[Json]) -> None:
    assert await told(Workers(pods=pods), lambda api: None) == [True, False]


@pytest.mark.parametrize(
    "owners", [[], [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n"}]], ids=["nobody", "the node"]
)
async def test_an_object_that_no_worker_owns_is_taken_at_its_word(owners: list[Json]) -> None:
    api = Workers(owners=owners, pods=[])
    assert (await told(api), api.asked) == ([True], [])


async def test_the_end_of_freshness_is_not_slept_over() -> None:
    assert await told(Workers(pods=[]), lambda api: None, pace=SELDOM, more=0) == [True, False]


@pytest.mark.parametrize("status", [401, 403])
async def test_where_pods_may_not_be_listed_nfds_numbers_go_on(status: int, caplog: pytest.LogCaptureFixture) -> None:
    api = Workers(pods=[])
    api.status = status
    assert await told(api) == [True]
    assert len(api.asked) > 10
    assert [one.getMessage()[:10] for one in caplog.records if one.levelname == "WARNING"] == ["nfd=untold"]


def test_the_rights_that_are_given_out_have_the_list_of_pods() -> None:
    text = (Path(__file__).parents[3] / "deploy/node/nfd.yaml").read_text("utf-8")
    rules = [rule for one in yaml.safe_load_all(text) for rule in one.get("rules", ())]
    assert {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]} in rules


NEVER_S = 1000 * WITHIN_S
BY_WATCH = replace(FAST, resync_s=NEVER_S, unsettled_s=NEVER_S, most_s=NEVER_S)
KEYS = "tdx.intel.com/keys"


class Numbered(Server):
    """An API server with NFD's worker's object, ours once it is made, and a node that can be watched."""

    def __init__(self, status: int = 200) -> None:
        super().__init__()
        self.status = status
        """How a watch on the node is answered."""
        self.beats = 0
        self.capacity = {KEYS: "12", "cpu": "4"}
        self.watchers: list[asyncio.Queue[bytes]] = []

    def change(self, capacity: dict[str, str] | None = None) -> None:
        self.beats += 1
        self.capacity = self.capacity if capacity is None else capacity
        for one in self.watchers:
            one.put_nowait(self._line("MODIFIED"))

    async def listed(self, request: web.Request) -> web.Response:
        return list_of(worker_object("nfd", "n1", {"tdx.total_keys": "16"}), *map(json.loads, self.posted))

    def _node(self) -> object:
        beat = {"type": "Ready", "lastHeartbeatTime": self.beats}
        return {"metadata": {"uid": "u"}, "status": {"capacity": self.capacity, "conditions": [beat]}}

    def _line(self, kind: str) -> bytes:
        return json.dumps({"type": kind, "object": self._node()}).encode() + b"\n"

    def one(self, request: web.Request) -> web.Response:
        return json_of(self._node()) if request.path == "/api/v1/nodes/n1" else super().one(request)

    async def watched(self, request: web.Request) -> web.StreamResponse:
        if request.path != "/api/v1/nodes":
            return await super().watched(request)
        assert dict(request.query) == {"watch": "1", "fieldSelector": "metadata.name=n1", "timeoutSeconds": "240"}
        if self.status != 200:
            return json_of({"code": self.status}, self.status)
        response, lines = web.StreamResponse(), asyncio.Queue[bytes]()
        await response.prepare(request)
        lines.put_nowait(self._line("ADDED"))
        self.watchers.append(lines)
        while True:
            await response.write(await lines.get())


@asynccontextmanager
async def beside(api: Numbered, pace: Pace = BY_WATCH) -> AsyncIterator[list[NfdSeen]]:
    async with living(api, 12, keys=(KEYS,), pace=pace) as heard:
        await until(lambda: bool(heard.seen and heard.seen[-1].written))
        assert (heard.seen[-1].on_node, heard.kinds) == ({KEYS: 12}, [Reached])
        yield heard.seen


async def test_a_number_that_goes_comes_or_changes_is_heard_of_without_another_look() -> None:
    api = Numbered()
    changes: list[dict[str, str]] = [{"cpu": "4"}, {"cpu": "4", KEYS: "12"}, {"cpu": "4", KEYS: "13"}]

    async with beside(api) as told:
        await until(lambda: len(api.watchers) == 1)
        looks = api.lists
        for capacity in changes:
            watches = len(api.watchers)
            api.change()
            api.change()
            api.change(capacity)
            while len(api.watchers) == watches:
                await asyncio.sleep(0.01)
        assert [one.on_node for one in told[-3:]] == [{}, {KEYS: 12}, {KEYS: 13}]
        assert api.lists == looks + 3


@pytest.mark.parametrize("status", [401, 403, 404, 500])
async def test_where_the_node_may_not_be_watched_its_number_is_read_at_the_next_look(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "nodeward.neighbours.nfd.session")
    api = Numbered(status)

    async with beside(api, FAST) as told:
        api.change({"cpu": "4"})
        await until(lambda: told[-1].on_node == {})
        looks = api.lists
        await until(lambda: api.lists > looks + 3)
    said = [one.getMessage() for one in caplog.records if "node-unwatched" in one.getMessage()]
    assert [str(status) in one for one in said] == [True]
