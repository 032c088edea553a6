"""Updates containers whose create was not decided in time, by calls of the relay's own.

Once the runtime has named the container, the engine is asked as for an update, and the runtime is told (docs/relay.md),
until it went well or the container is gone, with growing pauses and one at a time. A container that does not run yet is
told of at once, so that it may have its limit from birth, and again when it runs: containerd makes nothing of an update
that comes while it starts the container. Must not decide anything itself, nor keep anything on disk.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final

from nodeward.core.decision import Adjustment
from nodeward.core.decision import Final as Said
from nodeward.core.errors import NodewardError, WireError
from nodeward.core.events import Event, Listed, Removed, Started, Stopped, Updating
from nodeward.core.ports import Tell
from nodeward.core.workload import ContainerId, Phase
from nodeward.features.root import State
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock
from nodeward.host.runner import Core
from nodeward.neighbours.cri import mapping
from nodeward.neighbours.cri.decider import Find
from nodeward.neighbours.sockets.unary_client import CallFailedError

DECIDED_NS: Final = 5_000_000_000
"""So long facts may be waited for."""
FIRST_PAUSE_S, LAST_PAUSE_S = 0.2, 10.0
NOT_FOUND: Final = 5
"""gRPC's status."""
Update = Callable[[bytes], Awaitable[object]]
Look = Callable[[], Awaitable[object]]
log = logging.getLogger(__name__)


class StillUndecidedError(NodewardError):
    """The engine failed again."""


class Debts:
    """The containers that are owed a decision. Belongs to the loop's thread."""

    def __init__(self, core: Core[State], find: Find) -> None:
        self._core, self._find = core, find
        self._owed: dict[ContainerId, None] = {}
        self._early: dict[ContainerId, None] = {}
        """Told of before they ran."""
        self._more = asyncio.Event()
        self.paid = 0
        """Updates that the runtime has taken."""

    def owe(self, container_id: ContainerId) -> None:
        """It was created or updated, and nothing was decided."""
        self._owed[container_id] = None
        self._more.set()

    def listens(self, tell: Tell) -> Tell:
        """`tell`; and who was told of too early is owed once it runs."""

        def told(event: Event) -> int:
            seq = tell(event)
            if self._early and isinstance(event, Started | Stopped | Removed | Listed):
                for container_id in tuple(self._early):
                    if self._phase(container_id) is not Phase.CREATED:
                        del self._early[container_id]
                        self.owe(container_id)
            return seq

        return told

    def _phase(self, container_id: ContainerId) -> Phase | None:
        known = self._find(container_id)
        return known[1].phase if known is not None else None

    async def pay(self, update: Update, look: Look, clock: Clock) -> None:
        """Until cancelled. `update` has the runtime take an UpdateContainerResourcesRequest, `look` asks it what there
        is: a create that was too large to be held has not told whose container it is."""
        pauses = Backoff(FIRST_PAUSE_S, LAST_PAUSE_S, random.random)
        while True:
            while not self._owed:
                self._more.clear()
                await self._more.wait()
            container_id = next(iter(self._owed))
            try:
                if await self._pay_one(container_id, update, look):
                    del self._owed[container_id]
                pauses.reset()
            except (OSError, TimeoutError, CallFailedError, StillUndecidedError, WireError) as error:
                self._owed[container_id] = self._owed.pop(container_id)  # after the others
                log.warning("limits=owed container=%s error=%s", container_id, error or type(error).__name__)
                await clock.sleep(pauses.next_s())

    async def _pay_one(self, container_id: ContainerId, update: Update, look: Look) -> bool:
        """Whether nothing more is to be done now."""
        if self._find(container_id) is None:
            await look()
        known = self._find(container_id)
        if known is None or known[1].phase is Phase.STOPPED:
            return True
        asked = self._core.ask(Updating(*known), DECIDED_NS)
        final = asked if isinstance(asked, Said) else await asked
        if final.reason.code == "fault":
            raise StillUndecidedError("the decision failed again")
        if not isinstance(final.value, Adjustment) or not final.value.sets():
            return True
        before = self._phase(container_id)
        try:
            await update(mapping.changed_update(mapping.update_of(container_id), final.value))
        except CallFailedError as error:
            if error.status != NOT_FOUND:
                raise
            return True
        self.paid += 1
        log.info("limits=mended container=%s phase=%s given=%r", container_id, before, final.value.sets())
        if before is Phase.RUNNING:
            return True
        if self._phase(container_id) is Phase.CREATED:
            self._early[container_id] = None
            return True
        return False  # it began to run meanwhile, or has ended
