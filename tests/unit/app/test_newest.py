"""Goals that an edge performs: the newest value of each target reaches it, and its outcomes reach the core."""

import asyncio

from nodeward.aio.clock import SystemClock
from nodeward.aio.lanes import InlineLane
from nodeward.app.host.newest import ByKind, Newest
from nodeward.app.host.slots import Slots
from nodeward.app.host.undo import UndoList
from nodeward.doubles.kernel import SimKernel
from nodeward.edges.cgroups.hierarchy import Tree
from nodeward.model.decision import Goal, Reason, Special
from nodeward.model.events import Event, Missed, Reached

WHY = Reason("test")


def test_the_newest_value_is_there_until_it_is_absent_forgotten_or_only_observed() -> None:
    newest = Newest()
    newest.set([Goal("offer:a", "1", WHY), Goal("offer:b", "1", WHY)])
    newest.set([Goal("offer:a", "2", WHY)])
    assert [newest.value(target) for target in newest.targets()] == ["2", "1"]
    newest.set([Goal("offer:a", Special.ABSENT, WHY), Goal("offer:b", "2", WHY, perform=False)])
    assert [newest.value(target) for target in newest.targets()] == [None, None]
    newest.set([], ["offer:a"])
    assert newest.targets() == ("offer:b",)


def test_who_waits_hears_of_each_change_and_of_one_that_came_before_the_wait() -> None:
    async def story() -> None:
        newest = Newest()
        waiting = asyncio.ensure_future(newest.changed(0))
        await asyncio.sleep(0)
        assert not waiting.done()
        newest.set([Goal("offer:a", "1", WHY)])
        assert await waiting == 1
        newest.set([Goal("offer:a", "2", WHY)])
        assert await newest.changed(1) == 2

    asyncio.run(story())


def test_each_kind_goes_to_who_performs_it_and_outcomes_come_back() -> None:
    kernel, told = SimKernel({"sgx_epc": 1 << 20}), list[Event]()

    def tell(event: Event) -> int:
        told.append(event)
        return len(told)

    lane = InlineLane()
    slots = Slots(lane, kernel, Tree(kernel, "/sys/fs/cgroup"), UndoList(kernel, "/var/lib/nodeward"), SystemClock())
    newest = Newest()
    goals = ByKind(slots, {"offer": newest})
    goals.connect(tell, lambda: None)
    goals.set([Goal("offer:a", "1", WHY), Goal("misc.max:sgx_epc:/none", "4096", WHY)], ["offer:b"])
    assert newest.targets() == ("offer:a",)
    assert slots.targets == ("misc.max:sgx_epc:/none",)
    lane.drain()
    newest.reached("offer:a")
    newest.missed("offer:a", "kubelet is away")
    assert isinstance(told[0], Missed)  # there is no such cgroup
    assert told[1:] == [Reached(("offer:a",), ("offer:a",)), Missed({"offer:a": "kubelet is away"})]
