"""Serves the page over HTTP: static files, `GET /events` (server-sent events), `GET /explain?what=WHAT`.

Promises: answers only to the host names it is told (a page of another site that has its name point here gets nothing),
only GET and HEAD, a bounded number of open pages, and a slow reader costs one picture and then its connection. Nothing
that it serves is made here; it changes nothing. There is no login: it listens at the loopback unless told otherwise.
"""

import asyncio
import contextlib
import ipaddress
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Final

from aiohttp import web

log = logging.getLogger(__name__)
MOST_PAGES: Final = 200
"""Open at once; each costs a task and a socket, the picture is one for all."""
WRITE_S: Final = 10.0
"""A page that does not take a picture for so long is given up."""
BEAT_S: Final = 15.0
"""Without a new picture a comment is sent, so that a page which is gone is noticed."""
MAX_WHAT: Final = 1024
MOST_EXPLAINED: Final = 16
"""Explanations that are asked for at once; the next one is refused, and a person clicks again."""
_PORT: Final = re.compile(r":[0-9]{1,5}\Z")
NOTHING: Final = "there is nothing at this path; the page is at /"
_TYPES: Final[Mapping[str, str]] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_GUARDS: Final = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(slots=True)
class Pictures:
    """The newest picture, as the event for all pages, and the waiters for the next."""

    newest: bytes = b""
    number: int = 0
    open: int = 0
    """Pages that are open now."""
    _next: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, picture: bytes) -> None:
        """A newer one, for all pages."""
        self.newest, self.number = b"data: %b\n\n" % picture, self.number + 1
        waiting, self._next = self._next, asyncio.Event()
        waiting.set()

    async def after(self, number: int) -> bool:
        """Waits for a newer one; false where none has come for a while."""
        if self.number > number:
            return True
        try:
            await asyncio.wait_for(self._next.wait(), BEAT_S)
        except TimeoutError:
            return False
        return True


Explain = Callable[[str], Awaitable[tuple[int, bytes]]]
"""What the daemon says of something: HTTP status and JSON."""


def hosts(host: str, more: tuple[str, ...]) -> frozenset[str]:
    """The names that are answered, in lower case. At any port: a tunnel has one of its own, and who has a name point
    here has the name wrong."""
    names = {"127.0.0.1", "localhost", "[::1]", *(name.lower() for name in more)}
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
        if not address.is_unspecified:
            names.add(f"[{address}]" if address.version == 6 else str(address))
    return frozenset(names)


def application(pictures: Pictures, explain: Explain, allowed: frozenset[str]) -> web.Application:
    """The page's application. `allowed` is what `hosts` returns."""
    static = {path.name: path.read_bytes() for path in (files(__package__) / "static").iterdir() if path.is_file()}

    explaining = asyncio.Semaphore(MOST_EXPLAINED)

    @web.middleware
    async def guard(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        host, origin = request.headers.get("Host", "").lower(), request.headers.get("Origin")
        if _PORT.sub("", host) not in allowed:
            return _refused(
                403,
                "this host name is not answered; open the address that `nodeward page` prints, or give --allow-host",
            )
        if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
            return _refused(403, "a page of another origin is not answered")
        site, mode = (request.headers.get(f"Sec-Fetch-{name}", "") for name in ("Site", "Mode"))
        if site in ("cross-site", "same-site") and mode != "navigate":
            return _refused(403, "a page of another origin is not answered")
        if request.method not in ("GET", "HEAD"):
            return _refused(405, "this page is read with GET")
        try:
            return await handler(request)
        except web.HTTPNotFound:
            return _refused(404, NOTHING)

    async def one_file(request: web.Request) -> web.StreamResponse:
        name = request.match_info.get("name") or "index.html"
        content = static.get(name)
        kind = _TYPES.get(name[name.rfind(".") :])
        if content is None or kind is None:
            return _refused(404, NOTHING)
        return web.Response(body=content, headers={**_GUARDS, "Content-Type": kind})

    async def explained(request: web.Request) -> web.StreamResponse:
        what = request.query.get("what", "")
        if not 0 < len(what) <= MAX_WHAT:
            return _refused(400, f"what: give a name of 1 to {MAX_WHAT} characters")
        if explaining.locked():
            busy = f"{MOST_EXPLAINED} explanations are asked for already; try again"
            return web.json_response({"error": busy}, status=503, headers=_GUARDS)
        async with explaining:
            status, body = await explain(what)
        return web.Response(status=status, body=body, headers={**_GUARDS, "Content-Type": "application/json"})

    async def events(request: web.Request) -> web.StreamResponse:
        if pictures.open >= MOST_PAGES:
            return _refused(503, f"{MOST_PAGES} pages are open already; close one")
        pictures.open += 1
        try:
            return await _stream(request, pictures)
        finally:
            pictures.open -= 1

    made = web.Application(middlewares=[guard], client_max_size=1024)
    made.router.add_get("/events", events)
    made.router.add_get("/explain", explained)
    made.router.add_get("/{name:[a-zA-Z0-9._-]{0,64}}", one_file)
    return made


def _refused(status: int, why: str) -> web.Response:
    return web.Response(status=status, text=f"nodeward: {why}\n", headers=_GUARDS)


async def _stream(request: web.Request, pictures: Pictures) -> web.StreamResponse:
    response = web.StreamResponse(headers={**_GUARDS, "Content-Type": "text/event-stream"})
    if request.method == "HEAD":
        return response
    await response.prepare(request)
    seen = 0
    with contextlib.suppress(ConnectionError, TimeoutError):
        while True:
            if await pictures.after(seen):
                seen, told = pictures.number, pictures.newest
            else:
                told = b": nothing new\n\n"
            await asyncio.wait_for(response.write(told), WRITE_S)
    if request.transport is not None:
        request.transport.abort()  # to close it would first wait for whoever does not read, and keep the picture
    return response


async def run(
    made: web.Application, host: str, port: int, serving: Callable[[int], None], fall_back: bool = False
) -> None:
    """Serves until cancelled. OSError where the address cannot be had; with `fall_back` another port is taken where
    this one is. `serving` is told the port."""
    runner = web.AppRunner(made, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        try:
            site = web.TCPSite(runner, host, port)
            await site.start()
        except OSError:
            if not fall_back:
                raise
            site = web.TCPSite(runner, host, 0)
            await site.start()
        serving(int(runner.addresses[0][1]))
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
