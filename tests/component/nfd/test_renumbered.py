"""The node's number, as the NFD edge hears of it: by a watch on the node, else when it looks again."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from aiohttp import web

from nodeward.doubles.nfd import worker_object
from nodeward.edges.nfd.session import Pace
from nodeward.model.events import Event, Missed, NfdSeen, Reached
from tests.component.kube.support import until
from tests.component.nfd.test_bad_servers import FAST, WITHIN_S, Server, living

NEVER_S = 1000 * WITHIN_S
BY_WATCH = replace(FAST, resync_s=NEVER_S, unsettled_s=NEVER_S, most_s=NEVER_S)
KEYS = "tdx.intel.com/keys"


class Api(Server):
    """An API server with NFD's worker's object, ours once it is made, and a node that can be watched."""

    def __init__(self, status: int = 200) -> None:
        super().__init__("is good")
        self.status = status
        """How a watch on the node is answered."""
        self.beats = 0
        self.capacity = {KEYS: "12", "cpu": "4"}
        self.watchers: list[asyncio.Queue[bytes]] = []

    def change(self, capacity: dict[str, str] | None = None) -> None:
        """The node's capacity changes, or nothing but its heartbeat."""
        self.beats += 1
        self.capacity = self.capacity if capacity is None else capacity
        for one in self.watchers:
            one.put_nowait(self._line("MODIFIED"))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/api/v1/nodes":
            return await self._watched(request)
        if request.path == "/api/v1/nodes/n1":
            return web.json_response(self._node())
        if request.method == "POST" or request.query.get("watch"):
            return await super().answer(request)
        self.lists += 1
        items = [worker_object("nfd", "n1", {"tdx.total_keys": "16"}), *map(json.loads, self.posted)]
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})

    def _node(self) -> object:
        beat = {"type": "Ready", "lastHeartbeatTime": self.beats}
        return {"metadata": {"uid": "u"}, "status": {"capacity": self.capacity, "conditions": [beat]}}

    def _line(self, kind: str) -> bytes:
        return json.dumps({"type": kind, "object": self._node()}).encode() + b"\n"

    async def _watched(self, request: web.Request) -> web.StreamResponse:
        assert dict(request.query) == {"watch": "1", "fieldSelector": "metadata.name=n1", "timeoutSeconds": "240"}
        if self.status != 200:
            return web.json_response({"code": self.status}, status=self.status)
        response, lines = web.StreamResponse(), asyncio.Queue[bytes]()
        await response.prepare(request)
        lines.put_nowait(self._line("ADDED"))
        self.watchers.append(lines)
        while True:
            await response.write(await lines.get())


@asynccontextmanager
async def beside(api: Api, pace: Pace = BY_WATCH) -> AsyncIterator[list[NfdSeen]]:
    """What is told by a session that has written 12 keys, which the node has."""
    told, outcomes = list[NfdSeen](), list[Event]()

    def tell(event: Event) -> int:
        if isinstance(event, NfdSeen):
            told.append(event)
        elif isinstance(event, Reached | Missed):
            outcomes.append(event)
        return 0

    async with living(api, tell, 12, keys=(KEYS,), pace=pace):
        await until(lambda: bool(told and told[-1].written))
        assert (told[-1].on_node, [type(one) for one in outcomes]) == ({KEYS: 12}, [Reached])
        yield told


async def test_a_number_that_goes_comes_or_changes_is_heard_of_without_another_look() -> None:
    """Given a node with our number, when Kata's rule goes, comes back, and NFD's master writes another one, then each
    is told by one look, and the node's heartbeats by none."""
    api = Api()
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
    caplog.set_level("INFO", "nodeward.edges.nfd.session")
    api = Api(status)

    async with beside(api, FAST) as told:
        api.change({"cpu": "4"})
        await until(lambda: told[-1].on_node == {})
        looks = api.lists
        await until(lambda: api.lists > looks + 3)
    said = [one.getMessage() for one in caplog.records if "node-unwatched" in one.getMessage()]
    assert [str(status) in one for one in said] == [True]
