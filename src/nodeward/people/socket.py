"""The operators' socket: HTTP on a unix socket that only root opens. Answers are JSON.

`GET /v1/status` is the whole picture, `GET /v1/explain?what=WHAT` sentences on what FORMS say, `GET
/v1/decisions?after=NUMBER` the latest decisions, and `POST /v1/plan` what a CPU policy would do. Nothing is changed by
these; `POST /v1/decommission` takes back what kubelet is offered, `POST /v1/keys/move` changes by which way keys go.
The version in the path changes when an answer's shape does.
"""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from aiohttp import web

from nodeward.neighbours.sockets.lines import bound

MAX_WHAT = 1024
MAX_BODY = 1024 * 1024
MAX_DIGITS = 18
FORMS = "[NAMESPACE/]POD, NAMESPACE/POD/CONTAINER, the first characters of a container's id, or the path of a cgroup"


@dataclass(frozen=True, slots=True)
class Answers:
    """The functions that answer each request; all are JSON bytes. `explain` returns None for what is not known.
    `commands` take the body of a POST, each one request at a time; ValueError says what is wrong with it."""

    status: Callable[[], bytes]
    explain: Callable[[str], bytes | None]
    commands: Mapping[str, Callable[[bytes], Awaitable[bytes]]] = field(default_factory=dict)
    """By the path below `/v1/`."""
    decisions: Callable[[int], bytes] = lambda _: b"[]"
    """Those with a higher number."""


async def run(path: str, answers: Answers) -> None:
    """Serves until cancelled; the socket's file is there meanwhile, mode 0600."""
    runner = web.AppRunner(_application(answers), access_log=None)
    await runner.setup()
    try:
        await web.SockSite(runner, bound(path)).start()
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _application(answers: Answers) -> web.Application:
    async def status(_: web.Request) -> web.Response:
        return _json(answers.status())

    async def explain(request: web.Request) -> web.Response:
        what = request.query.get("what", "")
        if not 0 < len(what) <= MAX_WHAT:
            return web.json_response({"error": f"what: give {FORMS}"}, status=400)
        found = answers.explain(what)
        if found is None:
            error = f"nothing known on this node is {what!r} (a pod may have ended); give {FORMS}"
            return web.json_response({"error": error}, status=404)
        return _json(found)

    async def decisions(request: web.Request) -> web.Response:
        after = request.query.get("after", "0")
        if not (after.isascii() and after.isdecimal() and len(after) <= MAX_DIGITS):
            return web.json_response({"error": f"after: {after[:MAX_WHAT]!r} is no number of a decision"}, status=400)
        return _json(answers.decisions(int(after)))

    def commanded(command: Callable[[bytes], Awaitable[bytes]]) -> Callable[[web.Request], Awaitable[web.Response]]:
        turn = asyncio.Lock()

        async def answer(request: web.Request) -> web.Response:
            if turn.locked():
                return web.json_response({"error": "another such request is being answered; ask again"}, status=503)
            async with turn:
                try:
                    return _json(await command(await request.read()))
                except ValueError as error:
                    return web.json_response({"error": str(error)}, status=400)

        return answer

    application = web.Application(client_max_size=MAX_BODY)
    application.router.add_get("/v1/status", status)
    application.router.add_get("/v1/explain", explain)
    application.router.add_get("/v1/decisions", decisions)
    for path, command in answers.commands.items():
        application.router.add_post(f"/v1/{path}", commanded(command))
    return application


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")
