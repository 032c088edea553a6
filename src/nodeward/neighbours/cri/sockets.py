"""The relay's sockets: one connection to the runtime for each client, under asyncio.

Exists so that a session knows neither sockets nor tasks. Promises: what one side does not read, the other is not read
for; with the runtime absent a client is accepted and closed, so that it tries again by itself; where one side goes, the
other gets what was on its way and goes too; a verdict that is late, fails or is not wanted any more holds up nothing.
Must not know what is relayed.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from functools import partial
from typing import Final, cast

from nodeward.core.errors import WireError
from nodeward.neighbours.cri.book import CallBook
from nodeward.neighbours.cri.calls import Call, UndecidedError, Verdict
from nodeward.neighbours.cri.held import failed
from nodeward.neighbours.cri.session import RelayedConnection
from nodeward.neighbours.cri.turn import Turn

CONNECT_S: Final = 5.0
FAREWELL_S: Final = 10.0
"""How long the last bytes of a connection wait for a reader."""
LAST_BYTES_S: Final = 1.0
"""The same when the relay ends."""
JOINED_BYTES: Final = 1 << 16
"""What is written as one piece, though it came as several."""
MAX_CONNECTIONS: Final = 1024
"""Clients at once; kubelet has two connections, people and agents some more."""

_log = logging.getLogger(__name__)


class _End(asyncio.Protocol):
    """One of a link's two connections."""

    def __init__(self, link: "Link", client: bool) -> None:
        self.link = link
        self.client = client
        self.turn = link.turn
        """By which bytes go on; None where they wait until the session has seen them."""
        self.other = self
        self.choked = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance
        self.link.made(self)

    def data_received(self, data: bytes) -> None:
        if self.turn is None:
            self.link.came(self, data)
        else:
            self.turn.came(self, data)

    def forward(self, data: bytes) -> None:
        """Sends what came here to the other end."""
        transport = self.other.transport
        try:
            if transport is None:
                self.link.wait(data)
            elif not transport.is_closing():
                transport.write(data)
        except Exception:
            self.link.fault()

    def look(self, data: bytes, came_ns: int, sent_ns: int) -> None:
        """Has the session see what has gone on."""
        self.link.look(self, data, came_ns, sent_ns)

    def write(self, pieces: list[bytes]) -> None:
        """Sends these, once there is a connection. Few bytes go as one, since that is quickest; more as they are, since
        they may be all that can be held."""
        transport = self.transport
        if transport is None:
            return
        if not transport.is_closing():
            if len(pieces) == 1:
                transport.write(pieces[0])
            elif sum(map(len, pieces)) > JOINED_BYTES:
                transport.writelines(pieces)
            else:
                transport.write(b"".join(pieces))
        pieces.clear()

    def pause_writing(self) -> None:
        self.choked = True
        self.link.gate()

    def resume_writing(self) -> None:
        self.choked = False
        self.link.gate()

    def connection_lost(self, exc: Exception | None) -> None:
        who = "the client" if self.client else "the runtime"
        self.link.abort(f"{who} closed the connection" if exc is None else f"the connection to {who} broke: {exc}")
        if self.client:
            self.link.left()


