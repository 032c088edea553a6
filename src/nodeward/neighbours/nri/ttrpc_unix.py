"""Two ttrpc connections, one in each direction, over one unix socket: NRI's multiplexer under asyncio.

Exists so that an NRI session, and the runtime double at the other end, think in calls and not in bytes. Promises: a
call that can be answered at once is read, handled and answered in one loop callback with one write; what waits is
bounded, and a peer that does not read is not read from; after the end every waiting call fails and every unfinished
answer is cancelled. Bytes that are no NRI end the connection. Must not know what a method means.

    NodewardError
    └── TtrpcError
        ├── CallFailedError       the peer answered with a status
        ├── CallTimeoutError      the peer did not answer in time
        ├── TooManyCallsError     too many calls wait already
        └── ConnectionEndedError  there is no connection any more
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import cast

from nodeward.core.errors import NodewardError, WireError
from nodeward.neighbours.nri import mux, ttrpc
from nodeward.neighbours.nri.ttrpc import Code, Message, MessageType, Request, Status

MAX_CALLS = 64
"""Own calls waiting for an answer. NRI plugins have one or two."""
MAX_ANSWERS = 64
"""Answers still being worked on; with more, reading pauses. Runtimes call one at a time."""

READ_BYTES = 64 * 1024
"""Read at once, into a buffer that is kept: a plain Protocol is given 256 KiB that are mapped and unmapped for each
read, which costs more (15 us) than the read itself."""

Answer = bytes | Status

Handler = Callable[[Request], Answer | Awaitable[Answer]]
"""Answers a call, at once or later. Called in the loop, so it must not block. A WireError ends the connection."""

_log = logging.getLogger(__name__)


class TtrpcError(NodewardError):
    """A call without an answer."""


class CallFailedError(TtrpcError):
    """The peer answered with `status`."""

    def __init__(self, method: str, status: Status) -> None:
        super().__init__(f"{method} failed: {status.message} (status {status.code})")
        self.status = status


class CallTimeoutError(TtrpcError):
    """The peer did not answer in time."""


class TooManyCallsError(TtrpcError):
    """`MAX_CALLS` calls wait already."""


class ConnectionEndedError(TtrpcError):
    """The connection has ended; the text says why."""


class TtrpcPeer(asyncio.BufferedProtocol):
    """One end. A plugin serves PLUGIN_SERVICE and calls on RUNTIME_SERVICE; a runtime the other way round."""

    def __init__(self, handler: Handler, serves: int = mux.PLUGIN_SERVICE, calls: int = mux.RUNTIME_SERVICE) -> None:
        self._handler = handler
        self._serves = serves
        self._calls = calls
        self._mux = mux.MuxDecoder()
        self._decoders = {serves: ttrpc.MessageDecoder(), calls: ttrpc.MessageDecoder()}
        self._room = memoryview(bytearray(READ_BYTES))
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[str] = self._loop.create_future()
        self._why = ""
        self._pending: dict[int, asyncio.Future[Answer]] = {}
        self._next_stream = 1
        self._answering: set[asyncio.Future[Answer]] = set()
        self._out: list[bytes] = []
        self._corked = False
        self._choked = False

    # ---- for the owner

    async def call(self, request: Request, timeout_s: float) -> bytes:
        """The peer's reply to `request`."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionEndedError(self._why or "not connected")
        if len(self._pending) >= MAX_CALLS:
            raise TooManyCallsError(f"{request.method}: {MAX_CALLS} calls wait for an answer already")
        stream, self._next_stream = self._next_stream, (self._next_stream + 2) % 2**32
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._pending[stream] = future
        try:
            self._send(self._calls, Message(stream, MessageType.REQUEST, 0, ttrpc.encode_request(request)))
            async with asyncio.timeout(timeout_s):
                answer = await future
        except TimeoutError as error:
            raise CallTimeoutError(f"{request.method}: no answer within {timeout_s:g} s") from error
        finally:
            self._pending.pop(stream, None)
        if isinstance(answer, Status):
            raise CallFailedError(request.method, answer)
        return answer

    async def wait_ended(self) -> str:
        """Returns when the connection has ended, with the reason."""
        return await asyncio.shield(self._ended)

    def close(self, why: str) -> None:
        """Ends the connection; what is written already still goes out."""
        self._why = self._why or why
        if self._transport is not None:
            self._transport.close()

    # ---- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance

    def connection_lost(self, exc: Exception | None) -> None:
        why = self._why or (f"connection broken: {exc}" if exc else "closed by the peer")
        self._why = why
        for future in self._pending.values():
            if not future.done():
                future.set_exception(ConnectionEndedError(why))
        for answer in tuple(self._answering):
            answer.cancel()
        if not self._ended.done():
            self._ended.set_result(why)

    def pause_writing(self) -> None:
        self._choked = True
        self._gate()

    def resume_writing(self) -> None:
        self._choked = False
        self._gate()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._room[:nbytes])
        self._corked = True
        try:
            for frame in self._mux.feed(data):
                decoder = self._decoders.get(frame.connection)
                if decoder is None:
                    continue  # a connection neither side opened: dropped, as NRI does
                for message in decoder.feed(frame.payload):
                    self._take(frame.connection, message)
        except WireError as error:
            self.close(str(error))
        finally:
            self._corked = False
            self._flush()

    # ---- inside

    def _take(self, connection: int, message: Message) -> None:
        if connection == self._calls:
            future = self._pending.get(message.stream)
            if message.kind is MessageType.RESPONSE and future is not None and not future.done():
                future.set_result(ttrpc.decode_response(message.payload))
            return
        if message.kind is not MessageType.REQUEST:
            return
        request = ttrpc.decode_request(message.payload)
        try:
            answer = self._handler(request)
        except WireError:
            raise
        except Exception:
            answer = _broken(request)
        if isinstance(answer, (bytes, Status)):  # a union would be made anew each time
            self._reply(message.stream, answer)
        else:
            self._answer_later(message.stream, request, answer)

    def _answer_later(self, stream: int, request: Request, answer: Awaitable[Answer]) -> None:
        future = asyncio.ensure_future(answer)
        self._answering.add(future)
        self._gate()

        def answered(done: asyncio.Future[Answer]) -> None:
            self._answering.discard(done)
            if done.cancelled():
                return
            error = done.exception()
            if isinstance(error, WireError):
                self.close(str(error))
            else:
                self._reply(stream, done.result() if error is None else _broken(request, error))
            self._gate()

        future.add_done_callback(answered)

    def _reply(self, stream: int, answer: Answer) -> None:
        self._send(self._serves, Message(stream, MessageType.RESPONSE, 0, ttrpc.encode_response(answer)))

    def _send(self, connection: int, message: Message) -> None:
        self._out.append(mux.encode_message(connection, ttrpc.encode(message)))
        if not self._corked:
            self._flush()

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(out))

    def _gate(self) -> None:
        """Reads while there is room for what the peer may ask."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._choked or len(self._answering) >= MAX_ANSWERS:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()


def _broken(request: Request, error: BaseException | None = None) -> Status:
    _log.error("ttrpc handler failed method=%s", request.method, exc_info=error or True)
    return Status(Code.INTERNAL, f"{request.method}: internal error, see the log")


def unimplemented(request: Request) -> Status:
    """The answer to a method that is not served: the peer may know another way."""
    return Status(Code.UNIMPLEMENTED, f"{request.service}.{request.method} is not served here")


async def connect(path: str, handler: Handler) -> TtrpcPeer:
    """A plugin's end of a new connection to the runtime's socket at `path`."""
    _, peer = await asyncio.get_running_loop().create_unix_connection(lambda: TtrpcPeer(handler), path)
    return peer


async def adopt(fd: int, handler: Handler) -> TtrpcPeer:
    """A plugin's end of the connected socket `fd`, which it owns from now on."""
    sock = socket.socket(fileno=fd)
    sock.setblocking(False)
    _, peer = await asyncio.get_running_loop().create_unix_connection(lambda: TtrpcPeer(handler), sock=sock)
    return peer
