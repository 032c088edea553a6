"""The read of the node's status before a registration: what is found, and that nobody waits for an API server."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from aiohttp import web

from nodeward.aio.clock import SystemClock
from nodeward.app.host.core import Core
from nodeward.app.node import node_status, pod_facts
from nodeward.app.node.pods import ApiFacts
from nodeward.app.relay import facts as relay_facts
from nodeward.edges.kube.client import PodsClient
from nodeward.edges.kube.reflector import PodReader
from nodeward.edges.kube.settings import KubeSettings
from nodeward.engine.state.pods import Pods
from nodeward.model.settings import KubeSection, Settings
from nodeward.model.sizing import Allocatable
from nodeward.transport.kube_http import Endpoint
from nodeward.wire.facts_line import Asked
from nodeward.wire.kube_node import OnNode
from tests.component.kube.support import HandClock, until
from tests.patience import scaled

TDX = "devices.kubevirt.io/tdx"
NODE = {"status": {"capacity": {TDX: "5"}}, "metadata": {"managedFields": []}}


async def read(answer: web.Response | None) -> tuple[OnNode, list[str]]:
    """What is read from a server that answers so, or never; and what it was asked."""
    asked: list[str] = []

    async def served(request: web.Request) -> web.Response:
        asked.append(request.path)
        if answer is None:
            await asyncio.Event().wait()
        assert answer is not None
        return answer

    async with serving(served) as url:
        settings = Settings(node_name="n1", kube=KubeSection(url=url))
        return await node_status.reader(settings, {}, SystemClock())(TDX), asked


@asynccontextmanager
async def serving(served: Callable[[web.Request], Awaitable[web.Response]]) -> AsyncIterator[str]:
    """Where a server answers so; bounds what is done with it."""
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", served)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with asyncio.timeout(scaled(30)):
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_what_the_status_has_is_read() -> None:
    assert await read(web.json_response(NODE)) == (OnNode(5), ["/api/v1/nodes/n1"])


@pytest.mark.parametrize(
    ("answer", "level", "why"),
    [
        pytest.param(web.json_response({}, status=403), logging.WARNING, "403", id="no right"),
        pytest.param(web.json_response({}, status=404), logging.INFO, "404", id="no such node"),
        pytest.param(web.Response(text="[garbage"), logging.INFO, "cannot be read", id="garbage"),
        pytest.param(None, logging.INFO, "no answer", id="never answers"),
    ],
)
async def test_an_api_server_that_does_not_tell_keeps_nobody_from_registering(
    answer: web.Response | None, level: int, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert (await read(answer))[0] == OnNode()
    (said,) = [one for one in caplog.records if one.name == node_status.__name__]
    assert (said.levelno, why in said.getMessage()) == (level, True), said.getMessage()


async def test_what_is_allocatable_is_read_again_and_told_to_the_relay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Given an API server that refuses, then tells, then talks nonsense, then what it told stays."""
    caplog.set_level(logging.INFO, node_status.__name__)
    table = {"status": {"allocatable": {"cpu": "7500m", "memory": "8Gi"}}}
    answers, asked, node = iter([(403, {}), (200, table)]), list[str](), Allocatable(7500, 1 << 33)

    async def served(request: web.Request) -> web.Response:
        asked.append(request.path)
        status, found = next(answers, (200, []))
        return web.json_response(found, status=status)

    async def no_answer(*_: object) -> str:
        return "not asked for here"

    clock = HandClock()
    async with serving(served) as url, asyncio.TaskGroup() as tasks:
        client = PodsClient(KubeSettings(endpoint=Endpoint(url), node_name="n1"), clock)
        facts = ApiFacts(PodReader(client), cast(Core, None))
        serve = pod_facts.serve(str(tmp_path), Pods, no_answer, no_answer, lambda: facts.allocatable)
        beside = [tasks.create_task(node_status.keep_allocatable(client, facts.learn, clock))]
        beside.append(tasks.create_task(serve))
        await until(lambda: len(asked) > 3 and (tmp_path / pod_facts.SOCKET).is_socket())
        told = await relay_facts.told(f"{tmp_path}/{pod_facts.SOCKET}", Asked("", "", ""), scaled(5))
        for task in beside:
            task.cancel()
        await client.aclose()
    assert told.allocatable == node
    assert clock.slept[1] == node_status.AGAIN_S
    assert set(asked) == {"/api/v1/nodes/n1"}
    said = [(one.levelno, one.getMessage()) for one in caplog.records if one.name == node_status.__name__]
    assert [level for level, _ in said] == [logging.WARNING, logging.INFO, logging.INFO], "the last one once"
    assert "Grant `get` on `nodes`" in said[0][1]
    assert said[1][1] == f"allocatable=read cpu_m=7500 memory={1 << 33}"


async def test_where_no_api_server_is_configured_nobody_is_asked() -> None:
    ask = node_status.reader(Settings(kube=KubeSection(enabled=False)), {}, SystemClock())
    assert await ask(TDX) == OnNode()
