"""What simulated histories have found in the product, each as a small story of its own."""

from dataclasses import replace

import pytest

from nodeward.core import events as ev
from nodeward.core.decision import Goal, Special, Target
from nodeward.core.workload import Phase, PodUid
from nodeward.features.all import ENGINE
from nodeward.features.limits.settings import LimitsSettings, UnknownPod
from nodeward.features.pods.wiring import NoFacts
from nodeward.features.root import State
from nodeward.host.runner import Core
from nodeward_sim.doubles.kernel import SimKernel
from tests.goals import slots_of
from tests.lanes import InlineLane
from tests.unit.features import build
from tests.unit.simulated.virtual import VirtualClock, VirtualLoop

ROOT = "/sys/fs/cgroup"


def goals_for(told: build.Told, event: ev.Event, path: str) -> list[Goal]:
    return [goal for goal in told(event).goals if goal.target.where == path]


@pytest.mark.parametrize("listed", [False, True], ids=["created", "listed before it ran"])
def test_what_an_unknown_pod_was_given_is_taken_back_when_its_spec_comes_before_its_start(listed: bool) -> None:
    told = build.node(LimitsSettings(unknown_pod=UnknownPod.ZERO))
    if listed:
        told(ev.Listed((build.sandbox("A"),), (build.container("A", "app"),), as_of=told.state.seq))
    else:
        for event in (
            ev.ApiLost("away"),
            build.creating("A", "app"),
            ev.Created(build.sandbox("A"), build.container("A", "app")),
        ):
            told(event)
    told(ev.PodSeen(build.pod_spec("A", build.container_spec("app"))))

    goals = goals_for(told, build.started("A", "app"), "/kubepods/podA/A-app")

    assert [(goal.value, goal.ours) for goal in goals] == [(Special.ABSENT, not listed)]
    assert told.state.limits.answered == {}


def test_a_container_that_is_first_heard_of_by_an_update_gets_its_limit() -> None:
    told = build.known(4)
    running = replace(build.container("A", "app"), phase=Phase.RUNNING)

    goals = goals_for(told, ev.Updating(build.sandbox("A"), running, ask_id=1), "/kubepods/podA/A-app")

    assert [goal.value for goal in goals] == ["4"]


@pytest.mark.parametrize("first", ["spec", "reading"])
def test_a_limit_reaches_a_container_of_whose_start_nobody_told(first: str) -> None:
    told = build.node()
    path = "/kubepods/podA/A-app"
    told(ev.Listed((build.sandbox("A"),), (build.container("A", "app"),), as_of=told.state.seq))
    events: list[ev.Event] = [
        ev.PodSeen(build.pod_spec("A", build.container_spec("app", 4))),
        ev.Sampled({path: ev.MiscReading()}, as_of=told.state.seq),
    ]

    goals = [goal for event in (events if first == "spec" else events[::-1]) for goal in goals_for(told, event, path)]

    assert [goal.value for goal in goals] == ["4"]


@pytest.mark.parametrize("told_by", ["start", "list"])
def test_a_container_that_was_taken_for_another_pods_moves(told_by: str) -> None:
    told = build.node()
    told(ev.Started(build.sandbox("A"), build.container("A", "app")))
    moved = replace(build.container("A", "app"), sandbox_id=build.sandbox("B").id)

    if told_by == "start":
        told(ev.Started(build.sandbox("B"), moved))
    else:
        told(ev.Listed((build.sandbox("A"), build.sandbox("B")), (moved,), as_of=told.state.seq))

    assert told.state.pods.by_pod == {PodUid("B"): (moved.id,)}
    assert told(ev.Removed(build.sandbox("B").id, moved.id)).faults == ()
    assert told.state.pods.by_pod == {}


def test_a_pod_that_ends_with_its_last_container_leaves_no_slot() -> None:
    told = build.running(4)
    told(ev.PodGone(PodUid("A")))

    ended = told(ev.Removed(build.sandbox("A").id, build.container("A", "app").id))

    assert Target("misc.max", "/kubepods/podA", build.EPC) in ended.forget
    assert told.state.limits.wanted == {}


def test_a_pass_repairs_nothing_of_a_pod_that_ends_with_it() -> None:
    told = build.known(4)
    told(ev.SandboxStarted(build.sandbox("A")))
    drifted = {"/kubepods/podA": ev.MiscReading(limit={})}

    ended = told(ev.Sampled(drifted, as_of=99, gone=("/kubepods/podA",)))

    assert ended.forget
    assert [goal.target for goal in ended.goals if goal.target in ended.forget] == []


def test_a_pod_whose_cgroups_are_all_gone_is_gone() -> None:
    told = build.running(4)
    paths = ("/kubepods/podA", "/kubepods/podA/A-app")

    told(ev.Sampled({}, as_of=told.state.seq, gone=paths[:1]))
    assert told.state.pods.containers, "its container is still there"
    told(ev.Sampled({}, as_of=told.state.seq, gone=paths))

    assert (told.state.pods.containers, told.state.pods.sandboxes, told.state.limits.wanted) == ({}, {}, {})


def test_a_machine_that_slept_tries_again_within_a_second() -> None:
    loop = VirtualLoop()
    clock = VirtualClock(loop)

    async def story() -> int:
        kernel, lane = SimKernel({build.EPC: 9}), InlineLane()
        slots = slots_of(lane, kernel, clock)
        core = Core(State(), ENGINE, clock, slots, NoFacts(), _no_commit)
        core.tell(ev.CapacityRead(controller=True, capacity={build.EPC: 9}))
        core.ask(ev.Creating(build.sandbox("B"), build.container("B", "app")), build.SECOND)  # for two minutes
        clock.slept_ns += 3600 * build.SECOND
        core.tell(ev.SandboxStarted(build.sandbox("A")))
        lane.drain()  # nothing is there yet
        kernel.make_cgroup(f"{ROOT}/kubepods/podA")
        for _ in range(3):
            await clock.sleep(1.1)
            lane.drain()
        core.close()
        return slots.unreached

    try:
        assert loop.run_until_complete(story()) == 0
    finally:
        loop.close()


async def _no_commit(text: str) -> str:
    return text
