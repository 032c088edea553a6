"""Given the policy `dynamic-pools`, its pools follow the use of CPUs that is measured beside."""

import asyncio

from nodeward.app.host import cpu_watch
from nodeward.app.host.core import Core
from nodeward.app.host.facts import FactsByKind
from nodeward.app.host.slots import Slots
from nodeward.doubles.kernel import SimKernel
from nodeward.edges.sysfs import use
from nodeward.engine.state.root import State
from nodeward.model import events as ev
from nodeward.model.policy_rule import PolicySettings
from nodeward.model.pool_rule import DynamicPoolsSettings, DynamicPoolType
from nodeward.model.settings import EngineSettings
from nodeward.model.workload import Phase
from tests.lanes import InlineLane
from tests.unit.engine.build import ManualClock
from tests.unit.engine.cpus.build import RESERVED_ONE, home, machine, one

SHOP = DynamicPoolsSettings(dynamic_pool_types=(DynamicPoolType("shop", ("shop",)),))


class Looks(ManualClock):
    """Before each look the test's own turn; after the last one the component ends."""

    def __init__(self, kernel: SimKernel, *texts: bytes) -> None:
        super().__init__()
        self._kernel, self._texts = kernel, list(texts)

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        if not self._texts:
            raise asyncio.CancelledError
        self._kernel.replace(use.STAT, self._texts.pop(0))


async def nothing(_: str) -> str:
    return ""


def test_a_pool_that_is_used_gets_the_rest_and_a_file_that_cannot_be_read_changes_nothing() -> None:
    kernel, lane = SimKernel({}), InlineLane()
    rules = PolicySettings("dynamic-pools", reserved=RESERVED_ONE, dynamic_pools=SHOP)
    state = State(settings=EngineSettings(policy=rules))
    core = Core(state, ManualClock(), Slots(lane, {}, ManualClock()), FactsByKind(), nothing)
    core.tell(ev.TopologyRead(machine()))
    made = one("a", 2).in_phase(Phase.RUNNING)
    core.tell(ev.Listed((home("a"),), (made,), as_of=0))

    def sizes() -> list[int]:
        pools = core.state.cpus.pools.pools
        return [pools[name].cpus.bit_count() for name in ("shared", "shop")]

    assert sizes() == [5, 2]
    first = b"".join(b"cpu%d 0 0 0 0 0 0 0 0\n" % cpu for cpu in range(8))
    second = b"".join(b"cpu%d 500 0 0 500 0 0 0 0\n" % cpu for cpu in range(8))

    async def watched() -> None:
        task = asyncio.create_task(cpu_watch.watch_use(kernel, lane, core, Looks(kernel, b"x", first, b"x", second)))
        while not task.done():
            lane.drain()
            await asyncio.sleep(0)

    asyncio.run(watched())
    assert sizes() == [0, 7]
