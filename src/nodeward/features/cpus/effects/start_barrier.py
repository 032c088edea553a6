"""Waits before a container's program starts: for its limits, and until others are off its CPUs.

Used by both transports. It is bounded: after `cpus.late_ms` the program is started or refused, as `cpus.on_late` says,
and which of the two is told to the engine.
"""

import asyncio
import logging
from collections.abc import Callable

from nodeward.core.events import StartLate
from nodeward.core.modes import Mode
from nodeward.core.workload import ContainerId
from nodeward.features.cpus.barrier import in_the_way
from nodeward.features.cpus.settings import OnLate
from nodeward.features.cpus.state import is_active
from nodeward.features.cpus.view import name_of
from nodeward.features.root import State
from nodeward.host.runner import Core
from nodeward.host.slots import Slots

AGAIN_S = 0.02
"""At the latest after so long it is looked again: an event may free CPUs too, such as the end of a container."""
log = logging.getLogger(__name__)


class StartBarrier:
    """`core.ports.AtStart`. Belongs to the loop's thread."""

    def __init__(self, core: Core[State], slots: Slots, leaves_rest: Callable[[State], bool]) -> None:
        """`leaves_rest`: whether an answer to a create can leave limits to be written."""
        self._core, self._slots, self._leaves_rest = core, slots, leaves_rest

    def needed(self) -> bool:
        """Whether creates may leave something to be written, or a policy gives CPUs."""
        return pins(self._core.state) or self._leaves_rest(self._core.state)

    async def written(self, container_id: ContainerId, within_s: float) -> str:
        """Returns when each limit of this container was tried and its CPUs are free of others; why it must not start
        where they are not in time and `cpus.on_late` is refuse."""
        rule = self._core.state.settings.cpus
        loop = asyncio.get_running_loop()
        end_s = loop.time() + within_s
        try:
            async with asyncio.timeout_at(end_s):
                known = self._core.state.pods.containers.get(container_id)
                if known is not None:
                    await self._slots.tried(known.container.cgroups_path)
            async with asyncio.timeout_at(min(end_s, loop.time() + rule.late_ms / 1000)):
                while in_the_way(self._core.state, container_id):
                    await self._slots.landed(AGAIN_S)
        except TimeoutError:
            return self._late(container_id)
        return ""

    def _late(self, container_id: ContainerId) -> str:
        others = in_the_way(self._core.state, container_id)
        if not others:
            log.warning("start=early container=%s why='its limits are not written yet'", container_id)
            return ""
        refuses = self._core.state.settings.cpus.on_late is OnLate.REFUSE
        self._core.tell(StartLate(container_id, others, refuses))
        if not refuses:
            return ""
        shown = ", ".join(self._shown(one) for one in others[:3])
        return (
            f"container {str(container_id)[:13]}: {len(others)} other container(s) could not be moved off its CPUs in "
            f"time ({shown}), and cpus.on_late is refuse; kubelet tries again. nodeward cpus shows who is where"
        )

    def _shown(self, other: ContainerId) -> str:
        """Which one is in the way, and what keeps it there where that is known."""
        held = self._core.state.cpus.held.get(other)
        if held is None:
            return f"container {str(other)[:13]}"
        name = f"{'/'.join(part for part in name_of(self._core.state, held.key) if part)} {str(other)[:13]}"
        return name if held.path else f"{name}, whose cgroup was not found: end its pod if that stays so"


def pins(state: State) -> bool:
    """Whether containers are given CPUs."""
    return state.settings.cpus.mode is Mode.ENFORCE and is_active(state.cpus)
