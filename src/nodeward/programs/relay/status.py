"""What the relay says of itself on `relay.sock`, put together from its parts.

Promises: whatever becomes of it, calls are relayed; a question costs the loop a snapshot of counters.
"""

import logging
import os
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nodeward import __version__
from nodeward.core.conditions import HappenedRow
from nodeward.core.errors import WireError
from nodeward.core.pulls import PullsView
from nodeward.core.times import LATELY_NS, rfc3339
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock
from nodeward.host.supervise import forever
from nodeward.neighbours.cri import relay_line
from nodeward.neighbours.cri.counts import CallCounts
from nodeward.neighbours.cri.relay_socket import RelayLineServer
from nodeward.neighbours.cri.rows import DaemonRow, DoorRow, DumpRow
from nodeward.neighbours.cri.sockets import Relay
from nodeward.people.relay_view import RelayView
from nodeward.programs.relay.plan import RelayPlan

if TYPE_CHECKING:
    from nodeward.neighbours.cri.pulls import PullBook

log = logging.getLogger(__name__)


class Status:
    """The relay's picture of itself."""

    def __init__(self, plan: RelayPlan, doors: Sequence[tuple[str, Relay]], counts: CallCounts, clock: Clock) -> None:
        self._plan, self._doors, self._counts, self._clock = plan, doors, counts, clock
        self._since_wall_ns = clock.wall_ns()

    async def serve(self, clock: Clock) -> None:
        """Answers who asks, until cancelled. A relay that is ending may still have the socket: it is tried again."""
        server, path = RelayLineServer(self.snapshot), f"{self._plan.run_dir}/{relay_line.SOCKET}"
        await forever(
            "relay.sock", lambda: server.run(path), clock, Backoff(0.5, 60.0, random.random), lambda _, __: None
        )

    def snapshot(self, asked: str) -> Callable[[], RelayView | PullsView]:
        """The relay now; or the pulls that it has seen."""
        for _, relay in self._doors:
            relay.turn.end()  # what has passed is counted then
        if asked == relay_line.PULLS:
            seen = _pulls(self._plan.pulls)
            return lambda: seen
        books = [relay.book for _, relay in self._doors]
        dump = self._plan.dump
        doors = tuple(_door(listen, relay) for listen, relay in self._doors)
        calls, added = self._counts.rows(), self._counts.added()
        queues = {
            "held": sum(book.holds.total - book.holds.left for book in books),
            "copied": sum(book.copies.total - book.copies.left for book in books),
        }
        told = None
        if dump is not None:
            queues["dump"] = dump.waiting_bytes
            told = DumpRow(self._plan.dump_file, dump.told, dump.lost, dump.waiting_bytes, dump.cut)
        asks, reload = self._plan.asks, self._plan.reload
        daemon = DaemonRow(self._plan.wants, asks.daemon, asks.why, asks.strays) if asks is not None else DaemonRow()
        unfit = reload.faults if reload is not None else ()
        ago = [self._clock.now_ns() - book.troubled_ns for book in books if book.troubled_ns is not None]
        trouble: tuple[HappenedRow, ...] = ()
        if ago and min(ago) <= LATELY_NS:
            count, last_ns = sum(door.undecided + door.faults for door in doors), self._clock.wall_ns() - min(ago)
            trouble = (HappenedRow("relay-troubled", "", count, rfc3339(self._since_wall_ns), rfc3339(last_ns)),)

        view = RelayView(
            version=__version__,
            pid=os.getpid(),
            since_wall_ns=self._since_wall_ns,
            doors=doors,
            calls=calls,
            added=added,
            counted=self._plan.count_calls,
            queues=queues,
            daemon=daemon,
            dump=told,
            settings_faults=unfit,
            lately=trouble,
        )
        return lambda: view


def _pulls(book: "PullBook | None") -> PullsView:
    """WireError where none are noted."""
    if book is None:
        remedy = "set podapi.enabled to true in the relay's settings and restart it"
        raise WireError("relay line", f"this relay notes no pulls: {remedy}")
    book.catch_up()
    return PullsView(__version__, os.getpid(), book.listed, book.pulls, book.sandboxes, book.forgotten)


def _door(listen: str, relay: Relay) -> DoorRow:
    counts = relay.book.counts
    return DoorRow(
        listen=listen,
        runtime=relay.runtime,
        present=relay.here,
        clients=counts.open,
        connections=counts.connections,
        unseen=counts.lost_sight,
        undecided=counts.on_error,
        faults=counts.faults,
    )
