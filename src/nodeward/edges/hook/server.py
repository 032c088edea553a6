"""The OCI hook's socket: one line in, one line out, over a unix socket that only root opens.

Promises: a line longer than a request can be, one that comes too slowly, and more clients than MOST_CLIENTS are turned
away; a question of the hook's is asked as a create is, within a second; a fault of ours answers nothing, and the hook
then goes by the files. Must not decide, and holds nothing of pods.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable

from nodeward.edges.hook import mapping
from nodeward.model.decision import Final
from nodeward.model.events import Creating, Hooked
from nodeward.model.ports import Ask, Tell
from nodeward.wire import hook_line
from nodeward.wire.errors import WireError
from nodeward.wire.hook_line import HookAnswer, HookRequest

REQUEST_S = 2.0
"""How long a client may take for its line, and to take ours."""
ANSWER_NS = 1_000_000_000
MOST_CLIENTS = 64
"""A kubelet starts fewer containers at once; each holds at most one request."""
_log = logging.getLogger(__name__)


class HookServer:
    """Answers hooks. `on_error` is the setting of the moment."""

    def __init__(self, ask: Ask, tell: Tell, on_error: Callable[[], str]) -> None:
        self._ask, self._tell, self._on_error = ask, tell, on_error
        self._clients = 0

    async def run(self, path: str, serving: Callable[[], None]) -> None:
        """Serves until cancelled; the socket's file is there meanwhile, mode 0600. Calls `serving` once it is."""
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # left by a daemon that was killed; the lock says there is no other
        old = os.umask(0o177)
        try:
            server = await asyncio.start_unix_server(self._client, path, limit=hook_line.MAX_REQUEST)
        finally:
            os.umask(old)
        try:
            async with server:
                serving()
                await server.serve_forever()
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients += 1
        try:
            if self._clients > MOST_CLIENTS:
                _log.warning("hook turned away clients=%d", self._clients)
                return
            async with asyncio.timeout(REQUEST_S):
                line = await reader.readline()
            answer = await self.answer(hook_line.decode_request(line))
            if answer is None:
                return
            async with asyncio.timeout(REQUEST_S):
                writer.write(hook_line.encode_answer(answer))
                await writer.drain()
        except (WireError, OSError, TimeoutError, ValueError) as error:  # ValueError: a line without end
            _log.warning("hook request dropped error=%s", error or type(error).__name__)
        finally:
            self._clients -= 1
            writer.close()

    async def answer(self, request: HookRequest) -> HookAnswer | None:
        """What the container is to have; None for what holds a sandbox, for which nobody waits. The daemon knows of it
        from then on."""
        home, made = mapping.sandbox(request), mapping.container(request)
        if made is None:
            self._tell(Hooked(home))
            return None
        final = self._ask(Creating(home, made, by_hook=True), ANSWER_NS)
        if not isinstance(final, Final):
            final = await final
        answer = mapping.answer(final, self._on_error())
        if not answer.refusal:
            self._tell(Hooked(home, made))
        return answer
