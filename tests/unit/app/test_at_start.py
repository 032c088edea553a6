"""Waiting for a cgroup's goals: each has been tried, and nothing else is waited for."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from nodeward.aio.lanes import GivenUpError
from nodeward.app.host.slots import Slots
from nodeward.app.host.undo import UndoList
from nodeward.doubles.kernel import SimKernel
from nodeward.engine.limits.answer import leaves_rest
from nodeward.engine.state.root import State
from nodeward.model.decision import Goal, Reason
from nodeward.model.hierarchy import Hierarchy
from nodeward.model.settings import EngineSettings, LimitsSettings
from tests.goals import slots_of, target
from tests.lanes import InlineLane
from tests.unit.app.test_reload import HandLane
from tests.unit.engine.build import EPC, ManualClock

ROOT = "/sys/fs/cgroup"
HERE, OTHER = "/kubepods/pod1/app", "/kubepods/pod1/other-app"


def goal(path: str, resource: str = EPC) -> Goal:
    return Goal(target(f"misc.max:{resource}:{path}"), "5", Reason("test"))


def slots_on(
    lane: InlineLane | HandLane, later: Callable[[Callable[[], None]], object] = lambda call: call()
) -> tuple[Slots, SimKernel]:
    kernel = SimKernel({EPC: 9, "sev_es": 9})
    kernel.make_cgroup(f"{ROOT}{HERE}")
    return slots_of(lane, kernel, ManualClock(), UndoList(kernel, "/nodeward"), later=later), kernel


def story(tale: Callable[[], object]) -> None:
    async def told() -> None:
        found = tale()
        assert asyncio.iscoroutine(found)
        await found

    asyncio.run(told())


def test_it_ends_when_every_goal_of_the_cgroup_was_tried_also_in_vain() -> None:
    async def tale() -> None:
        lane = InlineLane()
        slots, _ = slots_on(lane)  # the controller is off: each write misses
        slots.set([goal(OTHER)])
        slots.set([goal(HERE), goal(HERE, "sev_es")])
        waits = asyncio.create_task(slots.tried(HERE))
        await asyncio.sleep(0)
        assert not waits.done()
        lane.drain()
        await waits
        assert set(slots.waiting) == {goal(OTHER).target, goal(HERE).target, goal(HERE, "sev_es").target}

    story(tale)


def test_nothing_is_waited_for_where_nothing_is_under_way() -> None:
    async def tale() -> None:
        slots, _ = slots_on(InlineLane())
        slots.set([goal(OTHER)])
        await asyncio.wait_for(slots.tried(HERE), 5.0)

    story(tale)


def test_a_call_that_hangs_and_is_given_up_ends_the_wait_for_it_and_for_what_comes_behind() -> None:
    async def tale() -> None:
        lane = HandLane()
        slots, kernel = slots_on(lane)
        slots.set([goal(OTHER)])
        slots.set([goal(HERE)])
        waits = [asyncio.create_task(slots.tried(path)) for path in (OTHER, HERE)]
        await asyncio.sleep(0)
        job, done, _ = lane.jobs.pop()
        kernel.make_cgroup(f"{ROOT}{OTHER}")
        job()
        done(GivenUpError("too late"))
        await asyncio.sleep(0)
        assert [one.done() for one in waits] == [True, False]
        job, done, _ = lane.jobs.pop()
        job()
        done(ValueError("no matter"))
        await asyncio.wait_for(waits[1], 5.0)

    story(tale)


def test_goals_are_gathered_before_the_lane_begins() -> None:
    lane, gathered = HandLane(), list[Callable[[], None]]()
    slots, _ = slots_on(lane, gathered.append)
    slots.set([goal(HERE), goal(OTHER)])
    slots.set([replace(goal(HERE), value="7")], forget=[goal(OTHER).target])
    assert (len(gathered), lane.jobs, slots.waiting) == (1, [], (goal(HERE).target,))
    gathered.pop()()
    ((job, done, _),) = lane.jobs
    slots.set([goal(OTHER)])
    assert (len(gathered), len(lane.jobs)) == (1, 1)
    job()
    done(OSError("no matter"))
    assert len(lane.jobs) == 1  # what came meanwhile is gathered too
    gathered.pop()()
    assert len(lane.jobs) == 2


async def waiting_behind_a_batch(
    lane: HandLane, gathered: list[Callable[[], None]]
) -> tuple[Slots, asyncio.Task[None]]:
    """A batch is under way; a goal came meanwhile, and somebody waits for it."""
    slots, _ = slots_on(lane, gathered.append)
    slots.set([goal(OTHER)])
    slots.begin()
    slots.set([goal(HERE)])
    waits = asyncio.create_task(slots.tried(HERE))
    await asyncio.sleep(0)
    return slots, waits


def test_who_waits_behind_a_batch_is_not_held_up_by_what_is_gathered() -> None:
    async def tale() -> None:
        lane, gathered = HandLane(), list[Callable[[], None]]()
        slots, waits = await waiting_behind_a_batch(lane, gathered)
        (_, done, _) = lane.jobs.pop()
        done(OSError("no matter"))
        assert len(lane.jobs) == 1
        slots.set([goal(OTHER)], forget=[goal(HERE).target])
        (_, done, _) = lane.jobs.pop()
        done(OSError("no matter"))
        await asyncio.wait_for(waits, 5.0)

    story(tale)


def test_who_waits_for_a_goal_that_is_forgotten_before_it_began_waits_no_longer() -> None:
    async def tale() -> None:
        lane, gathered = HandLane(), list[Callable[[], None]]()
        slots, waits = await waiting_behind_a_batch(lane, gathered)
        slots.set([], forget=[goal(HERE).target])
        gathered.pop()()
        await asyncio.wait_for(waits, 5.0)

    story(tale)


def test_who_waits_for_goals_has_them_begun_at_once() -> None:
    async def tale() -> None:
        lane = InlineLane()
        slots, _ = slots_on(lane, lambda _: None)
        slots.set([goal(HERE)])
        waits = asyncio.create_task(slots.tried(HERE))
        await asyncio.sleep(0)
        lane.drain()
        await asyncio.wait_for(waits, 5.0)

    story(tale)


TWO = LimitsSettings(resources={"a": EPC, "b": "sev_es"})


@pytest.mark.parametrize(
    ("version", "multi_line", "rule", "capacity", "leaves"),
    [
        pytest.param(2, False, LimitsSettings(), {EPC: 9, "sev_es": 9}, False, id="one resource"),
        pytest.param(2, False, TWO, {EPC: 9, "sev_es": 9}, True, id="two resources"),
        pytest.param(2, False, TWO, {EPC: 9, "sev_es": 0}, False, id="two, and the kernel has one"),
        pytest.param(2, False, replace(TWO, resources={"a": EPC, "b": EPC}), {EPC: 9}, False, id="two names of one"),
        pytest.param(2, True, TWO, {EPC: 9, "sev_es": 9}, False, id="a runtime that takes both"),
        pytest.param(1, True, LimitsSettings(), {EPC: 9}, True, id="cgroup v1"),
        pytest.param(2, False, TWO, None, True, id="nothing is known of the kernel"),
    ],
)
def test_when_a_create_leaves_something(
    version: int, multi_line: bool, rule: LimitsSettings, capacity: dict[str, int] | None, leaves: bool
) -> None:
    state = State(settings=EngineSettings(limits=rule))
    limits = replace(state.limits, controller=capacity is not None, capacity=capacity or {})
    limits = replace(limits, tree=Hierarchy(version))

    assert leaves_rest(replace(state, limits=limits, pods=replace(state.pods, multi_line=multi_line))) is leaves
