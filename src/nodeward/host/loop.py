"""The event loop of the daemon, the relay and the webhook: uvloop.

asyncio's own loop is Python, which runs from cold caches at each call of a runtime. uvloop is compiled, over libuv, and
does four things otherwise:

- libuv asks for names on threads that are waited for when the process ends, so a resolver that hangs would hold up the
  end. Names are asked for on threads that are not.
- its timers count whole milliseconds of a clock that may itself be one behind, so they come up to two too early. Who
  then looks at a finer clock finds nothing due, and asks for the rest again and again. No timer comes too early here.
- its time stands still for a millisecond. Here it is `time.monotonic`, as asyncio's.
- it cuts a path that is longer than a socket's may be, and an abstract name at its NUL. Here neither is cut.

Must not know who runs on it.
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable
from contextvars import Context
from functools import partial
from ssl import SSLContext
from typing import Literal, TypeVar

import uvloop

from nodeward.host.executor import DaemonExecutor

P = TypeVar("P", bound=asyncio.BaseProtocol)
Found = (
    tuple[Literal[socket.AddressFamily.AF_INET], socket.SocketKind, int, str, tuple[str, int]]
    | tuple[
        Literal[socket.AddressFamily.AF_INET6],
        socket.SocketKind,
        int,
        str,
        tuple[str, int, int, int] | tuple[int, bytes],
    ]
)
"""An address, as `socket.getaddrinfo` tells it."""
LATE_S = 0.0025
"""Added to each wait: 2 ms that libuv's clock may be behind, and half a one that uvloop may round away."""


class _LikeAsyncio(asyncio.AbstractEventLoop):
    """What is not uvloop's."""

    def time(self) -> float:
        return time.monotonic()

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return super().call_later(delay + LATE_S if delay > 0 else 0, callback, *args, context=context)

    async def getaddrinfo(
        self, host: bytes | str | None, port: bytes | str | int | None, *, flags: int = 0, **wanted: int
    ) -> list[Found]:
        look_up = partial(socket.getaddrinfo, host, port, **wanted)
        try:
            return look_up(flags=flags | socket.AI_NUMERICHOST | socket.AI_NUMERICSERV)  # an address is there at once
        except socket.gaierror:
            return await self.run_in_executor(None, partial(look_up, flags=flags))

    async def getnameinfo(
        self, sockaddr: tuple[str, int] | tuple[str, int, int, int], flags: int = 0
    ) -> tuple[str, str]:
        return await self.run_in_executor(None, socket.getnameinfo, sockaddr, flags)

    async def create_unix_connection(
        self,
        protocol_factory: Callable[[], P],
        path: str | None = None,
        *,
        ssl: bool | SSLContext | None = None,
        sock: socket.socket | None = None,
        server_hostname: str | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
    ) -> tuple[asyncio.Transport, P]:
        if path is not None and sock is None:
            sock, path = _connected(path), None  # which is closed where there is no transport of it in the end
        return await super().create_unix_connection(
            protocol_factory,
            path,
            ssl=ssl,
            sock=sock,
            server_hostname=server_hostname,
            ssl_handshake_timeout=ssl_handshake_timeout,
            ssl_shutdown_timeout=ssl_shutdown_timeout,
        )


def _connected(path: str) -> socket.socket:
    """A socket at the other end of that path; OSError where nobody listens, or where too many wait already."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        made.connect(os.fspath(path))
    except BaseException:
        made.close()
        raise
    return made


_Loop = type("Loop", (_LikeAsyncio, uvloop.Loop), {})  # no class statement: uvloop declares other types than asyncio


def new_loop() -> asyncio.AbstractEventLoop:
    """Makes a loop with a default executor that does not delay its end."""
    made: asyncio.AbstractEventLoop = _Loop()
    made.set_default_executor(DaemonExecutor())
    return made
