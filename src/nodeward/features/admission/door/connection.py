"""One connection and its requests, one after the other, without tasks: bytes in, bytes out, in one callback.

The parser is aiohttp's. Its server is not used: a verdict waits for nothing, and a task, a request and a response
object for each review cost more than the verdict.

Promises: a request is answered in the callback that brings its last byte. What came behind it waits for the loop's next
turn, and while the client does not take its answers nothing more is read from it. An answer given before its request
has ended ends the connection, after the client has had time to read it.

Must not: know what a request means; `Service` does.
"""

import asyncio
import time
from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple, Protocol

from aiohttp import StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpRequestParser, HttpVersion11, RawRequestMessage


class Answer(NamedTuple):
    """The answer to one request."""

    body: bytes
    status: int = 200
    reviewed: bool = False
    """It is the answer to a review, in JSON; else text for people."""
    ends: bool = False
    """The connection ends after it."""


def said(text: str, status: int = 200, *, ends: bool = False) -> Answer:
    """A line of text."""
    return Answer(f"{text}\n".encode(), status, False, ends)


class Heads:
    """Writes answers."""

    __slots__ = ("_second", "_usual")

    def __init__(self) -> None:
        self._second = 0
        self._usual = b""

    def written(self, answer: Answer, *, ends: bool, bodyless: bool) -> bytes:
        """Head and body; `bodyless` is for HEAD."""
        now = int(time.time())
        if now != self._second:
            date = formatdate(now, usegmt=True).encode("ascii")
            self._second, self._usual = now, b"\r\nDate: %b\r\nContent-Length: " % date
        if answer.reviewed and not ends:
            return b"HTTP/1.1 200 OK\r\nContent-Type: application/json%b%d\r\n\r\n%b" % (
                self._usual,
                len(answer.body),
                answer.body,
            )
        return b"HTTP/1.1 %d %b\r\nContent-Type: %b%b%d\r\n%b\r\n%b" % (
            answer.status,
            HTTPStatus(answer.status).phrase.encode("ascii"),
            b"application/json" if answer.reviewed else b"text/plain; charset=utf-8",
            self._usual,
            len(answer.body),
            b"Connection: close\r\n" if ends else b"",
            b"" if bodyless else answer.body,
        )


_LINGER_S = 1.0
_BUFFER_BYTES = 256 * 1024
_UNBOUNDED = 1 << 30
"""The parser need not stop the client: what it has is taken from it in the same callback, and bounded here."""

Begun = tuple[RawRequestMessage, StreamReader]
"""A request's head, and its body as far as it is there."""


class Service(Protocol):
    """What answers, without waiting."""

    @property
    def closing(self) -> bool:
        """Whether every connection ends after its next answer."""

    def whole(self, head: RawRequestMessage, body: bytes) -> Answer:
        """The answer to a request that came in one piece."""

    def opened(self, head: RawRequestMessage) -> int | Answer:
        """How many bytes the body of a request may have that is still to come, or at once the answer. A number is
        followed by `rest` or `ended`, with the same number."""

    def rest(self, head: RawRequestMessage, body: bytes | bytearray, room: int) -> Answer:
        """The answer to a request that is whole now; or more than whole."""

    def ended(self, room: int) -> None:
        """Called when the request has ended."""

    def waits(self, count: int) -> None:
        """So many bytes of an answer wait for their client; a negative count no longer do."""

    def unreadable(self) -> Answer:
        """The answer to a request that is not HTTP."""


class Watch(Protocol):
    """Who watches over connections."""

    @property
    def request_s(self) -> float:
        """How long a request may take from its first byte to its last, and again until the answer is taken."""

    def now(self) -> float:
        """The loop's time."""

    def entered(self, connection: "Connection") -> None:
        """It is there."""

    def trust(self, connection: "Connection") -> None:
        """A review came this way: it is not to be closed in favour of others."""

    def left(self, connection: "Connection") -> None:
        """It is gone."""


