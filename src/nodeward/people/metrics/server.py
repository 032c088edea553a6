"""`GET /metrics` over HTTP, for Prometheus; everything bounded, and drawn beside the loop. `GET /readyz`, for kubelet's
probe, says what the daemon still waits for: to run a program in the container for that costs a second of processor.

What a scrape costs the loop is a snapshot and some writes of a piece each: the picture is drawn and made text on a
lane's thread. One text serves everyone who asks while it is made, and for FRESH_S after that, so many scrapers cost no
more than one. A request must have come, and its answer be taken, within REQUEST_S; then a connection may be idle for
IDLE_S. Beyond MOST_CONNECTIONS the oldest one that has had no answer yet makes room, else the oldest idle one.

There is no TLS and no login: whoever reaches the address reads the names of pods and what they use.
"""

import asyncio
import gc
import logging
import socket
import time
from collections.abc import Callable, Sequence

from aiohttp import web

from nodeward.core.ports import Pace
from nodeward.host.lanes import Lane
from nodeward.host.pace import paced
from nodeward.people.metrics.exposition import pieces
from nodeward.people.metrics.mapping import metrics
from nodeward.people.rows import NodeView

log = logging.getLogger(__name__)
PATH = "/metrics"
READY = "/readyz"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
FRESH_S = 0.5
REQUEST_S = 10.0
"""Prometheus' own default patience."""
IDLE_S = 150.0
"""More than two scrapes a minute apart."""
MOST_CONNECTIONS = 32
_SILENT = logging.Logger("http", level=logging.CRITICAL + 1)
"""aiohttp logs a stack for every stranger that speaks no HTTP."""

Snapshot = Callable[[], Callable[[Pace], NodeView]]
"""Takes what a picture is drawn of, on the loop and at once; what it returns draws, on any thread."""
Waiting = Callable[[], Sequence[str]]
"""What the daemon still waits for, a line each; nothing where it is ready."""
Text = tuple[bytes, ...]
"""Whole lines, in pieces."""


class Texts:
    """The newest text, made on a lane when someone asks."""

    def __init__(self, snapshot: Snapshot, lane: Lane) -> None:
        self._snapshot, self._lane = snapshot, lane
        self._made: Text = ()
        self._made_s: float | None = None
        self._making: asyncio.Future[Text | BaseException] | None = None

    async def newest(self) -> Text:
        """The text. OSError or what went wrong where it cannot be made."""
        if self._made_s is not None and time.monotonic() - self._made_s < FRESH_S:
            return self._made
        if self._making is None:
            self._making = self._begin()
        made = await asyncio.shield(self._making)
        if isinstance(made, BaseException):
            raise made
        return made

    def _begin(self) -> asyncio.Future[Text | BaseException]:
        making: asyncio.Future[Text | BaseException] = asyncio.get_running_loop().create_future()
        draw = self._snapshot()

        def done(made: Text | BaseException) -> None:
            self._making = None
            if not isinstance(made, BaseException):
                self._made, self._made_s = made, time.monotonic()
            making.set_result(made)

        def make() -> Text:
            gc.disable()  # else thousands of short-lived objects set off full collections, which stop the loop too
            try:
                return tuple(pieces(metrics(draw(paced))))
            finally:
                gc.enable()

        if not self._lane.submit("metrics", make, done):
            done(OSError("the metrics lane is full or hangs"))
        return making


