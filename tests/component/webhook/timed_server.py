"""The webhook's server on a clock that only reviews move: each takes REVIEW_S. It tells in which turn of the loop each
was answered, and how; a program of its own, so that it can be stopped while a crowd asks.

    python -m tests.component.webhook.timed_server FOLDER

prints its port, and at SIGTERM one JSON list a turn, of the statuses in their order.
"""

import asyncio
import json
import signal
import sys

from aiohttp.http import RawRequestMessage

from nodeward.aio.loop import new_loop
from nodeward.aio.tls import ReloadingTls
from nodeward.app.webhook import decider
from nodeward.edges.webhook.answer import Answer
from nodeward.edges.webhook.doors import Patience, listen
from nodeward.edges.webhook.server import WebhookServer
from nodeward.model.admission import Operation, PodAsked, Verdict
from nodeward.model.settings import Settings

REVIEW_S = 1 / 1024
"""A sum of these has no rounding."""


class Timed(WebhookServer):
    """Keeps what was answered in each turn of the loop."""

    turns: list[list[int]]
    turn: list[int] | None = None

    def whole(self, head: RawRequestMessage, body: bytes) -> Answer:
        answer = super().whole(head, body)
        if self.turn is None:
            self.turn = []
            self.turns.append(self.turn)
            asyncio.get_running_loop().call_soon(self._next)
        self.turn.append(answer.status)
        return answer

    def _next(self) -> None:
        self.turn = None


async def main(folder: str) -> None:
    tls, clock = ReloadingTls(f"{folder}/tls.crt", f"{folder}/tls.key"), [0.0]
    await tls.check()

    def slow(what: Operation, asked: PodAsked) -> Verdict:
        clock[0] += REVIEW_S
        return decider(Settings())(what, asked)

    server = Timed(slow, lambda: tls.context, patience=Patience(request_s=3600.0), now=lambda: clock[0])
    server.turns = []
    listener = listen("127.0.0.1", 0)
    serving = asyncio.ensure_future(server.serve(listener))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    print(listener.getsockname()[1], flush=True)
    await asyncio.gather(serving, return_exceptions=True)
    for turn in server.turns:
        print(json.dumps(turn))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main(sys.argv[1]))