class Link:
    """One client's connection and the runtime's; the session's owner."""

    def __init__(self, relay: "Relay") -> None:
        self._relay = relay
        self.session = RelayedConnection(relay.book, self, relay.book.connection())
        self.turn = None if self.session.decides else relay.turn
        self._client = _End(self, client=True)
        self._runtime = self._client.other = _End(self, client=False)
        self._runtime.other = self._client
        self._verdicts: dict[int, asyncio.Future[Verdict]] = {}
        self._begun: dict[int, asyncio.TimerHandle] = {}
        self._dialling: asyncio.Task[None] | None = None
        self._waits = False
        """The client has made us say something that it does not read: it is not read from either."""

    def protocol(self) -> asyncio.Protocol:
        """The protocol for the client's connection."""
        return self._client

    # ---- its connections

    def made(self, end: _End) -> None:
        """One of the two is there."""
        if end is self._client:
            if not self._relay.enter(self):
                self.abort("too many connections")
                return
            assert end.transport is not None
            end.transport.pause_reading()
            self._dialling = asyncio.get_running_loop().create_task(self._dial())

    async def _dial(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_S):
                await asyncio.get_running_loop().create_unix_connection(lambda: self._runtime, self._relay.runtime)
        except (OSError, TimeoutError) as error:
            self._relay.absent(error)
            self.abort("the runtime is absent")
            return
        self._relay.present()
        if self._client.transport is None or self._client.transport.is_closing():
            self.abort("the client went")
            return
        self._flush()
        self.gate()

    def came(self, end: _End, data: bytes) -> None:
        """Bytes of either, to be seen before they go on."""
        if end.client:
            self._from_client(data)
        else:
            self._from_runtime(data)

    def wait(self, data: bytes) -> None:
        """The client's bytes go on once the runtime is there."""
        self.session.runtime_out.append(data)
        self.gate()  # uvloop begins to read after `made`, whatever was said there

    def look(self, end: _End, data: bytes, came_ns: int, sent_ns: int) -> None:
        """Has the session see what has gone on."""
        try:
            (self.session.client_sent if end.client else self.session.runtime_sent)(data, came_ns, sent_ns)
        except Exception:
            self.fault()
            return
        self._flush()

    def _from_client(self, data: bytes) -> None:
        session = self.session
        try:
            session.from_client(data)
        except Exception:
            self.fault()
            return
        if self._runtime.transport is None:
            self.gate()
        elif session.client_out and self._client.choked:
            self._waits = True
            self.gate()
        self._flush()

    def _from_runtime(self, data: bytes) -> None:
        try:
            self.session.from_runtime(data)
        except Exception:
            self.fault()
            return
        self._flush()

    def fault(self) -> None:
        """A fault of ours: this link cannot be trusted any more, all others can."""
        self._relay.book.fault("relay")
        self.abort("a fault of the relay, see its log")

    def gate(self) -> None:
        """Reads from each side while the other takes what comes of it."""
        client, runtime = self._client, self._runtime
        self._waits = self._waits and client.choked
        _read(client.transport, not runtime.choked and not self._waits and runtime.transport is not None)
        _read(runtime.transport, not client.choked)

    def abort(self, why: str) -> None:
        """Ends both connections once all written bytes are read, or after a while."""
        self._relay.turn.end()
        self.session.close(why)
        for end in (self._client, self._runtime):
            if end.transport is not None and not end.transport.is_closing():
                end.transport.close()
                asyncio.get_running_loop().call_later(FAREWELL_S, end.transport.abort)

    def left(self) -> None:
        """Called when the client's connection is gone."""
        self._relay.leave(self)

    def goaway(self, last: bool) -> None:
        """Announces the relay's end to the client, between frames."""
        self._relay.turn.end()
        self.session.goaway(last)
        self._flush()

    def _flush(self) -> None:
        session = self.session
        if session.runtime_out:
            self._runtime.write(session.runtime_out)
        if session.client_out:
            self._client.write(session.client_out)
        session.watch.written()
        if session.over:
            self.abort(session.over)
        self._relay.stirred.set()

    # ---- its held calls

    def expect(self, stream: int, within_ns: int) -> None:
        """A held request has begun."""
        within_s = max(0, within_ns) / 1e9
        self._begun[stream] = asyncio.get_running_loop().call_later(within_s, self._is_late, stream)

    def _is_late(self, stream: int) -> None:
        del self._begun[stream]
        self.session.holds.late(stream, self._relay.ending)
        self._flush()

    def _came(self, stream: int) -> None:
        timer = self._begun.pop(stream, None)
        if timer is not None:
            timer.cancel()

    def ask(self, stream: int, call: Call, message: bytes, within_ns: int) -> Verdict | None:
        """The decider's verdict, or None if it comes later."""
        self._came(stream)
        assert self._relay.book.decider is not None
        answer = self._relay.book.decider.decide(call, message, within_ns)
        if not isinstance(answer, Awaitable):
            return answer
        task = self._verdicts[stream] = asyncio.ensure_future(answer)
        late = asyncio.get_running_loop().call_later(within_ns / 1e9, task.cancel)
        task.add_done_callback(partial(self._decided, stream, late))
        return None

    def _decided(self, stream: int, late: asyncio.TimerHandle, task: asyncio.Future[Verdict]) -> None:
        late.cancel()
        if self._verdicts.pop(stream, None) is not task:
            return  # it was abandoned
        try:
            self.session.holds.verdict(stream, task.result())
        except asyncio.CancelledError:
            self.session.holds.undecided(stream, "no decision in time")
        except (WireError, UndecidedError) as error:
            self.session.holds.undecided(stream, str(error))
        except Exception as error:
            self._relay.book.fault("decider")
            self.session.holds.undecided(stream, failed(error))
        self._flush()

    def abandon(self, stream: int) -> None:
        """Ends the wait for a verdict."""
        self._came(stream)
        task = self._verdicts.pop(stream, None)
        if task is not None:
            task.cancel()

    def end_holds(self) -> None:
        """The relay ends."""
        self.session.holds.end()
        self._flush()


