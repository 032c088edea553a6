"""Accepting TLS connections, and sending away who does not behave.

Promises: a handshake, a request's arrival and the taking of its answer each end in time, or the connection does; there
are never more connections than the bound. When there would be, the oldest one that has not brought a review yet is
closed in favour of the new one, so that idle strangers do not lock out an API server. A context may change between two
connections.

Must not: know what a request means.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from nodeward.edges.webhook.turned import Turned

log = logging.getLogger(__name__)
_BACKLOG = 1024
_SWEEP_S = 0.25
_CLOSE_STEP_S = 0.02


@dataclass(frozen=True, slots=True)
class Patience:
    """Bounds on time, in seconds, and on connections."""

    handshake_s: float = 5.0
    request_s: float = 10.0
    """From a request's first byte to its last, and again until the answer is taken."""
    close_s: float = 10.0
    """How long requests that have begun may take when the server stops."""
    max_connections: int = 2000


@dataclass(slots=True)
class DoorCounts:
    """What happened at the door since the start."""

    accepted: int = 0
    slow: int = 0
    """Connections ended because a request did not arrive, or an answer was not taken, in time."""
    failed_handshakes: int = 0
    evicted: int = 0
    """Connections closed in favour of newer ones."""
    turned_away: int = 0
    """Connections closed at once: all others had brought reviews."""


class Connection(web.RequestHandler):
    """aiohttp's connection, with a deadline for what is under way.

    `due` is when that must have ended, None while there is nothing; `busy` from a request's first byte to its answer.
    """

    __slots__ = ("_doors", "busy", "due")

    def __init__(self, doors: "Doors", server: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=doors.silent,
            auto_decompress=False,
            lingering_time=1.0,
            logger=doors.silent,
        )
        self._doors = doors
        self.due: float | None = None
        self.busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.expect()
        self._doors.entered(self)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if data and not self.busy:  # aiohttp itself calls this with nothing, to go on reading
            self.begun()
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._doors.left(self)
        super().connection_lost(exc)

    def begun(self) -> None:
        """A request is under way, unless it was so before."""
        self.busy = True
        if self.due is None:
            self.expect()

    def expect(self) -> None:
        """What comes next has its full time from now."""
        self.due = self._doors.now() + self._doors.patience.request_s

    def settled(self) -> None:
        """The answer is out: until the next request's first byte there is nothing to wait for."""
        self.due = None
        self.busy = False

    def trusted(self) -> None:
        """A review came this way: the connection is not closed in favour of others."""
        self._doors.trust(self)

    def abort(self) -> None:
        """Closes at once."""
        if isinstance(self.transport, asyncio.Transport):
            self.transport.abort()


class Doors:
    """One listening socket and its connections."""

    def __init__(
        self, server: web.Server, context: Callable[[], ssl.SSLContext | None], patience: Patience, turned: Turned
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._server = server
        self._context = context
        self.patience = patience
        self._turned = turned
        self.counts = DoorCounts()
        self.now = self._loop.time
        # aiohttp logs a stack for every stranger that speaks no HTTP; what goes wrong in a handler is logged there.
        self.silent = logging.Logger("http", level=logging.CRITICAL + 1)
        self._shaking: dict[asyncio.Task[None], None] = {}
        self._strangers: dict[Connection, None] = {}
        self._known: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._shaking) + len(self._strangers) + len(self._known)

    async def accept(self, listener: socket.socket) -> None:
        """Lets connections in, until cancelled."""
        while True:
            try:
                peer, _ = await self._loop.sock_accept(listener)
            except OSError as error:  # no descriptors left, or a client that is gone already
                log.warning("accept=failed error=%s connections=%d", error, len(self))
                await asyncio.sleep(0.1)
                continue
            self.counts.accepted += 1
            context = self._context()
            if context is None or not self._make_room():
                self.counts.turned_away += 1
                self._turned.tell(
                    "connection", "no certificate yet" if context is None else "all others are API servers"
                )
                peer.close()
                continue
            task = self._loop.create_task(self._shake_hands(peer, context))
            self._shaking[task] = None
            task.add_done_callback(lambda done: self._shaking.pop(done, None))

    async def sweep(self) -> None:
        """Ends connections whose time is up, until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = self.now()
            for connection in [*self._strangers, *self._known]:
                if connection.due is not None and connection.due < now:
                    self.counts.slow += 1
                    connection.abort()

    async def close(self) -> None:
        """Closes what is idle, lets what has begun come to its end, within its time."""
        for task in list(self._shaking):
            task.cancel()
        end = self.now() + self.patience.close_s
        while everyone := [*self._strangers, *self._known]:
            for connection in everyone:
                if not connection.busy or self.now() > end:
                    connection.force_close()
            if self.now() > end or not any(connection.busy for connection in everyone):
                break
            await asyncio.sleep(_CLOSE_STEP_S)
        await self._server.shutdown(_CLOSE_STEP_S)

    def entered(self, connection: Connection) -> None:
        """A handshake succeeded."""
        self._strangers[connection] = None

    def trust(self, connection: Connection) -> None:
        """See Connection.trusted."""
        if connection in self._strangers:
            del self._strangers[connection]
            self._known[connection] = None

    def left(self, connection: Connection) -> None:
        """A connection is gone."""
        self._strangers.pop(connection, None)
        self._known.pop(connection, None)

    def _make_room(self) -> bool:
        """Whether one more may come in, after the oldest stranger went if need be."""
        if len(self) < self.patience.max_connections:
            return True
        if self._shaking:
            oldest = next(iter(self._shaking))
            del self._shaking[oldest]
            oldest.cancel()
        elif self._strangers:
            stranger = next(iter(self._strangers))
            del self._strangers[stranger]
            stranger.abort()
        else:
            return False
        self.counts.evicted += 1
        self._turned.tell("evicted", f"more than {self.patience.max_connections} connections; the oldest idle ones go")
        return True

    async def _shake_hands(self, peer: socket.socket, context: ssl.SSLContext) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: Connection(self, self._server, self._loop),
                peer,
                ssl=context,
                ssl_handshake_timeout=self.patience.handshake_s,
                ssl_shutdown_timeout=1.0,
            )
        except OSError:  # TLS errors, resets and timeouts of the handshake are all of this kind
            self.counts.failed_handshakes += 1
        finally:
            if (task := asyncio.current_task()) is not None:
                self._shaking.pop(task, None)


def listen(address: str, port: int) -> socket.socket:
    """A listening socket. An empty address is every address of both families."""
    if address:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        found = socket.create_server((address, port), family=family, backlog=_BACKLOG)
    elif socket.has_dualstack_ipv6():
        found = socket.create_server(("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True)
    else:
        found = socket.create_server(("", port), backlog=_BACKLOG)
    found.setblocking(False)
    return found
