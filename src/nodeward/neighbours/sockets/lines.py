"""A line each way over a unix socket: how processes of a node ask one another without HTTP.

Promises: only root opens the socket; a line longer than a request can be, one that comes too slowly, and more clients
than MOST_CLIENTS are turned away; whoever asks waits no longer than it says and reads no more than it says. Must not
know what is said.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from nodeward.core.errors import WireError
from nodeward.host.hostfs import make_folders

REQUEST_S: Final = 2.0
"""How long a client may take for its line, and to take ours."""
MOST_CLIENTS = 64
"""A kubelet starts fewer containers at once; each client holds at most one request."""
_log = logging.getLogger(__name__)

Serving = Callable[[], None]
Answer = Callable[[bytes], Awaitable[bytes | None]]
"""The answer to a line, with its end; None where nobody waits for one. WireError: the client gets none."""


def bound(path: str, mode: int = 0o600) -> socket.socket:
    """A socket at this path that is never open to more than `mode`; its folder is made. It does not listen yet. Returns
    without a turn of the loop: the umask is the whole process's, and others begin to serve meanwhile."""
    make_folders(os.path.dirname(path))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # left by a process that was killed; the lock says there is no other
    made, old = socket.socket(socket.AF_UNIX), os.umask(0o177)
    try:
        made.bind(path)
        os.chmod(path, mode)
    except BaseException:
        made.close()
        raise
    finally:
        os.umask(old)
    return made


async def serve(path: str, start: Callable[[socket.socket], Awaitable[asyncio.Server]], serving: Serving) -> None:
    """Serves until cancelled what `start` makes of the socket; its file is there meanwhile, mode 0600. Calls `serving`
    once it is."""
    server = await start(bound(path))
    try:
        async with server:
            serving()
            await server.serve_forever()
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


class LineServer:
    """Answers lines. `what` names it in the log."""

    def __init__(self, what: str, answer: Answer, most_bytes: int) -> None:
        self._what, self._answer, self._most_bytes = what, answer, most_bytes
        self._clients = 0

    async def run(self, path: str, serving: Serving = lambda: None) -> None:
        """Serves as `serve` does."""
        await serve(path, lambda at: asyncio.start_unix_server(self._client, sock=at, limit=self._most_bytes), serving)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients += 1
        try:
            if self._clients > MOST_CLIENTS:
                _log.warning("%s turned away clients=%d", self._what, self._clients)
                return
            async with asyncio.timeout(REQUEST_S):
                line = await reader.readline()
            answer = await self._answer(line)
            if answer is None:
                return
            async with asyncio.timeout(REQUEST_S):
                writer.write(answer)
                await writer.drain()
        except (WireError, OSError, TimeoutError, ValueError) as error:  # ValueError: a line without end
            _log.warning("%s request dropped error=%s", self._what, error or type(error).__name__)
            writer.transport.abort()  # else what it does not read is kept until it does
        finally:
            self._clients -= 1
            writer.close()


async def ask(path: str, line: bytes, most_bytes: int, within_s: float) -> bytes:
    """The answer to a line. OSError where nobody listens, TimeoutError where no whole answer comes in time, WireError
    where it has no end or is longer than `most_bytes`."""
    async with asyncio.timeout(within_s):
        reader, writer = await asyncio.open_unix_connection(path, limit=most_bytes)
        try:
            writer.write(line)
            await writer.drain()
            found = await reader.readline()
        except ValueError as error:
            raise WireError("line", f"the answer at {path} is longer than {most_bytes} bytes") from error
        finally:
            writer.close()
    if not found.endswith(b"\n"):
        raise WireError("line", f"the answer at {path} ends after {len(found)} bytes, without a line's end")
    return found