class _Connection(web.RequestHandler):
    """aiohttp's connection, with a deadline that is always set."""

    __slots__ = ("_door", "_timer", "busy", "served")

    def __init__(self, door: "_Door", server: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(server, loop=loop, access_log=_SILENT, lingering_time=1.0, logger=_SILENT)
        self._door = door
        self._timer: asyncio.TimerHandle | None = None
        self.busy = self.served = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._within(REQUEST_S)
        self._door.entered(self)

    def data_received(self, data: bytes) -> None:
        if self.served and not self.busy:
            self._within(REQUEST_S)
        self.busy = True
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._door.left(self)
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def settled(self) -> None:
        """An answer was taken."""
        self.busy, self.served = False, True
        self._within(IDLE_S)

    def abort(self) -> None:
        """Closes at once."""
        if self.transport is not None:  # uvloop's is no asyncio.Transport by inheritance
            self.transport.abort()

    def _within(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.abort)


class _Door:
    """The connections, oldest first."""

    def __init__(self) -> None:
        self._open: dict[_Connection, None] = {}

    def entered(self, connection: _Connection) -> None:
        """One more; who has to go for it, goes."""
        if len(self._open) >= MOST_CONNECTIONS:
            idle = [one for one in self._open if not one.busy]
            goes = next((one for one in self._open if not one.served), next(iter(idle), connection))
            goes.abort()
            self._open.pop(goes, None)
            if goes is connection:
                return
        self._open[connection] = None

    def left(self, connection: _Connection) -> None:
        """It is gone."""
        self._open.pop(connection, None)

    def close(self) -> None:
        """Ends them all."""
        for connection in list(self._open):
            connection.abort()


async def run(
    host: str, port: int, texts: Texts, serving: Callable[[], None] = lambda: None, waiting: Waiting = lambda: ()
) -> None:
    """Serves until cancelled. OSError if the address cannot be had; `serving` is called once it is."""
    loop = asyncio.get_running_loop()
    door = _Door()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, _Connection)
        response = await _answer(request, texts, waiting)
        connection.settled()
        return response

    server = web.Server(handle)
    listening = await loop.create_server(lambda: _Connection(door, server, loop), await _addresses(host, port), port)
    try:
        for one in listening.sockets:
            log.info("metrics=served address=%s port=%d", *one.getsockname()[:2])
        serving()
        await asyncio.Event().wait()
    finally:
        listening.close()
        door.close()
        await server.shutdown(0.1)


async def check(host: str, port: int) -> None:
    """OSError if the address cannot be had now."""
    loop = asyncio.get_running_loop()
    (await loop.create_server(asyncio.Protocol, await _addresses(host, port), port)).close()


async def _addresses(host: str, port: int) -> list[str]:
    """The host's, each once. Asked for here: uvloop would ask on threads that hold up the end."""
    asking = asyncio.get_running_loop().getaddrinfo
    found = await asking(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys(_shown(address) for *_, address in found))


def _shown(address: tuple[str | int | bytes, ...]) -> str:
    """As `getaddrinfo` reads it. A link-local address means nothing without its scope."""
    bare, scope = str(address[0]), address[3] if len(address) == 4 else 0
    return f"{bare}%{scope:d}" if isinstance(scope, int) and scope else bare


async def _answer(request: web.BaseRequest, texts: Texts, waiting: Waiting) -> web.StreamResponse:
    status: int = 200
    body: Text
    path = request.raw_path.partition("?")[0]
    if path == READY and request.method in ("GET", "HEAD"):
        lines = waiting()
        status, body = (
            (503, tuple(f"not ready: {line}\n".encode() for line in lines)) if lines else (200, (b"ready\n",))
        )
    elif path != PATH:
        status, body = 404, (f"nodeward: there is nothing at this path; metrics are at {PATH}\n".encode(),)
    elif request.method not in ("GET", "HEAD"):
        status, body = 405, (b"nodeward: metrics are read with GET\n",)
    else:
        try:
            body = await texts.newest()
        except Exception as error:
            log.warning("metrics=failed error=%s: %s", type(error).__name__, error)
            status, body = 503, (b"nodeward: the metrics could not be made; see the daemon's log\n",)
    response = web.StreamResponse(status=status, headers={"Content-Type": CONTENT_TYPE})
    response.content_length = sum(map(len, body))
    if request.can_read_body:
        response.force_close()  # which nobody reads
    await response.prepare(request)
    if request.method != "HEAD":
        for piece in body:
            await response.write(piece)
            await asyncio.sleep(0)  # others first: a fast reader never makes a write wait
    await response.write_eof()
    return response
