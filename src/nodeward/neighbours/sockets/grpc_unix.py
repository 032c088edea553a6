"""gRPC over unix sockets, bytes in and bytes out: the only module that imports grpc.

Exists so that an edge serves and calls kubelet's services without knowing a library. Promises: messages and the calls
under way are bounded on both sides; every call has a time-out; what a handler raises is told to the caller as a status
with a short text, and never more of it than that; when a caller goes away its handler is cancelled; a server that one
bad request has ended says so; at the end nothing of the server is left, its socket neither. Must not know what a method
means.

    NodewardError
    ├── GrpcError          a status: from the peer, or for it
    └── ServerEndedError   a server's loop has ended: another one is needed
"""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from enum import Enum
from typing import NoReturn, TypeVar

import grpc
import grpc.aio

from nodeward.core.errors import NodewardError, RequestError, WireError

MAX_MESSAGE = 16 * 1024 * 1024
"""Bytes of one message in either direction: kubelet's own bound for what it is sent."""
MAX_CALLS = 64
"""Calls under way at a server; more are turned away. Kubelet has a stream and a call or two."""
MAX_TEXT = 1024
"""Characters of a status's text; gRPC sends it in a header, and peers drop what is large."""
LOOK_S = 0.25
"""Between two looks whether a server still serves: gRPC tells of the end of its loop to whoever asks, and only then."""
MAX_PATH = 107
"""Bytes of a unix socket's path, by the kernel."""

Unary = Callable[[bytes], Awaitable[bytes]]
Stream = Callable[[bytes], AsyncIterator[bytes]]
Exchange = Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]]
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Code(Enum):
    """The statuses that callers distinguish, as gRPC names them; any other is UNKNOWN."""

    CANCELLED = "CANCELLED"
    UNKNOWN = "UNKNOWN"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    NOT_FOUND = "NOT_FOUND"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    INTERNAL = "INTERNAL"
    UNAVAILABLE = "UNAVAILABLE"


class GrpcError(NodewardError):
    """A call that failed, or is to fail, with `code` and `text`."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(f"{text} ({code.value})")
        self.code = code
        self.text = text


def checked(answer: Unary) -> Unary:
    """The same, with what cannot be read or asked told as INVALID_ARGUMENT."""

    async def called(request: bytes) -> bytes:
        try:
            return await answer(request)
        except (WireError, RequestError) as error:
            raise GrpcError(Code.INVALID_ARGUMENT, f"nodeward: {error}") from error

    return called


class ServerEndedError(NodewardError):
    """The server has ended: start another one."""


def _bounds(max_received: int) -> tuple[tuple[str, int], ...]:
    return (
        ("grpc.max_receive_message_length", max_received),
        ("grpc.max_send_message_length", MAX_MESSAGE),
        ("grpc.enable_http_proxy", 0),
    )


class GrpcServer:
    """Serves services on one unix socket, on the running loop."""

    def __init__(
        self,
        service: str,
        unary: Mapping[str, Unary],
        streams: Mapping[str, Stream] | None = None,
        *,
        max_calls: int = MAX_CALLS,
        max_request: int = MAX_MESSAGE,
        write_s: float | None = None,
    ) -> None:
        """A request has at most `max_request` bytes; more are not read. `unary` and `streams` are the methods by name.
        A handler that raises GrpcError answers with that status. A stream whose client takes no message for `write_s`
        is ended."""
        self._server = grpc.aio.server(options=_bounds(max_request), maximum_concurrent_rpcs=max_calls)
        self._write_s = write_s
        self.also(service, unary, streams)

    def also(
        self,
        service: str,
        unary: Mapping[str, Unary],
        streams: Mapping[str, Stream] | None = None,
        exchanges: Mapping[str, Exchange] | None = None,
    ) -> None:
        """Serves one more service on the same socket; before it starts."""
        calls = {name: grpc.unary_unary_rpc_method_handler(_unary(name, answer)) for name, answer in unary.items()}
        for name, answers in (streams or {}).items():
            calls[name] = grpc.unary_stream_rpc_method_handler(_stream(name, answers, self._write_s))
        for name, exchange in (exchanges or {}).items():
            calls[name] = grpc.stream_stream_rpc_method_handler(_stream(name, exchange, self._write_s))
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, calls),))

    async def start(self, path: str) -> None:
        """Listens at `path`, with mode 0600. OSError where it cannot."""
        if len(os.fsencode(path)) > MAX_PATH:
            raise OSError(f"{path}: longer than {MAX_PATH} bytes, which no unix socket's path may be")
        old = os.umask(0o177)
        try:
            self._server.add_insecure_port(f"unix:{path}")
        except RuntimeError as error:
            raise _unbound(path) from error
        finally:
            os.umask(old)
        await self._server.start()

    async def check(self, within_s: float = 0.0) -> None:
        """Returns after so long; ServerEndedError once the server's loop has ended. In that loop gRPC decodes the path
        of each call: one call whose `:path` is no UTF-8 ends it, and takes the socket away."""
        try:
            runs = await self._server.wait_for_termination(within_s)
        except Exception as error:  # whatever has ended the loop is raised here
            why = f"a request that it could not read ({type(error).__name__})"
            raise ServerEndedError(f"the gRPC server was ended by {why}; it is started again") from error
        if not runs:
            raise ServerEndedError("the gRPC server was stopped")

    async def serve(self) -> NoReturn:
        """Serves until cancelled, or until ServerEndedError."""
        while True:
            await self.check(LOOK_S)

    async def stop(self) -> None:
        """Ends every call and takes the socket away."""
        await self._server.stop(None)


class GrpcClient:
    """Calls the server at one unix socket. It connects at the first call; after a failure a new one is needed."""

    def __init__(self, path: str) -> None:
        local = ("grpc.use_local_subchannel_pool", 1)  # else a new client inherits the waits of one that failed
        self._channel = grpc.aio.insecure_channel(f"unix:{path}", options=(*_bounds(MAX_MESSAGE), local))

    async def call(self, method: str, request: bytes, timeout_s: float) -> bytes:
        """The answer to `/package.Service/Method`; GrpcError where there is none in time, or the client was closed."""
        try:
            answer: bytes = await self._channel.unary_unary(method)(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise _failed(method, error) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # grpc ends a closed channel's calls by an error that says to asyncio that the caller was cancelled
            raise GrpcError(Code.CANCELLED, f"{method}: the client was closed meanwhile") from None
        return answer

    async def stream(self, method: str, request: bytes) -> AsyncGenerator[bytes]:
        """The messages that the server sends, until it ends the stream; GrpcError where it breaks. Has no bound of time
        but the caller's."""
        call = self._channel.unary_stream(method)(request)
        try:
            async for message in call:
                yield message
        except grpc.aio.AioRpcError as error:
            raise _failed(method, error) from error
        finally:
            call.cancel()

    async def close(self) -> None:
        """Ends every call."""
        await self._channel.close()


