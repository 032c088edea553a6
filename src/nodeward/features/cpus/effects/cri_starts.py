"""The wait before a container's program begins, where a relay holds its start.

A runtime without NRI makes the container's cgroup at its start, by what it remembers of it. So what it remembers is put
right before, by an update of our own; and two starts do not meet: a container does not start while another one's start
is under way whose remembered CPUs are its own. `start_barrier` does the rest, as with NRI.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from nodeward.core.decision import Adjustment
from nodeward.core.decision import Final as Said
from nodeward.core.events import Updating
from nodeward.core.workload import ContainerId
from nodeward.features.cpus.effects.start_barrier import StartBarrier, pins
from nodeward.features.cpus.place import wanted
from nodeward.features.cpus.pools import apart
from nodeward.features.root import State
from nodeward.host.runner import Core
from nodeward.neighbours.cri import mapping
from nodeward.neighbours.cri.decider import Known
from nodeward.neighbours.sockets.unary_client import CallFailedError

UPDATE: Final = "/runtime.v1.RuntimeService/UpdateContainerResources"
UPDATE_NS: Final = 1_000_000_000
AGAIN_S: Final = 0.01
log = logging.getLogger(__name__)


class CriStarts:
    """`neighbours.cri.decider.Starts`. Belongs to the loop's thread."""

    def __init__(
        self,
        core: Core[State],
        known: Known,
        barrier: StartBarrier,
        update: Callable[[bytes, float], Awaitable[object]],
    ) -> None:
        """`update` has the runtime take an UpdateContainerResourcesRequest, within so many seconds."""
        self._core, self._known, self._barrier, self._update = core, known, barrier, update
        self._open = set[int]()
        """Calls that are not over, by number."""
        self._starting: dict[int, ContainerId] = {}
        """Starts that the runtime has been given and has not answered, by the call's number."""

    def hold(self) -> bool:
        """Whether programs have to wait."""
        return pins(self._core.state)

    async def may_begin(self, number: int, container_id: ContainerId, within_s: float) -> str:
        """Returns when the container may be started; why it must not, else nothing. It counts as being started until
        `ended`."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + within_s
        self._open.add(number)
        await self._put_right(container_id, end_s)
        while self._is_met(container_id) and loop.time() < end_s:
            await asyncio.sleep(AGAIN_S)
        why = await self._barrier.written(container_id, max(0.0, end_s - loop.time()))
        if not why and number in self._open:
            self._starting[number] = container_id
        return why

    def ended(self, number: int) -> None:
        """The call is over."""
        self._open.discard(number)
        self._starting.pop(number, None)

    def gone(self) -> None:
        """The relay is: nobody will tell of the ends."""
        self._open.clear()
        self._starting.clear()

    def _is_met(self, container_id: ContainerId) -> bool:
        """Whether another container, whose start is under way, may run on this one's own CPUs by what the runtime
        remembers of it."""
        cpus = self._core.state.cpus
        held = cpus.held.get(container_id)
        grant = cpus.pools.grants.get(held.key) if held is not None else None
        alone = apart(cpus.pools, grant) if grant is not None else 0
        if held is None or not alone:
            return False
        starting = [cpus.held.get(one) for one in self._starting.values() if one != container_id]
        others = [other for other in starting if other is None or not alone & wanted(cpus.pools, other.key)]
        return any(other is None or not other.given or other.given & alone for other in others)

    async def _put_right(self, container_id: ContainerId, end_s: float) -> None:
        """What the runtime remembers of the container, where that was decided anew since its create."""
        cpus = self._core.state.cpus
        held, known = cpus.held.get(container_id), self._known.container(container_id)
        if held is None or known is None or held.given == wanted(cpus.pools, held.key):
            return
        try:
            async with asyncio.timeout_at(end_s):
                asked = self._core.ask(Updating(*known), UPDATE_NS)
                final = asked if isinstance(asked, Said) else await asked
                if isinstance(final.value, Adjustment) and final.value.sets():
                    request = mapping.changed_update(mapping.update_of(container_id), final.value)
                    await self._update(request, max(0.0, end_s - asyncio.get_running_loop().time()))
        except (OSError, TimeoutError, CallFailedError) as error:
            log.warning("cpus=record-not-put-right container=%s error=%s", container_id, error)
