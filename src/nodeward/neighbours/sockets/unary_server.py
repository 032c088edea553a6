"""Unary gRPC methods on a unix socket, on the relay's frame code: the other end of `unary_client`.

Exists because the relay imports no gRPC library and is given configurations by gRPC. Promises: only processes of root,
or of the user of this one, are answered, and the kernel says whose they are; connections, calls under way and bytes of
a message are bounded; a request that does not come on, a handler that does not end, and a client that asks nothing for
long are given up. What is no HTTP/2 costs its own connection and nothing else. Must not know what a method means.
"""

import asyncio
import logging
import os
import socket
import stat
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from nodeward.core.errors import NodewardError, WireError
from nodeward.neighbours.formats import grpc_messages
from nodeward.neighbours.formats import http2_frames as h2
from nodeward.neighbours.formats.header_blocks import MAX_BLOCK_BYTES, ShadowDecoder, encode_literals
from nodeward.neighbours.sockets.unix_listener import UnixListener

INVALID_ARGUMENT, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL = 3, 4, 8, 12, 13
"""gRPC's statuses."""
MOST_CLIENTS: Final = 16
MOST_CALLS: Final = 4
"""Of one client at a time."""
MOST_BYTES: Final = 256 * 1024
"""Of a request."""
MOST_ANSWER: Final = 4 * 1024 * 1024
"""Of an answer: what a gRPC client takes unless it says otherwise."""
REQUEST_S: Final = 5.0
"""How long a client may pause within a request or before its first word, and take none of our answers."""
IDLE_S: Final = 60.0
"""How long a client may stay without a call; PINGs are none. It connects again for its next one."""
HANDLER_S: Final = 10.0
_CONCURRENT: Final = 3
"""HTTP/2's setting MAX_CONCURRENT_STREAMS."""
_REFUSED_STREAM: Final = 7
_GRPC: Final = (b"content-type", b"application/grpc")
_log = logging.getLogger(__name__)

Answer = Callable[[bytes], Awaitable[bytes]]
"""The answer to a message. AnswerError: another status than OK. WireError: it is no message."""


class AnswerError(NodewardError):
    """A call that ends with `status` and this text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def is_trusted(uid: int) -> bool:
    """Whether a process or socket of this user may be believed: root's, or our own user's."""
    return uid in (0, os.geteuid())


class UnaryServer:
    """Serves `methods`, by their paths `/package.Service/Method`."""

    def __init__(self, methods: Mapping[str, Answer], trusts: Callable[[int], bool] = is_trusted) -> None:
        self._methods, self._trusts = methods, trusts
        self._clients = 0

    async def run(self, path: str) -> None:
        """Serves until cancelled. ListenError where the socket cannot be had."""
        listener = UnixListener(path)
        try:
            server = await asyncio.start_unix_server(self._client, sock=listener.socket, limit=h2.DEFAULT_FRAME_BYTES)
            async with server:
                _log.info("serving path=%s", path)
                await server.serve_forever()
        finally:
            listener.close()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients += 1
        try:
            uid = peer_uid(writer)
            if not self._trusts(uid):
                _log.warning("client=refused uid=%d: only root is answered here", uid)
            elif self._clients > MOST_CLIENTS:
                _log.warning("client=refused: %d are connected, which is the most", MOST_CLIENTS)
            else:
                await _Connection(self._methods, writer).run(reader)
        except (TimeoutError, WireError) as error:
            _log.warning("client=dropped why=%r", str(error) or "it took too long")
        except OSError as error:
            _log.debug("client=gone why=%r", str(error))
        finally:
            self._clients -= 1
            writer.transport.abort()


def peer_uid(writer: asyncio.StreamWriter) -> int:
    """The user of the process at the other end, as the kernel says."""
    asking = writer.get_extra_info("socket")
    said: bytes = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    uid: int = struct.unpack("=iII", said)[1]
    return uid


@dataclass(slots=True)
class _Call:
    """One stream. `left` of its answer waits for the client's window."""

    path: str
    window: int
    parts: list[bytes] = field(default_factory=list)
    size: int = 0
    left: bytes = b""
    trailers: bytes = b""
    task: asyncio.Task[None] | None = None


