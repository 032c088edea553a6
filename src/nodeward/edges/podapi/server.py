"""The Pod API over HTTP on a unix socket: `GET /v1/pods`, `GET /v1/pods/NAMESPACE/NAME?fields=spec`, `POST /v1/METHOD`.

The kernel says whose process asks; users that the settings do not name are refused. Requests are bounded in size, time
and number, and no error repeats what was asked.
"""

import asyncio
import contextlib
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

from aiohttp import web

from nodeward.aio.hostfs import make_folders
from nodeward.model.errors import NodewardError

MOST_AT_ONCE = 32
ANSWER_S = 5.0
MAX_LINE = 4096
_SILENT = logging.Logger("http", level=logging.CRITICAL + 1)
"""aiohttp logs parts of requests that are no HTTP."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Where the answers come from; all are JSON bytes. `describe` is given namespace, name and whether the spec is
    wanted, and returns None for a pod that is not known. `methods` take a body of JSON by name; NodewardError says what
    is wrong with it."""

    pods: Callable[[], bytes]
    describe: Callable[[str, str, bool], Awaitable[bytes | None]]
    methods: Mapping[str, Callable[[bytes], Awaitable[bytes]]]


async def run(path: str, uids: Collection[int], answers: Answers) -> None:
    """Serves until cancelled; the socket's file is there meanwhile."""
    runner = web.AppRunner(
        _application(uids, answers),
        access_log=None,
        logger=_SILENT,
        keepalive_timeout=ANSWER_S,
        max_line_size=MAX_LINE,
        max_field_size=MAX_LINE,
    )
    await runner.setup()
    try:
        make_folders(os.path.dirname(path))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # left by a daemon that was killed; the lock says there is no other
        old = os.umask(0o177 if list(uids) == [0] else 0o111)  # others may connect, and each is looked at
        try:
            await web.UnixSite(runner, path).start()
        finally:
            os.umask(old)
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def peer_uid(request: web.BaseRequest) -> int | None:
    """The user of the process at the other end, as the kernel says; None where it does not."""
    transport = request.transport
    asking = transport.get_extra_info("socket") if transport is not None else None
    if asking is None:
        return None
    said: bytes = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    uid: int = struct.unpack("=iII", said)[1]
    return uid


def _application(uids: Collection[int], answers: Answers) -> web.Application:
    busy = asyncio.Semaphore(MOST_AT_ONCE)

    async def pods(_: web.Request) -> web.Response:
        return _json(answers.pods())

    async def describe(request: web.Request) -> web.Response:
        fields = [one for one in request.query.get("fields", "").split(",") if one]
        if any(one != "spec" for one in fields):
            return _refused(400, "fields: the only field that is left out unless it is named is spec")
        found = await answers.describe(request.match_info["namespace"], request.match_info["name"], bool(fields))
        return _json(found) if found is not None else _refused(404, "this node knows no such pod; see GET /v1/pods")

    async def call(request: web.Request) -> web.Response:
        method = answers.methods.get(request.match_info["method"])
        if method is None:
            return _refused(404, f"no such method; there are {', '.join(answers.methods)}")
        try:
            return _json(await method(await request.read()))
        except NodewardError as error:
            return _refused(400, str(error))

    @web.middleware
    async def guarded(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if peer_uid(request) not in uids:
            return _refused(403, "this user may not ask: podapi.uids in the daemon's settings names those who may")
        if busy.locked():
            return _refused(503, f"{MOST_AT_ONCE} requests are being answered, which is the most: ask again")
        try:
            async with busy, asyncio.timeout(ANSWER_S):
                return await handler(request)
        except TimeoutError:
            return _refused(504, f"not answered within {ANSWER_S:g} s: ask again, or without fields=spec")

    application = web.Application(client_max_size=MAX_LINE, middlewares=[guarded])
    application.router.add_get("/v1/pods", pods)
    application.router.add_get("/v1/pods/{namespace}/{name}", describe)
    application.router.add_post("/v1/{method}", call)
    return application


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def _refused(status: int, why: str) -> web.Response:
    return web.json_response({"error": why}, status=status)
