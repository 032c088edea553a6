"""The Pod API's HTTP door on a unix socket: `POST /v1/METHOD` with JSON, `GET /v1/watch`, and two GETs for people.

The kernel says whose process connects. Users that the settings do not name are refused, and have few places of their
own until they have heard why. Requests are bounded in size, time and number, and no error repeats what was asked.
"""

import asyncio
import contextlib
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import cast

import msgspec
from aiohttp import web

from nodeward.core.errors import AnswerError, Failure
from nodeward.features.podapi.door import messages as codec
from nodeward.features.podapi.door.methods import STALLED_S, Api, Desk, asked_by
from nodeward.features.podapi.rows import SECTIONS, SPEC
from nodeward.neighbours.sockets.lines import bound

KEPT_S = 5.0
"""So long a request may take to arrive, and a connection stays without one."""
MAX_LINE = 4096
MOST_CONNECTIONS = 2048
"""At once, of users that the settings name: each connection takes memory and a descriptor of the daemon."""
MOST_REFUSED = 64
"""At once, of all other users."""
BACKLOG = 512
"""Connections that wait for the loop. With aiohttp's 128, some of 200 clients at once are refused by the kernel."""
_SILENT = logging.Logger("http", level=logging.CRITICAL + 1)
"""aiohttp logs parts of requests that are no HTTP."""


class _Doorkeeper(asyncio.Protocol):
    """Looks at whose a connection is before it takes a place."""

    def __init__(self, admit: Callable[[asyncio.Transport], asyncio.Protocol | None]) -> None:
        self._admit = admit

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        opened = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance
        admitted = self._admit(opened)
        if admitted is None:
            opened.abort()
        else:
            opened.set_protocol(admitted)
            admitted.connection_made(opened)


async def run(
    path: str, uids: Collection[int], api: Api, desk: Desk, serving: Callable[[], None] = lambda: None
) -> None:
    """Serves until cancelled; the socket's file is there meanwhile. Calls `serving` once it is."""
    runner = web.AppRunner(
        _application(uids, api, desk),
        access_log=None,
        logger=_SILENT,
        keepalive_timeout=KEPT_S,
        max_line_size=MAX_LINE,
        max_field_size=MAX_LINE,
        shutdown_timeout=0.5,
        handler_cancellation=True,  # a watcher who has gone leaves its place
    )
    await runner.setup()
    taken = runner.server
    assert taken is not None, "it is made by setup"

    refused = list[asyncio.Transport]()

    def admit(transport: asyncio.Transport) -> asyncio.Protocol | None:
        refused[:] = [one for one in refused if not one.is_closing()]
        if peer_uid(transport) in uids:
            return taken() if len(taken.connections) - len(refused) < MOST_CONNECTIONS else None
        if len(refused) >= MOST_REFUSED:
            return None
        refused.append(transport)
        return taken()

    listening: asyncio.Server | None = None
    try:
        at = bound(path, 0o600 if list(uids) == [0] else 0o666)  # others may connect, and each is looked at
        checked = partial(_Doorkeeper, admit)
        listening = await asyncio.get_running_loop().create_unix_server(checked, sock=at, backlog=BACKLOG)
        serving()
        await asyncio.Event().wait()
    finally:
        if listening is not None:
            listening.close()
        await runner.cleanup()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def peer_uid(transport: asyncio.Transport | None) -> int | None:
    """The user of the process at the other end, as the kernel says; None where it does not."""
    asking = transport.get_extra_info("socket") if transport is not None else None
    if asking is None:
        return None
    said: bytes = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    uid: int = struct.unpack("=iII", said)[1]
    return uid


def _application(uids: Collection[int], api: Api, desk: Desk) -> web.Application:
    async def called(name: str, body: bytes) -> bytes:
        method = api.methods.get(name)
        if method is None:
            raise AnswerError(
                Failure.NOT_FOUND, f"no such method; there are {', '.join(api.methods)}, and GET /v1/watch"
            )
        return await desk.answered(name, method.by_json, body)

    async def call(request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(KEPT_S):
                body = await request.read()
        except TimeoutError:
            raise AnswerError(Failure.DEADLINE_EXCEEDED, f"the request did not arrive within {KEPT_S:g} s") from None
        return _json(await called(request.match_info["method"], body))

    async def pods(_: web.Request) -> web.Response:
        listed = msgspec.json.decode(await called("ListPods", b""), type=dict[str, msgspec.Raw])
        return _json(bytes(listed["pods"]))

    async def describe(request: web.Request) -> web.Response:
        """Every section but the spec, and what `fields` names."""
        named = [one for one in request.query.get("fields", "").split(",") if one]
        fields = [*(one for one in SECTIONS if one != SPEC), *named]
        selector = {key: request.match_info[key] for key in ("namespace", "name")}
        return _json(await called("DescribePod", msgspec.json.encode({"selector": selector, "fields": fields})))

    async def watch(request: web.Request) -> web.StreamResponse:
        with api.watch() as events:
            stream = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
            await stream.prepare(request)
            try:
                async for event in events:
                    async with asyncio.timeout(STALLED_S):
                        await stream.write(codec.json_of(event) + b"\n")
            except TimeoutError:
                if request.transport is not None:
                    request.transport.abort()
            return stream

    @web.middleware
    async def guarded(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        user = peer_uid(request.transport)
        if user is None or user not in uids:
            why = "this user may not ask: podapi.uids in the daemon's settings names those who may"
            refusal = _refused(403, why)
            refusal.force_close()  # the next one has the place
            return refusal
        asked_by.set(user)
        try:
            return await handler(request)
        except AnswerError as error:
            return _refused(error.failure.value, str(error))
        except web.HTTPRequestEntityTooLarge:
            return _refused(413, f"a request has at most {codec.MAX_REQUEST} bytes")
        except web.HTTPException as error:
            return _refused(error.status, f"{error.reason}: {_REQUESTS}")

    application = web.Application(client_max_size=codec.MAX_REQUEST, middlewares=[guarded])
    application.router.add_get("/v1/pods", pods)
    application.router.add_get("/v1/pods/{namespace}/{name}", describe)
    application.router.add_get("/v1/watch", watch)
    application.router.add_post("/v1/{method}", call)
    return application


_REQUESTS = (
    "this is the Pod API, which has POST /v1/METHOD with JSON, and GET /v1/pods, /v1/pods/NAMESPACE/NAME and /v1/watch"
)


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def _refused(status: int, why: str) -> web.Response:
    return web.json_response({"error": why}, status=status)
