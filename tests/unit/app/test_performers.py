"""Goals that an edge performs: the newest value of each target reaches it, and its outcomes reach the core."""

import asyncio

import pytest

from nodeward.aio.clock import SystemClock
from nodeward.app.host.performers import ByEdge
from nodeward.app.host.slots import UnknownKindError
from nodeward.doubles.kernel import SimKernel
from nodeward.model.decision import Goal, Reason, Special
from nodeward.model.events import Event, Missed, Reached
from tests.goals import slots_of, target
from tests.lanes import InlineLane

WHY = Reason("test")


def test_the_newest_value_is_there_until_it_is_absent_forgotten_or_only_observed() -> None:
    newest = ByEdge("offer")
    newest.set([Goal(target("offer:a"), "1", WHY), Goal(target("offer:b"), "1", WHY)])
    newest.set([Goal(target("offer:a"), "2", WHY)])
    assert [newest.value(where) for where in newest.targets()] == ["2", "1"]
    newest.set([Goal(target("offer:a"), Special.ABSENT, WHY), Goal(target("offer:b"), "2", WHY, perform=False)])
    assert [newest.value(where) for where in newest.targets()] == [None, None]
    newest.set([], [target("offer:a")])
    assert newest.targets() == ("b",)


def test_who_waits_hears_of_each_change_and_of_one_that_came_before_the_wait() -> None:
    async def story() -> None:
        newest = ByEdge("offer")
        waiting = asyncio.ensure_future(newest.changed(0))
        await asyncio.sleep(0)
        assert not waiting.done()
        newest.set([Goal(target("offer:a"), "1", WHY)])
        assert await waiting == 1
        newest.set([Goal(target("offer:a"), "2", WHY)])
        assert await newest.changed(1) == 2

    asyncio.run(story())


def test_each_kind_goes_to_who_performs_it_and_outcomes_come_back() -> None:
    kernel, told = SimKernel({"sgx_epc": 1 << 20}), list[Event]()

    def tell(event: Event) -> int:
        told.append(event)
        return len(told)

    lane = InlineLane()
    slots = slots_of(lane, kernel, SystemClock())
    offers = slots.by_edge["offer"]
    slots.connect(tell, lambda: None)
    offered, limit = target("offer:a"), target("misc.max:sgx_epc:/none")
    slots.set([Goal(offered, "1", WHY), Goal(limit, "4096", WHY)], [target("offer:b")])
    assert (offers.targets(), slots.targets) == (("a",), (limit,))
    lane.drain()
    offers.reached("a")
    offers.missed("a", "kubelet is away")
    assert isinstance(told[0], Missed)  # there is no such cgroup
    assert told[1:] == [Reached((offered,), (offered,)), Missed(((offered, "kubelet is away"),))]


def test_a_program_whose_domain_gives_goals_that_nobody_performs_does_not_start() -> None:
    slots = slots_of(InlineLane(), SimKernel({}), SystemClock())
    slots.require("limits", ("misc.max", "offer"))
    with pytest.raises(UnknownKindError, match=r"domain cpus: nobody performs goals of kind 'cpuset'; there are"):
        slots.require("cpus", ("misc.max", "cpuset"))


def test_a_goal_for_many_places_is_reached_in_each_by_itself() -> None:
    """Given a goal of two cgroups of which one is there, then that is written, and the other tried again."""
    kernel, told, lane, clock = SimKernel({"sgx_epc": 1 << 20}), list[Event](), InlineLane(), SystemClock()
    kernel.make_cgroup("/sys/fs/cgroup/a")
    slots = slots_of(lane, kernel, clock)

    def tell(event: Event) -> int:
        told.append(event)
        return len(told)

    slots.connect(tell, lambda: None)
    slots.set([Goal(target("subtree:/"), "+misc", WHY), Goal(target("misc.max:sgx_epc:/a"), "4096", WHY, also=("/b",))])
    lane.drain()
    assert kernel.read("/sys/fs/cgroup/a/misc.max", 99) == b"sgx_epc 4096\n"
    assert slots.waiting == (target("misc.max:sgx_epc:/b"),)
    reached = (target("subtree:/"), target("misc.max:sgx_epc:/a"))
    assert told[0] == Reached(reached, reached)
    assert isinstance(told[1], Missed)
