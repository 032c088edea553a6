"""The OCI hook's socket: one line in, one line out (`neighbours.sockets.lines`).

Promises: a question of the hook's is asked as a create is, within a second; a fault of ours answers nothing, and the
hook then goes by the files. Must not decide, and holds nothing of pods.
"""

from collections.abc import Callable

from nodeward.core.decision import Final
from nodeward.core.events import Creating, Hooked
from nodeward.core.ports import Ask, Tell
from nodeward.neighbours.hook import line as hook_line
from nodeward.neighbours.hook import mapping
from nodeward.neighbours.hook.line import HookAnswer, HookRequest
from nodeward.neighbours.sockets.lines import LineServer

ANSWER_NS = 1_000_000_000


class HookServer:
    """Answers hooks. `on_error` is the setting of the moment."""

    def __init__(self, ask: Ask, tell: Tell, on_error: Callable[[], str]) -> None:
        self._ask, self._tell, self._on_error = ask, tell, on_error

    async def run(self, path: str, serving: Callable[[], None]) -> None:
        """Serves until cancelled; the socket's file is there meanwhile, mode 0600. Calls `serving` once it is."""
        await LineServer("hook", self._line, hook_line.MAX_REQUEST).run(path, serving)

    async def _line(self, line: bytes) -> bytes | None:
        answer = await self.answer(hook_line.decode_request(line))
        return hook_line.encode_answer(answer) if answer is not None else None

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
