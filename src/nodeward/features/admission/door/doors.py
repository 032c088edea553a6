"""Accepts TLS connections, and closes those that do not behave.

Promises: a handshake, a request's arrival and the taking of its answer each end in time, or the connection does; there
are never more connections than the bound. When there would be, the oldest one that has not brought a review yet is
closed in favour of the new one, so that idle strangers do not lock out an API server; if all have, the one that is idle
for longest. A context may change between two connections.

Must not: know what a request means.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from nodeward.features.admission.door.connection import Common, Connection, Service
from nodeward.features.admission.door.refusal_log import RefusalLog
from nodeward.host.tls import shake_hands

log = logging.getLogger(__name__)
_BACKLOG = 1024
_SWEEP_S = 0.25
_SHUTDOWN_S = 1.0
_CLOSE_STEP_S = 0.02
_DISTRUSTS = "; an API server that does not trust the certificate has another authority as the caBundle"


@dataclass(frozen=True, slots=True)
class Patience:
    """Bounds on time, in seconds, and on connections."""

    handshake_s: float = 5.0
    request_s: float = 10.0
    """From a request's first byte to its last, and again until the answer is taken."""
    idle_s: float = 3600.0
    """Between requests. The API server closes its idle connections far sooner."""
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
    """Connections closed at once: all others were being answered."""


class Doors:
    """One listening socket and its connections."""

    def __init__(
        self, service: Service, context: Callable[[], ssl.SSLContext | None], patience: Patience, turned: RefusalLog
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._service = service
        self._context = context
        self._patience = patience
        self.request_s = patience.request_s
        self._turned = turned
        self.counts = DoorCounts()
        self.now = self._loop.time
        self._common = Common(self._loop)
        self._strangers: dict[Connection, asyncio.Task[None] | None] = {}
        """The oldest first, with what shakes hands; None once that has succeeded."""
        self._known: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._strangers) + len(self._known)

    async def accept(self, listener: socket.socket) -> None:
        """Lets connections in, until cancelled."""
        while True:
            try:
                peer = await self._next(listener)
            except OSError as error:  # no descriptors left, or a client that is gone already
                log.warning("accept=failed error=%s connections=%d", error, len(self))
                await asyncio.sleep(0.1)
                continue
            self.counts.accepted += 1
            context = self._context()
            if context is None or not self._make_room():
                self.counts.turned_away += 1
                self._turned.tell(
                    "connection", "no certificate yet" if context is None else "all others are being answered"
                )
                peer.close()
                continue
            connection = Connection(self, self._service, self._common)
            self._strangers[connection] = self._loop.create_task(self._shake_hands(connection, peer, context))

    async def _next(self, listener: socket.socket) -> socket.socket:
        """The next who comes. Not by asyncio's `sock_accept`: where its caller is cancelled while somebody is at the
        door, it accepts that one all the same, finds nobody to give it to, and logs an error."""
        while True:
            try:
                peer, _ = listener.accept()
            except (BlockingIOError, InterruptedError):
                await self._somebody(listener)
                continue
            peer.setblocking(False)
            return peer

    async def _somebody(self, listener: socket.socket) -> None:
        there = self._loop.create_future()

        def come() -> None:
            if not there.done():
                there.set_result(None)

        self._loop.add_reader(listener, come)
        try:
            await there
        finally:
            self._loop.remove_reader(listener)

    async def sweep(self) -> None:
        """Ends connections past their time, until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = self.now()
            for connection in self._greeted():
                if connection.answered:
                    connection.answered, connection.idle_since = False, now
                if connection.due is None:
                    if connection.idle_since + self._patience.idle_s < now:
                        connection.close()
                elif connection.due < now and connection.overdue():
                    self.counts.slow += 1
                    self._turned.tell("slow", "a request had not arrived, or its answer was not taken, in time")

    async def close(self) -> None:
        """Closes idle connections at once, and the others when their request has ended or their time is over."""
        for task in list(self._strangers.values()):
            if task is not None:
                task.cancel()
        end = self.now() + self._patience.close_s
        while everyone := self._greeted():
            for connection in everyone:
                if not connection.busy or self.now() > end:
                    connection.close()
            if self.now() > end or not any(connection.busy for connection in everyone):
                break
            await asyncio.sleep(_CLOSE_STEP_S)

    def entered(self, connection: Connection) -> None:
        """A handshake succeeded."""
        self._strangers[connection] = None

    def trust(self, connection: Connection) -> None:
        """See Watch."""
        if connection in self._strangers:
            del self._strangers[connection]
            self._known[connection] = None

    def left(self, connection: Connection) -> None:
        """A connection is gone."""
        self._strangers.pop(connection, None)
        self._known.pop(connection, None)

    def _make_room(self) -> bool:
        """Whether one more may come in, after the oldest stranger went if need be, or without any who is idle for
        longest: to have brought one review costs nothing, and must not lock out an API server."""
        if len(self) < self._patience.max_connections:
            return True
        oldest = next(iter(self._strangers), None) or self._idlest()
        if oldest is None:
            return False
        handshake = self._strangers.pop(oldest, None)
        self._known.pop(oldest, None)
        if handshake is not None:
            handshake.cancel()
        else:
            oldest.abort()
        self.counts.evicted += 1
        self._turned.tell("evicted", f"more than {self._patience.max_connections} connections; the oldest idle ones go")
        return True

    def _idlest(self) -> Connection | None:
        idle = [one for one in self._known if not one.busy]
        return min(idle, key=lambda one: (one.answered, one.idle_since), default=None)

    def _greeted(self) -> list[Connection]:
        return [*(one for one, handshake in self._strangers.items() if handshake is None), *self._known]

    async def _shake_hands(self, connection: Connection, peer: socket.socket, context: ssl.SSLContext) -> None:
        try:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            await shake_hands(peer, connection, context, self._common.sealed, self._patience.handshake_s, _SHUTDOWN_S)
        except OSError as error:  # TLS errors, resets and timeouts of the handshake are all of this kind
            self.counts.failed_handshakes += 1
            if isinstance(error, ssl.SSLError | ConnectionAbortedError):  # no reset, as by a probe that only connects
                distrusts = isinstance(error, ssl.SSLError) and "_ALERT_" in (error.reason or "")
                self._turned.tell("handshake", f"TLS: {error}{_DISTRUSTS if distrusts else ''}")
        finally:
            if self._strangers.get(connection) is not None:  # no handshake, and so nobody who leaves
                del self._strangers[connection]


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
