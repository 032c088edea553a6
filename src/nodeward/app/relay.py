"""The relay's process: one listening socket, one runtime.

It keeps nothing on disk and needs no other part of Nodeward, neither at start nor later. It is on every node's way to
its runtime, so what is imported here stays small: no grpc, no aiohttp (a test looks).
"""

import asyncio
import contextlib
import gc
import logging
import os
import random
from collections.abc import Sequence
from typing import Final

from nodeward.aio.backoff import Backoff
from nodeward.aio.clock import Clock
from nodeward.aio.heap import keep_freed_memory
from nodeward.aio.supervise import forever
from nodeward.edges.cri.counts import CallCounts
from nodeward.model.relayed import Decider, Refuse, Watcher
from nodeward.model.value import value
from nodeward.transport.relay_calls import CallBook
from nodeward.transport.relay_unix import Relay
from nodeward.transport.unix_listener import BACKLOG, ListenError, UnixListener

RESEMBLE_S: Final = 1.0
"""How often owner and mode of the runtime's socket are looked at: a restarted runtime makes it anew."""
DRAIN_S: Final = 5.0
"""How long calls that are not answered yet may take when the relay ends."""

log = logging.getLogger(__name__)


@value(frozen=True, slots=True)
class RelayPlan:
    """What a relay is to do."""

    listen: str
    """The socket that kubelet connects to."""
    runtime: str
    """The runtime's."""
    watchers: Sequence[Watcher] = ()
    """Who sees calls, beside the counts."""
    decider: Decider | None = None
    on_error: Refuse | None = None
    """The answer to held calls that cannot be decided; None lets them pass."""


async def run(plan: RelayPlan, clock: Clock) -> None:
    """Relays until cancelled; then says so to the clients, waits for what is under way, and ends. ListenError if it
    cannot begin."""
    _check(plan)
    counts = CallCounts()
    book = CallBook(clock, (counts, *plan.watchers), plan.decider, plan.on_error)
    relay = Relay(book, plan.runtime)
    listener = UnixListener(plan.listen)
    try:
        listener.resemble(plan.runtime)
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(relay.protocol, sock=listener.socket, backlog=BACKLOG)
        log.info("relaying listen=%s runtime=%s", plan.listen, plan.runtime)
        keep_freed_memory()
        gc.collect()
        gc.freeze()
        try:
            await _look_alike(listener, plan, clock)
        finally:
            server.close()
            listener.close()  # whoever comes next may begin, while what is under way here ends
            await relay.drain(DRAIN_S)
    finally:
        listener.close()
        log.info("relay ends %s", book.counts.text())
        log.info("relayed calls %s", counts.text())


def _check(plan: RelayPlan) -> None:
    """Refuses a relay that would listen to itself."""
    same = os.path.realpath(plan.listen) == os.path.realpath(plan.runtime)
    with contextlib.suppress(OSError):
        same = same or os.path.samefile(plan.listen, plan.runtime)
    if same:
        raise ListenError(f"{plan.listen} is the runtime's own socket. Choose another path to listen at")


async def _look_alike(listener: UnixListener, plan: RelayPlan, clock: Clock) -> None:
    """Keeps owner and mode of our socket those of the runtime's."""

    async def watch() -> None:
        while True:
            listener.resemble(plan.runtime)
            await clock.sleep(RESEMBLE_S)

    await forever("socket", watch, clock, Backoff(0.2, 10.0, random.random), lambda _, __: None)
