"""An API server that hangs, lies or floods, as the NFD edge meets it: a fault that is told once, within bounds."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from nodeward.aio.clock import SystemClock
from nodeward.app.host.performers import ByEdge
from nodeward.edges.nfd.client import NfdClient, Place
from nodeward.edges.nfd.session import Pace, Session
from nodeward.model.decision import Goal, Reason
from nodeward.model.events import Event, Missed, NfdSeen, Reached
from nodeward.model.ports import Tell
from nodeward.transport.kube_http import Endpoint, KubeHttp, Waits
from nodeward.wire import nfd
from tests.component.kube.support import until
from tests.goals import target
from tests.patience import scaled

WITHIN_S = scaled(30.0)
FAST = Pace(gap_s=0.02, absent_s=0.05, resync_s=0.05, unsettled_s=0.02, most_s=0.05)
QUICK = Waits(connect_s=0.5, read_s=0.5, total_s=2.0)
EMPTY = json.dumps({"metadata": {"resourceVersion": "1"}, "items": []})


class Server:
    """It answers lists as `mode` says, knows no node, and keeps what is posted."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.lists = 0
        self.posted: list[bytes] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            self.posted.append(await request.read())
            conflicts = self.mode == "conflicts" and len(self.posted) < 3
            return web.Response(status=409 if conflicts else 201, text="{}")
        if "/nodes/" in request.path or "zzz-nodeward" in request.path:
            return web.Response(status=404, text="{}")
        if request.query.get("watch"):
            return await self._hang()
        self.lists += 1
        match self.mode:
            case "hangs":
                return await self._hang()
            case "lies":
                return web.Response(text='{"metadata": 1, "items": "none"}')
            case "floods":
                return web.Response(text=" " * (nfd.MAX_BYTES + 1))
            case "never ends":
                return web.Response(text=json.dumps({"metadata": {"continue": "on"}, "items": []}))
            case "fails":
                return web.Response(status=500, text="oh")
            case "is absent":
                return web.Response(status=404, text="{}")
            case _:
                return web.Response(text=EMPTY)

    async def _hang(self) -> web.Response:
        await asyncio.sleep(WITHIN_S)
        return web.Response()


@asynccontextmanager
async def living(
    server: Server,
    tell: Tell,
    wanted: int | None = None,
    *,
    keys: tuple[str, ...] = ("a/b",),
    pace: Pace = FAST,
    asked: Callable[[], bool] = lambda: True,
) -> AsyncIterator[None]:
    """A session before the server, which wants so many keys there, for as long as the block."""
    goals = ByEdge("nfd")
    goals.connect(tell)
    if wanted is not None:
        goals.set([Goal(target("nfd:tdx"), str(wanted), Reason("shared"))])
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", server.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    endpoint = Endpoint(f"http://127.0.0.1:{runner.addresses[0][1]}")
    try:
        async with asyncio.timeout(WITHIN_S), KubeHttp(endpoint, SystemClock(), user_agent="test") as http:
            client = NfdClient(http, Place("n1", "nodeward"), QUICK)
            session = Session(client, goals, {"tdx": keys}, tell, SystemClock(), lambda: None, asked=asked, pace=pace)
            task = asyncio.create_task(session.forever())
            yield
            task.cancel()
            await asyncio.wait((task,))
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("hangs", "no answer in time"),
        ("lies", "list of NodeFeatures of 32 bytes cannot be read"),
        ("floods", f"a body of more than {nfd.MAX_BYTES} bytes"),
        ("never ends", "more than 256 of them bear this node's name"),
        ("fails", "500"),
    ],
)
async def test_a_bad_server_is_a_fault_told_once_and_nothing_is_written_until_it_is_good(mode: str, why: str) -> None:
    server, told, missed = Server(mode), list[NfdSeen](), list[str]()

    def tell(event: Event) -> int:
        if isinstance(event, NfdSeen):
            told.append(event)
        if isinstance(event, Missed):
            missed.extend(why for _, why in event.why)
        return 0

    async with living(server, tell, 12):
        more = server.lists + (3 if mode != "never ends" else 200)
        await until(lambda: server.lists >= more)
        assert [why in one.fault for one in told] == [True]
        assert [why in one for one in missed] == [True]
        assert not server.posted
        server.mode = "is absent"
        await until(lambda: told[-1] == NfdSeen())
        server.mode = "is good"
        await until(lambda: bool(server.posted))
        assert told[-1].served or told[-2].served
    (made, *_) = (json.loads(one)["spec"]["features"] for one in server.posted)
    assert made["attributes"]["cpu.security"]["elements"] == {"tdx.total_keys": "12"}


async def test_where_the_settings_do_not_need_nfd_nobody_is_asked() -> None:
    server, asked, looked = Server("is absent"), list[bool](), list[bool]()

    def is_asked() -> bool:
        looked.append(True)
        return bool(asked)

    async with living(server, lambda _: 0, asked=is_asked):
        await until(lambda: len(looked) >= 5)
        assert server.lists == 0
        asked.append(True)
        await until(lambda: server.lists > 0)


async def test_a_write_that_another_came_before_is_tried_again() -> None:
    server, told = Server("conflicts"), list[Event]()

    def tell(event: Event) -> int:
        told.append(event)
        return 0

    async with living(server, tell, 12):
        await until(lambda: any(isinstance(one, Reached) for one in told))
    assert len(server.posted) >= 3
    assert [type(one) for one in told if not isinstance(one, NfdSeen)][:2] == [Missed, Reached]