class _Unstoppable(BaseProtocol):
    """What a parser tells when to read on, and is not heard: its bodies are emptied in the same callback."""

    def pause_reading(self) -> None:
        """Nothing."""

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Nothing."""


class Common:
    """What the connections of one thread share. Both buffers are free between two callbacks: `sealed` takes what comes
    from the socket, `buffer` what it says."""

    __slots__ = ("buffer", "heads", "loop", "protocol", "sealed")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.protocol = _Unstoppable(loop)
        self.heads = Heads()
        self.sealed = bytearray(_BUFFER_BYTES)
        self.buffer = memoryview(bytearray(_BUFFER_BYTES))


class Connection(asyncio.BufferedProtocol):
    """`due` is when that must have ended which is under way, None while nothing is; `busy` from a request's first byte
    to its answer; `answered` is set at each answer, for whoever counts how long it is idle."""

    __slots__ = (
        "_body",
        "_common",
        "_ending",
        "_full",
        "_head",
        "_over",
        "_payload",
        "_requests",
        "_room",
        "_service",
        "_stuck",
        "_transport",
        "_unsent",
        "_watch",
        "answered",
        "busy",
        "due",
        "idle_since",
    )

    def __init__(self, watch: Watch, service: Service, common: Common) -> None:
        self._watch, self._service, self._common = watch, service, common
        self._requests = HttpRequestParser(
            common.protocol, common.loop, _UNBOUNDED, auto_decompress=False, max_msg_queue_size=1
        )
        self._transport: asyncio.Transport | None = None
        self._head: RawRequestMessage | None = None
        self._payload: StreamReader | None = None
        self._body = bytearray()
        self._room: int | None = None
        self._full = self._stuck = self._over = self._ending = False
        self._unsent = 0
        self.due: float | None = None
        self.busy = self.answered = False
        self.idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=1)  # asyncio's own is 512 KiB, of which a client may leave all with us
        self.due = self._watch.now() + self._watch.request_s
        self._watch.entered(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._over, self._payload, self._transport = True, None, None
        self._give_back()
        self._count_unsent(0)
        self._watch.left(self)

    def eof_received(self) -> None:
        """The client has ended its side: TLS ends, once the client has taken what it was told, or its time is up."""
        self._ending = True
        if self.due is None:
            self.due = self._watch.now() + self._watch.request_s

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._common.buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._common.buffer[:nbytes])
        if self._over:
            self._discard(data)
        else:
            self._take(self._parsed(data))

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._count_unsent(0)
        if self._stuck:
            self._stuck = False
            if self._transport is not None and not self._over:
                self._transport.resume_reading()
                self._follow()

    def close(self) -> None:
        """Ends it; what is written already is sent first, in bounded time."""
        self._over, self._payload, self.busy, self._ending = True, None, False, True
        self.due = self._watch.now() + self._watch.request_s
        try:
            if self._transport is not None:
                self._transport.close()
        except RuntimeError as error:  # the loop's, of a socket that is gone: nobody else would hear of it
            self.connection_lost(error)

    def overdue(self) -> bool:
        """Ends it, since its time is up. Whether the client was slow."""
        if self._over and not self._ending:
            self.close()
            return False
        self.abort()
        return True

    def abort(self) -> None:
        """Ends it at once."""
        if self._transport is not None:
            self._transport.abort()

    def _parsed(self, data: bytes) -> Begun | None:
        """The request that begins with these bytes. What is no HTTP is answered, and the end."""
        try:
            messages, _, _ = self._requests.feed_data(data)
        except Exception:  # a parser finds many kinds of faults, and all are the client's
            self._send(self._service.unreadable(), ends=True)
            self.close()
            return None
        return messages[0] if messages else None  # it stops after each

    def _take(self, begun: Begun | None) -> None:
        """Goes on with what has arrived."""
        if self._over:
            return
        if begun is not None:
            self._head, self._payload = head, payload = begun
            if payload.is_eof():
                self._answer(head, self._service.whole(head, payload.read_nowait()))
                return
            found = self._service.opened(head)
            if isinstance(found, Answer):
                self._refuse(found)
                return
            self._room = found
        if not self.busy:
            self._begin()
        if self._payload is not None:
            self._more(self._payload)

    def _more(self, payload: StreamReader) -> None:
        """More of a body."""
        self._body += payload.read_nowait()
        room = self._room
        if room is None or self._head is None or not (payload.is_eof() or len(self._body) > room):
            return
        answer = self._service.rest(self._head, self._body, room)
        self._body = bytearray()
        self._give_back()
        if payload.is_eof():
            self._answer(self._head, answer)
        else:
            self._refuse(answer)

    def _answer(self, head: RawRequestMessage, answer: Answer) -> None:
        """To a request that is whole."""
        ends = (
            answer.ends or head.should_close or head.upgrade or self._service.closing or head.version != HttpVersion11
        )
        if answer.reviewed:
            self._watch.trust(self)
        self._send(answer, ends=ends)
        if self._full:
            self._count_unsent(len(answer.body))
        if ends:
            self.close()
            return
        self._payload = None
        self._requests.message_consumed()
        if self._full and self._transport is not None:
            self.due = None
            self._begin()
            self._stuck = True
            self._transport.pause_reading()
        else:
            self._follow()

    def _refuse(self, answer: Answer) -> None:
        """An answer before the request has ended: the client may need some time to see it."""
        self._give_back()
        self._send(answer, ends=True)
        self._over, self.busy = True, False
        self.due = self._watch.now() + _LINGER_S

    def _discard(self, data: bytes) -> None:
        """The rest of a request that is answered already; then the end."""
        payload = self._payload
        if payload is None:
            return
        try:
            self._requests.feed_data(data)
            payload.read_nowait()
        except Exception:
            self.close()
            return
        if payload.is_eof():
            self.close()

    def _follow(self) -> None:
        """Nothing is under way but what came behind the last request."""
        self.due, self.busy, self.answered = None, False, True
        begun = self._parsed(b"")
        if begun is not None and self._transport is not None:
            self._begin()
            self._transport.pause_reading()
            self._common.loop.call_soon(self._go_on, begun)

    def _go_on(self, begun: Begun) -> None:
        if self._transport is not None and not self._over:
            self._transport.resume_reading()
            self._take(begun)

    def _begin(self) -> None:
        """Something is under way, and has its time from now unless time runs already."""
        self.busy = True
        if self.due is None:
            self.due = self._watch.now() + self._watch.request_s

    def _count_unsent(self, count: int) -> None:
        if count != self._unsent:
            self._service.waits(count - self._unsent)
            self._unsent = count

    def _give_back(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            self._service.ended(room)

    def _send(self, answer: Answer, *, ends: bool) -> None:
        if self._transport is not None:
            bodyless = self._head is not None and self._head.method == "HEAD"
            self._transport.write(self._common.heads.written(answer, ends=ends, bodyless=bodyless))
