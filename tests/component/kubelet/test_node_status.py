"""The read of the node's status before a registration: what is found, and that nobody waits for an API server."""

from __future__ import annotations

import asyncio
import logging

import pytest
from aiohttp import web

from nodeward.aio.clock import SystemClock
from nodeward.app.node import node_status
from nodeward.model.settings import KubeSection, Settings
from nodeward.wire.kube_node import OnNode
from tests.patience import scaled

TDX = "devices.kubevirt.io/tdx"
NODE = {"status": {"capacity": {TDX: "5"}}, "metadata": {"managedFields": []}}


def read(answer: web.Response | None) -> tuple[OnNode, list[str]]:
    """What is read from a server that answers so, or never; and what it was asked."""
    asked: list[str] = []

    async def served(request: web.Request) -> web.Response:
        asked.append(request.path)
        if answer is None:
            await asyncio.Event().wait()
        assert answer is not None
        return answer

    async def story() -> OnNode:
        app = web.Application()
        app.router.add_route("*", "/{rest:.*}", served)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            kube = KubeSection(url=f"http://127.0.0.1:{runner.addresses[0][1]}")
            async with asyncio.timeout(scaled(30)):
                return await node_status.reader(Settings(node_name="n1", kube=kube), {}, SystemClock())(TDX)
        finally:
            await runner.cleanup()

    return asyncio.run(story()), asked


def test_what_the_status_has_is_read() -> None:
    assert read(web.json_response(NODE)) == (OnNode(5), ["/api/v1/nodes/n1"])


@pytest.mark.parametrize(
    ("answer", "level", "why"),
    [
        pytest.param(web.json_response({}, status=403), logging.WARNING, "403", id="no right"),
        pytest.param(web.json_response({}, status=404), logging.INFO, "404", id="no such node"),
        pytest.param(web.Response(text="[garbage"), logging.INFO, "cannot be read", id="garbage"),
        pytest.param(None, logging.INFO, "no answer", id="never answers"),
    ],
)
def test_an_api_server_that_does_not_tell_keeps_nobody_from_registering(
    answer: web.Response | None, level: int, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert read(answer)[0] == OnNode()
    (said,) = [one for one in caplog.records if one.name == node_status.__name__]
    assert (said.levelno, why in said.getMessage()) == (level, True), said.getMessage()


def test_where_no_api_server_is_configured_nobody_is_asked() -> None:
    ask = node_status.reader(Settings(kube=KubeSection(enabled=False)), {}, SystemClock())
    assert asyncio.run(_of(ask)) == OnNode()


async def _of(ask: object) -> object:
    assert callable(ask)
    return await ask(TDX)