class _Connection:
    """One client's."""

    def __init__(self, methods: Mapping[str, Answer], writer: asyncio.StreamWriter) -> None:
        self._methods, self._writer = methods, writer
        self._frames, self._blocks = h2.FrameReader(True), h2.BlockReader(MAX_BLOCK_BYTES)
        self._decoder = ShadowDecoder()
        self._calls: dict[int, _Call] = {}
        self._last = 0
        """The newest call's stream."""
        self._now = asyncio.get_running_loop().time
        self._called_at = self._now()
        self._patience: asyncio.Timeout | None = None
        """While the client is read from: how long it may say nothing."""
        self._greeted = False
        self._window = self._initial = h2.DEFAULT_WINDOW

    async def run(self, reader: asyncio.StreamReader) -> None:
        """Until the client goes."""
        window = MOST_BYTES + h2.DEFAULT_FRAME_BYTES  # room to see that a request is too long
        ours = {_CONCURRENT: MOST_CALLS, h2.SETTING_INITIAL_WINDOW_SIZE: window}
        self._writer.write(h2.encode_settings(ours))
        self._writer.write(h2.encode_window_update(0, MOST_CALLS * window))
        try:
            while True:
                data = await self._read(reader)
                if not data:
                    return
                data, _, frames = self._frames.feed(data)
                for frame in frames:
                    self._take(data, frame)
                async with asyncio.timeout(REQUEST_S):
                    await self._writer.drain()
        finally:
            tasks = [call.task for call in self._calls.values() if call.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        """The next bytes; none once the client has gone, or has asked nothing for IDLE_S."""
        try:
            async with asyncio.timeout(None) as self._patience:
                self._be_patient()
                return await reader.read(h2.DEFAULT_FRAME_BYTES)
        except TimeoutError:
            if self._calls or self._waits():
                raise
            self._writer.write(h2.encode_goaway(self._last, h2.NO_ERROR))
            return b""
        finally:
            self._patience = None

    def _be_patient(self) -> None:
        """Sets until when the client may say nothing, by what it owes us now."""
        if self._patience is None:
            return
        answering = None if self._calls else self._called_at + IDLE_S
        self._patience.reschedule(self._now() + REQUEST_S if self._waits() else answering)

    def _waits(self) -> bool:
        """Whether the client owes us something: its first word, the rest of a frame or request, or room for an
        answer."""
        owed = any(call.task is None or call.left for call in self._calls.values())
        return owed or not self._greeted or bool(self._frames.unread) or self._blocks.open

    def _take(self, data: bytes, frame: h2.Frame) -> None:
        begin, end, kind, flags, stream = frame
        self._greeted = True
        if self._blocks.open and kind != h2.CONTINUATION:
            self._blocks.interrupted(frame)
        if kind in (h2.HEADERS, h2.CONTINUATION):
            self._headers(data, frame)
        elif kind == h2.DATA:
            self._data(data, frame)
        elif kind == h2.SETTINGS and not flags & h2.ACK:
            for name, value in h2.settings(data, frame):
                if name == h2.SETTING_INITIAL_WINDOW_SIZE:
                    for call in self._calls.values():
                        call.window += min(value, h2.MAX_WINDOW) - self._initial
                    self._initial = min(value, h2.MAX_WINDOW)
            self._writer.write(h2.encode(h2.SETTINGS, h2.ACK, 0))
            self._pump()
        elif kind == h2.PING and not flags & h2.ACK:
            self._writer.write(h2.encode(h2.PING, h2.ACK, 0, data[begin + h2.HEADER_BYTES : end]))
        elif kind == h2.WINDOW_UPDATE:
            if stream == 0:
                self._window = min(self._window + h2.increment(data, frame), h2.MAX_WINDOW)
            elif (opened := self._calls.get(stream)) is not None:
                opened.window = min(opened.window + h2.increment(data, frame), h2.MAX_WINDOW)
            self._pump()
        elif kind == h2.RST_STREAM and (gone := self._calls.pop(stream, None)) is not None and gone.task is not None:
            gone.task.cancel()

    def _headers(self, data: bytes, frame: h2.Frame) -> None:
        taken = self._blocks.take(data, frame)
        if taken is None:
            return
        flags, block, _ = taken
        headers = dict(self._decoder.decode(block))
        stream = frame[4]
        if stream not in self._calls:
            if len(self._calls) >= MOST_CALLS:
                self._writer.write(h2.encode_reset(stream, _REFUSED_STREAM))
                return
            self._last, self._called_at = max(self._last, stream), self._now()
            self._calls[stream] = _Call(headers.get(b":path", b"").decode("latin-1"), self._initial)
        if flags & h2.END_STREAM:
            self._begin(stream)

    def _data(self, data: bytes, frame: h2.Frame) -> None:
        begin, end, _, flags, stream = frame
        if size := end - begin - h2.HEADER_BYTES:
            self._writer.write(h2.encode_window_update(0, size))
        call = self._calls.get(stream)
        if call is None or call.task is not None:
            return
        first, last = h2.content(data, frame)
        call.size += last - first
        if call.size > MOST_BYTES:
            self._answer(stream, b"", RESOURCE_EXHAUSTED, f"a request of more than {MOST_BYTES} bytes is not read")
            self._writer.write(h2.encode_reset(stream, h2.NO_ERROR))  # after the whole answer: nothing more is read
            return
        call.parts.append(data[first:last])
        if flags & h2.END_STREAM:
            self._begin(stream)

    def _begin(self, stream: int) -> None:
        """The request is whole."""
        call = self._calls[stream]
        if call.task is None:
            call.task = asyncio.create_task(self._handle(stream, call.path, b"".join(call.parts)))
            call.parts.clear()

    async def _handle(self, stream: int, path: str, framed: bytes) -> None:
        method, head = self._methods.get(path), grpc_messages.PREFIX_BYTES
        message = framed[head:]
        if method is None:
            self._answer(stream, b"", UNIMPLEMENTED, f"no such method; there are {', '.join(self._methods)}")
        elif framed[:head] != grpc_messages.encode_message(message)[:head]:
            self._answer(stream, b"", INVALID_ARGUMENT, "the request is not one whole message without compression")
        else:
            try:
                async with asyncio.timeout(HANDLER_S):
                    answer = await method(message)
                if len(answer) > MOST_ANSWER:
                    raise AnswerError(RESOURCE_EXHAUSTED, f"an answer of more than {MOST_ANSWER} bytes is not sent")
            except AnswerError as error:
                self._answer(stream, b"", error.status, str(error))
            except WireError as error:
                self._answer(stream, b"", INVALID_ARGUMENT, str(error))
            except TimeoutError:
                self._answer(stream, b"", DEADLINE_EXCEEDED, f"not answered within {HANDLER_S:g} s")
            except Exception as error:
                _log.exception("method=%s failed", path)
                text = f"{type(error).__name__}: a fault of nodeward's, see its log"
                self._answer(stream, b"", INTERNAL, text)
            else:
                self._answer(stream, grpc_messages.encode_message(answer), 0, "")

    def _answer(self, stream: int, message: bytes, status: int, text: str) -> None:
        call = self._calls.get(stream)
        if call is None:
            return
        ends: list[tuple[bytes, bytes]] = [(b"grpc-status", b"%d" % status)]
        if text:
            ends.append((b"grpc-message", grpc_messages.encode_text(text[:1024])))
        headers = encode_literals([(b":status", b"200"), _GRPC])
        self._writer.write(h2.encode_headers(stream, headers, 0))
        call.left, call.trailers = message, encode_literals(ends)
        self._pump()

    def _pump(self) -> None:
        """Sends what the client has room for."""
        for stream, call in list(self._calls.items()):
            if not call.trailers:
                continue
            while call.left and (room := min(len(call.left), self._window, call.window, h2.DEFAULT_FRAME_BYTES)) > 0:
                self._writer.write(h2.encode(h2.DATA, 0, stream, call.left[:room]))
                call.left = call.left[room:]
                self._window -= room
                call.window -= room
            if not call.left:
                self._writer.write(h2.encode_headers(stream, call.trailers, h2.END_STREAM))
                del self._calls[stream]
                self._called_at = self._now()
        self._be_patient()


def distrusted(path: str) -> str:
    """Why a client must not connect to the socket at `path`; empty for a socket of root or of our own user."""
    try:
        found = os.lstat(path)
    except OSError as error:
        return f"{path}: {error.strerror}; is the program that serves it running, with this socket?"
    if not stat.S_ISSOCK(found.st_mode):
        return f"{path} is no socket; remove it, or name another path"
    if not is_trusted(found.st_uid):
        return f"{path} belongs to user {found.st_uid} and not to root, so it is not used; name another path"
    return ""