def _unbound(path: str) -> OSError:
    """Why nobody can listen at `path`: gRPC says it in its own log alone, so the kernel is asked."""
    with socket.socket(socket.AF_UNIX) as one:
        try:
            one.bind(path)
        except OSError as error:
            return OSError(error.errno, error.strerror, path)
    os.unlink(path)
    return OSError(f"{path} cannot be listened at")


def _failed(method: str, error: grpc.aio.AioRpcError) -> GrpcError:
    name = error.code().name
    code = Code(name) if name in Code.__members__ else Code.UNKNOWN
    return GrpcError(code, (error.details() or f"{method} failed without a text")[:MAX_TEXT])


def _unary(name: str, answer: Unary) -> Callable[[bytes, grpc.aio.ServicerContext], Awaitable[bytes]]:
    async def called(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        try:
            return await answer(request)
        except Exception as error:
            await _abort(name, context, error)
            raise

    return called


def _stream(
    name: str, answers: Callable[[_T], AsyncIterator[bytes]], write_s: float | None
) -> Callable[[_T, grpc.aio.ServicerContext], Awaitable[None]]:
    async def called(request: _T, context: grpc.aio.ServicerContext) -> None:
        try:
            async for message in answers(request):
                try:
                    async with asyncio.timeout(write_s):
                        await context.write(message)
                except TimeoutError:
                    why = f"{name}: ended, since the client took no message for {write_s:g} s"
                    raise GrpcError(Code.DEADLINE_EXCEEDED, why) from None
        except Exception as error:
            await _abort(name, context, error)

    return called


async def _abort(name: str, context: grpc.aio.ServicerContext, error: Exception) -> None:
    if isinstance(error, GrpcError):
        failed = error
    else:
        _log.exception("grpc method=%s failed", name)
        failed = GrpcError(Code.INTERNAL, f"{type(error).__name__}: a fault of nodeward's, see its log")
    await context.abort(grpc.StatusCode[failed.code.value], failed.text[:MAX_TEXT])