def _read(transport: asyncio.Transport | None, wanted: bool) -> None:
    if transport is None or transport.is_closing():
        return
    if wanted:
        transport.resume_reading()
    else:
        transport.pause_reading()


class Relay:
    """All links between one listening socket and one runtime's."""

    def __init__(self, book: CallBook, runtime: str) -> None:
        self.book = book
        self.runtime = runtime
        self._links: dict[Link, None] = {}
        self.turn = Turn(book.clock, later=book.watched)
        """What passes undecided."""
        self.stirred = asyncio.Event()
        """Set when anything has passed."""
        self._empty = asyncio.Event()
        self._empty.set()
        self._full = False
        """Somebody was closed for want of room, and there has been none since."""
        self.here: bool | None = None
        """Whether the runtime answered the last client; None before the first."""
        self.ending = False
        """Whether no more calls are to begin here."""

    def protocol(self) -> asyncio.Protocol:
        """The protocol for a client that connects."""
        return Link(self).protocol()

    def enter(self, link: Link) -> bool:
        """A client is connected; whether there is room for it."""
        if len(self._links) >= MAX_CONNECTIONS:
            if not self._full:
                self._full = True
                _log.warning("clients=too-many at_most=%d; others are closed until one of them goes", MAX_CONNECTIONS)
            return False
        self._links[link] = None
        self._empty.clear()
        self.book.counts.open = len(self._links)
        return True

    def leave(self, link: Link) -> None:
        """It is gone."""
        self._links.pop(link, None)
        self._full = self._full and len(self._links) >= MAX_CONNECTIONS
        self.book.counts.open = len(self._links)
        if not self._links:
            self._empty.set()

    def absent(self, error: BaseException) -> None:
        """The runtime does not answer. Said once, until it does."""
        if self.here is not False:
            self.here = False
            _log.warning("runtime absent socket=%s error=%s; clients are closed until it is there", self.runtime, error)

    def present(self) -> None:
        """It answers."""
        before, self.here = self.here, True
        if before is False:
            _log.info("runtime present socket=%s", self.runtime)

    async def drain(self, within_s: float) -> None:
        """Has every client begin no more calls here, waits for those under way, and closes. Streams without an end are
        closed with the rest."""
        self.ending = True
        for link in tuple(self._links):
            link.goaway(last=False)
        try:
            async with asyncio.timeout(within_s):
                while any(link.session.waits for link in self._links):
                    self.stirred.clear()
                    await self.stirred.wait()
        except TimeoutError:
            _log.warning("calls cut off, not answered whole after %g s", within_s)
        for link in tuple(self._links):
            link.end_holds()
            link.goaway(last=True)
            link.abort("the relay ends")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_BYTES_S):
                await self._empty.wait()
