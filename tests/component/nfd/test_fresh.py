"""How fresh the object of NFD's worker is, as the NFD edge finds out: by whether the worker still runs on this node."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from nodeward.doubles.nfd import worker_object
from nodeward.edges.nfd.session import Pace
from nodeward.model.events import Event, NfdSeen
from tests.component.kube.support import until
from tests.component.nfd.test_bad_servers import FAST, WITHIN_S, Server, living

POD = {"apiVersion": "v1", "kind": "Pod", "name": "nfd-worker-x", "uid": "p1"}
DAEMON_SET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "nfd-worker", "uid": "d1", "controller": True}
STALE = replace(FAST, stale_s=0.2)
SELDOM = replace(STALE, resync_s=2 * WITHIN_S)
Json = Mapping[str, object]


def pod(
    uid: str, phase: str = "Running", owner: str = "d1", *, going: bool = False, ready: Sequence[bool] = (True,)
) -> Json:
    ends: Json = {"deletionTimestamp": "2026-11-22T12:00:00Z"} if going else {}
    refs = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "some", "uid": owner, "controller": True}]
    status: Json = {"phase": phase, "containerStatuses": [{"ready": one} for one in ready]}
    return {"metadata": {"uid": uid, "ownerReferences": refs, **ends}, "status": status}


class Api(Server):
    """An API server with the worker's object and the node's pods in NFD's namespace."""

    def __init__(self, owners: Sequence[Json] = (DAEMON_SET, POD), pods: Sequence[Json] | None = None) -> None:
        super().__init__("is good")
        self.owners = owners
        self.pods = [pod("p1")] if pods is None else pods
        self.asked: list[str] = []
        self.status = 200

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch"):
            await asyncio.sleep(WITHIN_S)
        if "/nodes/" in request.path:
            return web.json_response({}, status=404)
        if request.path.endswith("/pods"):
            self.asked.append(f"{request.path}?{request.query_string}")
            return web.json_response({"items": list(self.pods)}, status=self.status)
        made = dict(worker_object("nfd", "n1", {"tdx.total_keys": "16"}))
        metadata = made["metadata"]
        assert isinstance(metadata, dict)
        made["metadata"] = {**metadata, "ownerReferences": list(self.owners)}
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": [made]})


async def told(api: Api, *changes: Callable[[Api], None], pace: Pace = STALE, more: int = 10) -> list[bool]:
    """Whether the worker was told to be at work: at first, and after each change when that is told, with so many more
    rounds."""
    said: list[bool] = []

    def tell(event: Event) -> int:
        assert isinstance(event, NfdSeen)
        assert (event.fault, event.discovered) == ("", {"tdx": 16}), "what it has found stays known"
        said.append(event.worker)
        return 0

    async with living(api, tell, pace=pace):
        for number, change in enumerate((lambda api: None, *changes), 1):
            change(api)
            while len(said) < number:
                await asyncio.sleep(0.01)
        rounds = len(api.asked)
        await until(lambda: not api.asked or len(api.asked) >= rounds + more)
    return said


def _without_pods(api: Api) -> None:
    api.pods = []


def _collected(api: Api) -> None:
    """The garbage collector takes an owner that is gone from the object, while another is there."""
    api.owners, api.pods = [DAEMON_SET], []


def _again(api: Api) -> None:
    api.pods = [pod("other", owner="other"), pod("p2")]


async def test_an_object_is_fresh_while_its_worker_runs_here_and_for_a_while_after() -> None:
    api = Api()
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
    assert await told(Api(pods=pods), lambda api: None) == [True, False]


@pytest.mark.parametrize(
    "owners", [[], [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n"}]], ids=["nobody", "the node"]
)
async def test_an_object_that_no_worker_owns_is_taken_at_its_word(owners: list[Json]) -> None:
    api = Api(owners=owners, pods=[])
    assert (await told(api), api.asked) == ([True], [])


async def test_the_end_of_freshness_is_not_slept_over() -> None:
    assert await told(Api(pods=[]), lambda api: None, pace=SELDOM, more=0) == [True, False]


@pytest.mark.parametrize("status", [401, 403])
async def test_where_pods_may_not_be_listed_nfds_numbers_go_on(status: int, caplog: pytest.LogCaptureFixture) -> None:
    api = Api(pods=[])
    api.status = status
    assert await told(api) == [True]
    assert len(api.asked) > 10
    assert [one.getMessage()[:10] for one in caplog.records if one.levelname == "WARNING"] == ["nfd=untold"]


def test_the_rights_that_are_given_out_have_the_list_of_pods() -> None:
    text = (Path(__file__).parents[3] / "deploy/node/nfd.yaml").read_text("utf-8")
    rules = [rule for one in yaml.safe_load_all(text) for rule in one.get("rules", ())]
    assert {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]} in rules
