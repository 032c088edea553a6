"""A Quote Generation Service in one process: the double that tests and the simulation talk to.

It answers GET_PLATFORM_INFO as `neighbours.qgs.qgs` has it, one request a connection, and closes; anything else it
closes without an answer, as Intel's server does with what it does not know. Beyond that it does harm on request. It
makes no quotes.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from nodeward.neighbours.qgs import quotes


@dataclass(slots=True)
class Qgs:
    """The double at one socket."""

    path: Path
    answer: bytes = field(default_factory=quotes.answer)
    """What is sent for a good request, with its length; empty closes the connection."""
    hang: bool = False
    """Requests are read and never answered."""
    asked: int = 0
    """Good requests, ever."""
    _server: asyncio.Server | None = None
    _open: dict[asyncio.StreamWriter, None] = field(default_factory=dict)

    async def start(self) -> None:
        """Listens; a socket that is left there is replaced."""
        with suppress(FileNotFoundError):
            self.path.unlink()
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    async def stop(self) -> None:
        """Ends as after kill -9: connections end, and the socket's file stays."""
        if self._server is not None:
            self._server.close()
            for writer in self._open:
                writer.transport.abort()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[writer] = None
        try:
            request = quotes.request()
            if await reader.readexactly(len(request)) != request:
                return
            self.asked += 1
            if self.hang:
                await reader.read()
                return
            writer.write(self.answer)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            del self._open[writer]
            writer.close()
