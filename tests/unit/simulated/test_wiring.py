"""The simulated histories play the daemon as `app.node.assemble` puts it together: what it does by itself, they do."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from random import Random

from nodeward.app.node import last_known
from nodeward.app.node.pods import NoFacts
from nodeward.doubles.kernel import SimKernel
from nodeward.model import events as ev
from nodeward.model.workload import Source
from tests.unit.engine.build import EPC, container_spec, pod_spec
from tests.unit.simulated.history import virtual_loop
from tests.unit.simulated.life import RECORD, SETTINGS, Life, Surroundings
from tests.unit.simulated.virtual import Pace, VirtualClock, VirtualLoop

POD = pod_spec("A", container_spec("app", 4096))


class Disk:
    """A node, and how often `pods.json` cannot be written."""

    def __init__(self, loop: VirtualLoop, refusals: int = 0) -> None:
        self.kernel, self._clock, self.refusals = SimKernel({EPC: 1 << 20}), VirtualClock(loop), refusals

    def life(self) -> Life:
        given = Surroundings(
            SETTINGS, self._clock, Random("lanes"), Pace(), NoFacts(), self._before, lambda event, decision, life: None
        )
        return Life(self.kernel, given)

    def _before(self, name: str, path: str) -> None:
        if name == "replace" and path.endswith("pods.json") and self.refusals:
            self.refusals -= 1
            raise OSError(errno.ENOSPC, "the disk is full")


def play(story: Callable[[VirtualLoop], Awaitable[None]]) -> None:
    with virtual_loop() as loop:
        loop.run_until_complete(asyncio.ensure_future(story(loop), loop=loop))


def test_pods_that_could_not_be_written_down_are_written_later_and_known_to_the_next_life() -> None:
    async def story(loop: VirtualLoop) -> None:
        disk = Disk(loop, refusals=2)
        first = disk.life()
        first.tell(ev.ApiBack())
        first.tell(ev.PodsListed((POD,), first.core.seq()))
        await asyncio.sleep(20)
        assert (disk.refusals, first.failures()) == (0, [])
        assert [pod.name for pod in last_known.read(disk.kernel, SETTINGS.state_dir).pods] == ["pod-A"]

        first.kill()
        state = disk.life().core.state
        assert [known.spec.source for known in state.pods.specs.values()] == [Source.DISK]
        assert (state.limits.controller, state.limits.capacity) == (True, {EPC: 1 << 20})

    play(story)


def test_what_happens_is_on_disk_half_a_second_later_without_anybody_asking() -> None:
    async def story(loop: VirtualLoop) -> None:
        disk = Disk(loop)
        life = disk.life()
        life.tell(ev.ApiBack())
        await asyncio.sleep(0.5)
        assert b"ApiBack" in disk.kernel.read(RECORD, 1 << 20)
        life.kill()

    play(story)
