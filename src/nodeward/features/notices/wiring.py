"""Sends Kubernetes Events, one after the other, each at most once.

Nothing that enforces waits for any of it. At most MOST_WAITING wait; what is beyond is dropped and counted. After a
failure there is a pause, so that an API server in trouble is not asked more often. Every call ends with a CallEnded.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from nodeward.core.decision import PodEvent
from nodeward.core.events import CallEnded, Event
from nodeward.features.notices.words import told
from nodeward.features.pods.wiring import ApiFacts
from nodeward.features.wiring import FIRST_PAUSE_S, LAST_PAUSE_S, Node, Wired, Wiring
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock

if TYPE_CHECKING:
    from nodeward.neighbours.kubernetes.events import EventObject, EventSender

log = logging.getLogger(__name__)
MOST_WAITING = 100
MOST_OF_POD = 200
"""So much of a pod's name, or the node's, is in an Event's."""
SENT, FAILED, DROPPED = "sent", "failed", "dropped"


class Calls:
    """The calls that wait, and how many ended how."""

    def __init__(self, tell: Callable[[Event], int], clock: Clock) -> None:
        self._tell, self._clock = tell, clock
        self._life = f"{clock.wall_ns():x}"
        self._waiting: deque[PodEvent] = deque()
        self._some = asyncio.Event()
        self._trouble = ""
        self.outcomes = {SENT: 0, FAILED: 0, DROPPED: 0}

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def __call__(self, calls: tuple[PodEvent, ...]) -> None:
        """Takes over what a decision asks for. It is not performed here, nor is anything told."""
        for call in calls:
            if len(self._waiting) >= MOST_WAITING:
                self.outcomes[DROPPED] += 1
                ended = CallEnded(call.id, f"{MOST_WAITING} calls wait already")
                asyncio.get_running_loop().call_soon(self._tell, ended)
                continue
            self._waiting.append(call)
        self._some.set()

    async def run(self, sender: "EventSender", delays: Backoff) -> None:
        """Sends what waits until cancelled."""
        while True:
            await self._some.wait()
            if not self._waiting:
                self._some.clear()
                continue
            call = self._waiting.popleft()
            error = "ended while it was sent"
            try:
                error = await self._send(sender, call)
            finally:
                self.outcomes[FAILED if error else SENT] += 1
                self._tell(CallEnded(call.id, error))
            if error:
                await self._clock.sleep(delays.next_s())
            else:
                delays.reset()

    async def _send(self, sender: "EventSender", call: PodEvent) -> str:
        """Why it failed, or nothing. One trouble is one line in the log, until it is another or over."""
        try:
            await sender.send(self._event(call, sender.node), is_there=call.series != call.id)
        except Exception as failure:  # whatever it is, an Event is not worth more than this line
            trouble = type(failure).__name__
            if trouble != self._trouble:
                whom = f"pod={call.namespace}/{call.pod}" if call.pod else f"node={sender.node}"
                log.warning("kube event=failed %s why=%s", whom, failure)
            self._trouble = trouble
            return str(failure) or trouble
        self._trouble = ""
        return ""

    def _event(self, call: PodEvent, node: str) -> "EventObject":
        """The Event object that a call means, under a name that no other life of the daemon gives."""
        from nodeward.neighbours.kubernetes.events import EventObject

        reason, is_warning, note = told(call)
        since_ns = self._clock.wall_ns() - self._clock.now_ns()
        return EventObject(
            name=f"{(call.pod or node)[:MOST_OF_POD].rstrip('-.')}.{self._life}.{call.series}",
            namespace=call.namespace,
            pod=call.pod or node,
            pod_uid=call.pod_uid,
            field_path=call.field_path,
            reason=reason,
            is_warning=is_warning,
            note=note,
            node=node,
            count=call.count,
            first_wall_ns=since_ns + call.first_ns,
            last_wall_ns=since_ns + call.last_ns,
            of_node=not call.pod,
        )


def _components(node: Node) -> Wired:
    if not (isinstance(node.pods, ApiFacts) and node.settings.kube.events):
        return Wired(())
    from nodeward.neighbours.kubernetes.events import EventSender

    client, calls = node.pods.reader.client, node.part(Calls)

    async def send_events() -> None:
        await calls.run(EventSender(client), Backoff(FIRST_PAUSE_S, LAST_PAUSE_S, random.random))

    return Wired((("events", send_events),))


WIRING = Wiring(_components)
