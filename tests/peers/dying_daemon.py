"""`nodeward` that dies by SIGKILL at a named step of its first Allocate, or of its first start of a container.
Arguments: the step, then the command's.

Nothing of the daemon is replaced but the place of its death, so whatever it has done by then is what a machine would
find.
"""

import asyncio
import os
import signal
import sys
from typing import NoReturn

from nodeward.cli.main import cli
from nodeward.features.keys.effects.grants import Grants
from nodeward.neighbours.kubelet.plugin import Plugin

STEPS = ("asked", "decided", "recorded", "answered", "sent")
STARTS = ("let-through", "told")
"""Of a start: it is decided, and kubelet has not heard; kubelet has heard."""
SENT_S = 0.2
"""So long after the answer kubelet has it, and has not heard of the end of the stream yet."""


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit


def dies_at(step: str) -> None:
    allocate, commit, start = Plugin.allocate, Grants.commit, Plugin.start

    async def dying_allocate(plugin: Plugin, request: bytes) -> bytes:
        if step == "asked":
            die()
        answer = await allocate(plugin, request)
        if step == "answered":
            die()
        if step == "sent":
            asyncio.get_running_loop().call_later(SENT_S, die)
        return answer

    async def dying_commit(grants: Grants, record: str) -> str:
        if step == "decided":
            die()
        why = await commit(grants, record)
        if step == "recorded":
            die()
        return why

    async def dying_start(plugin: Plugin, request: bytes) -> bytes:
        answer = await start(plugin, request)
        if step == "let-through":
            die()
        if step == "told":
            asyncio.get_running_loop().call_later(SENT_S, die)
        return answer

    places = ((Plugin, "allocate", dying_allocate), (Grants, "commit", dying_commit), (Plugin, "start", dying_start))
    for owner, name, dying in places:
        setattr(owner, name, dying)


if __name__ == "__main__":
    dies_at(sys.argv[1])
    cli(sys.argv[2:], prog_name="nodeward")
