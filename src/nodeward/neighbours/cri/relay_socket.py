"""`relay.sock`, at which the relay says how it does: one line in, one line out, on a socket that only root opens.

Promises: a line longer than a request can be, one that comes too slowly, an answer that is taken too slowly, and more
clients than MOST_CLIENTS are turned away, and nothing of that delays what is relayed; pictures are drawn one at a time,
on another thread. Must not need an HTTP library: the relay has none.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from nodeward.core.errors import WireError
from nodeward.core.pulls import PullsView
from nodeward.neighbours.cri import relay_line
from nodeward.neighbours.sockets import lines
from nodeward.neighbours.sockets.unix_listener import UnixListener

CLIENT_S = 2.0
"""How long a client may take for its line, and to take ours."""
MOST_CLIENTS = 16
"""People, the daemon and doctor; each holds at most one request."""
T = TypeVar("T")
_log = logging.getLogger(__name__)

Snapshot = Callable[[str], Callable[[], object]]
"""Takes what is asked, on the loop and at once; what it returns draws, on any thread. WireError: it cannot be
answered."""


class RelayLineServer:
    """Answers who asks."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._clients = 0
        self._drawing = asyncio.Lock()

    async def run(self, path: str) -> None:
        """Serves until cancelled. ListenError where the socket cannot be had."""
        listener = UnixListener(path)
        try:
            server = await asyncio.start_unix_server(self._client, sock=listener.socket, limit=relay_line.MAX_REQUEST)
            async with server:
                await server.serve_forever()
        finally:
            listener.close()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients += 1
        try:
            if self._clients <= MOST_CLIENTS:
                async with asyncio.timeout(CLIENT_S):
                    line = await reader.readline()
                answer = await self._answer(line)
                async with asyncio.timeout(CLIENT_S):
                    writer.write(answer)
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        except (OSError, TimeoutError, ValueError) as error:  # ValueError: a line without end
            _log.debug("status request dropped error=%s", error or type(error).__name__)
        finally:
            self._clients -= 1
            writer.transport.abort()

    async def _answer(self, line: bytes) -> bytes:
        try:
            asked = relay_line.decode_request(line)
        except WireError as error:
            return relay_line.encode_error(str(error))
        async with self._drawing:
            try:
                draw = self._snapshot(asked)
            except WireError as error:
                return relay_line.encode_error(str(error))
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(None, _drawn, draw)


def _drawn(draw: Callable[[], object]) -> bytes:
    view = draw()
    return relay_line.encode_pulls(view) if isinstance(view, PullsView) else relay_line.encode_answer(view)


async def ask(path: str, what: str, kind: type[T], within_s: float) -> T:
    """The picture of the relay at `path`, as a `kind`. OSError, TimeoutError or WireError where there is no answer."""
    line = await lines.ask(path, relay_line.encode_request(what), relay_line.MAX_ANSWER, within_s)
    return relay_line.decode_answer(line, kind)


async def ask_pulls(path: str, within_s: float) -> PullsView:
    """The pulls that the relay at `path` has seen. Errors as in `ask`."""
    line = await lines.ask(path, relay_line.encode_request(relay_line.PULLS), relay_line.MAX_ANSWER, within_s)
    return relay_line.decode_pulls(line)
