"""Goals on a lane and at edges: each is tried, the newest reaches who performs it, and who waits waits for no more."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from nodeward.core.cgroup import Hierarchy
from nodeward.core.decision import Goal, Special
from nodeward.core.events import Event, Missed, Reached
from nodeward.core.refusal import Reason
from nodeward.features.limits.answer import leaves_rest
from nodeward.features.limits.settings import LimitsSettings
from nodeward.features.root import State
from nodeward.features.settings import EngineSettings
from nodeward.host.clock import SystemClock
from nodeward.host.lanes import GivenUpError
from nodeward.host.slots import ByEdge, Slots, UnknownKindError
from nodeward.host.undo import UndoList
from nodeward_sim.doubles.kernel import SimKernel
from tests.goals import slots_of, target
from tests.lanes import Done, Ended, InlineLane, T
from tests.unit.features.build import EPC, ManualClock

ROOT = "/sys/fs/cgroup"
HERE, OTHER = "/kubepods/pod1/app", "/kubepods/pod1/other-app"


class HandLane:
    """Jobs run when the test says so, and can be given up meanwhile."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], object], Callable[[BaseException], None], Callable[[], None]]] = []

    def submit(self, name: str, job: Callable[[], T], done: Done[T], ended: Ended = None) -> bool:
        assert ended is not None
        self.jobs.append((job, done, ended))
        return True


def goal(path: str, resource: str = EPC) -> Goal:
    return Goal(target(f"misc.max:{resource}:{path}"), "5", Reason("test"))


def slots_on(
    lane: InlineLane | HandLane, later: Callable[[Callable[[], None]], object] = lambda call: call()
) -> tuple[Slots, SimKernel]:
    kernel = SimKernel({EPC: 9, "sev_es": 9})
    kernel.make_cgroup(f"{ROOT}{HERE}")
    return slots_of(lane, kernel, ManualClock(), UndoList(kernel, "/nodeward"), later=later), kernel


async def test_a_call_that_hangs_and_is_given_up_ends_the_wait_for_it_and_for_what_comes_behind() -> None:
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


async def waits_behind_a_batch(lane: HandLane, gathered: list[Callable[[], None]]) -> tuple[Slots, asyncio.Task[None]]:
    """A batch is under way; a goal came meanwhile, and somebody waits for it."""
    slots, _ = slots_on(lane, gathered.append)
    slots.set([goal(OTHER)])
    slots.begin()
    slots.set([goal(HERE)])
    waits = asyncio.create_task(slots.tried(HERE))
    await asyncio.sleep(0)
    return slots, waits


async def test_who_waits_behind_a_batch_is_not_held_up_by_what_is_gathered() -> None:
    lane, gathered = HandLane(), list[Callable[[], None]]()
    slots, waits = await waits_behind_a_batch(lane, gathered)
    (_, done, _) = lane.jobs.pop()
    done(OSError("no matter"))
    assert len(lane.jobs) == 1
    slots.set([goal(OTHER)], forget=[goal(HERE).target])
    (_, done, _) = lane.jobs.pop()
    done(OSError("no matter"))
    await asyncio.wait_for(waits, 5.0)


async def test_who_waits_for_a_goal_that_is_forgotten_before_it_began_waits_no_longer() -> None:
    lane, gathered = HandLane(), list[Callable[[], None]]()
    slots, waits = await waits_behind_a_batch(lane, gathered)
    slots.set([], forget=[goal(HERE).target])
    gathered.pop()()
    await asyncio.wait_for(waits, 5.0)


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


def told_by(slots: Slots) -> list[Event]:
    told = list[Event]()

    def tell(event: Event) -> int:
        told.append(event)
        return len(told)

    slots.connect(tell, lambda: None)
    return told


def test_each_kind_goes_to_who_performs_it_and_outcomes_come_back() -> None:
    kernel, lane = SimKernel({"sgx_epc": 1 << 20}), InlineLane()
    slots = slots_of(lane, kernel, SystemClock())
    offers, told = slots.by_edge["offer"], told_by(slots)
    offered, limit = target("offer:a"), target("misc.max:sgx_epc:/none")
    slots.set([Goal(offered, "1", WHY), Goal(limit, "4096", WHY)], [target("offer:b")])
    assert (offers.targets(), slots.targets) == (("a",), (limit,))
    lane.drain()
    offers.reached("a")
    offers.missed("a", "kubelet is away")
    assert isinstance(told[0], Missed)  # there is no such cgroup
    assert told[1:] == [Reached((offered,), (offered,)), Missed(((offered, "kubelet is away"),))]


def test_a_program_whose_feature_gives_goals_that_nobody_performs_does_not_start() -> None:
    slots = slots_of(InlineLane(), SimKernel({}), SystemClock())
    slots.require("limits", ("misc.max", "offer"))
    with pytest.raises(UnknownKindError, match=r"feature cpus: nobody performs goals of kind 'cpuset'; there are"):
        slots.require("cpus", ("misc.max", "cpuset"))


def test_a_goal_for_many_places_is_reached_in_each_by_itself() -> None:
    kernel, lane = SimKernel({"sgx_epc": 1 << 20}), InlineLane()
    kernel.make_cgroup("/sys/fs/cgroup/a")
    slots = slots_of(lane, kernel, SystemClock())
    told = told_by(slots)
    slots.set([Goal(target("subtree:/"), "+misc", WHY), Goal(target("misc.max:sgx_epc:/a"), "4096", WHY, also=("/b",))])
    lane.drain()
    assert kernel.read("/sys/fs/cgroup/a/misc.max", 99) == b"sgx_epc 4096\n"
    assert slots.waiting == (target("misc.max:sgx_epc:/b"),)
    reached = (target("subtree:/"), target("misc.max:sgx_epc:/a"))
    assert told[0] == Reached(reached, reached)
    assert isinstance(told[1], Missed)
