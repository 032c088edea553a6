"""What a reading means, by when its pass began and when the goal was reached; and what is taken back."""

import pytest

from nodeward.aio.lanes import InlineLane
from nodeward.app.goals import Slots
from nodeward.app.undo import UndoList
from nodeward.edges.cgroups.hierarchy import Tree
from nodeward.engine.limits.readings import standing
from nodeward.model import events as ev
from nodeward.model.decision import Adjustment, Decision, Final, Special
from nodeward.model.workload import PodUid
from nodeward.sim.kernel import SimKernel
from tests.unit.engine.build import (
    EPC,
    SECOND,
    ManualClock,
    Told,
    container,
    container_spec,
    creating,
    node,
    pod_spec,
    sandbox,
    started,
)

PATH = "/kubepods/podA/A-app"
LIMIT = f"misc.max:{EPC}:{PATH}"
FILES = "/sys/fs/cgroup"
OLD = {"epc-limit.nri.io": "7"}


def running(epc: int | None = 5) -> Told:
    """A node on which pod A runs, and its limit is decided."""
    told = node()
    told(ev.PodSeen(pod_spec("A", container_spec("app", epc))))
    told(started("A", "app"))
    return told


def sample(told: Told, limit: int | None, as_of: int | None = None) -> Decision:
    told.at_ns += SECOND
    reading = ev.MiscReading(limit={} if limit is None else {EPC: limit})
    return told(ev.Sampled({PATH: reading}, as_of=told.state.seq if as_of is None else as_of))


def state(told: Told) -> str:
    return standing(told.state, PATH, told.state.limits.wanted[PATH], told.at_ns).value


def test_a_cgroup_never_read_is_pending_and_one_read_long_ago_is_stale() -> None:
    told = running()
    assert state(told) == "pending"
    told(ev.Reached((LIMIT,)))
    sample(told, 5)
    assert state(told) == "enforced"
    told.at_ns += 10 * SECOND
    assert state(told) == "stale"


def test_a_pass_that_began_before_the_goal_was_reached_is_no_drift_and_spends_no_repair() -> None:
    told = running()
    began = told.state.seq
    told(ev.Reached((LIMIT,)))

    decision = sample(told, None, as_of=began)

    assert (decision.goals, decision.notes, told.state.limits.repairs_ns) == ((), (), {})
    assert state(told) == "pending"
    assert [note.code for note in sample(told, None).notes] == ["drift"]
    assert state(told) == "drift"


def test_a_goal_on_its_way_is_no_drift() -> None:
    told = running()

    assert sample(told, None).notes == ()
    assert state(told) == "pending"


def test_a_changed_want_is_no_drift_until_it_is_reached_anew() -> None:
    told = running()
    told(ev.Reached((LIMIT,)))
    told(ev.PodSeen(pod_spec("A", container_spec("app", 6))))

    assert sample(told, 5).notes == ()
    told(ev.Reached((LIMIT,)))
    assert [note.code for note in sample(told, 5).notes] == ["drift"]


def test_a_goal_that_was_missed_is_repaired_as_drift() -> None:
    told = running()
    told(ev.Missed({LIMIT: "busy"}))

    assert [note.code for note in sample(told, None).notes] == ["drift"]
    assert state(told) == "drift"


def test_after_a_change_of_capacity_everything_is_to_be_reached_anew() -> None:
    told = running()
    told(ev.Reached((LIMIT,)))
    told(ev.CapacityRead(controller=True, capacity={EPC: 1 << 20}))

    assert sample(told, None).notes == ()


def test_a_goal_to_take_back_is_forgotten_with_its_cgroup() -> None:
    told = running()
    taken = told(ev.PodSeen(pod_spec("A", container_spec("app"))))
    assert Special.ABSENT in [goal.value for goal in taken.goals]

    decision = told(ev.Stopped(sandbox("A"), container("A", "app")))

    assert LIMIT in decision.forget
    assert f"misc.max:{EPC}:/kubepods/podA" in told(ev.PodGone(PodUid("A"))).forget


def test_a_goal_to_take_back_of_a_vanished_cgroup_ends_with_it() -> None:
    """The slots keep nothing either (a shrunk history of the state machine, seed 6)."""
    kernel, clock, lane = SimKernel({EPC: 1000}), ManualClock(), InlineLane()
    kernel.make_cgroup(FILES + PATH)
    kernel.mkdir("/var/lib/nodeward")
    slots = Slots(lane, kernel, Tree(kernel, FILES), UndoList(kernel, "/var/lib/nodeward"), clock)
    told = running()
    slots.set(told(ev.PodSeen(pod_spec("A", container_spec("app")))).goals)
    kernel.rmdir(FILES + PATH)
    slots.set((), told(ev.Stopped(sandbox("A"), container("A", "app"))).forget)
    lane.drain()

    assert [target for target in slots._slots if target.endswith(PATH)] == []


@pytest.mark.parametrize("known_before", ["the create has ended", "the container runs", "it was read"])
def test_a_limit_given_by_an_annotation_is_taken_back_when_the_spec_declares_none(known_before: str) -> None:
    told = node()
    told(ev.ApiLost("away"))
    answer = told(creating("A", "app", annotations=OLD)).answer
    assert isinstance(answer, Final)
    assert answer.value == Adjustment({"misc.max": "sgx_epc 7"})
    spec = ev.PodSeen(pod_spec("A", container_spec("app")))
    if known_before == "the create has ended":
        told(spec)
        goals = told(started("A", "app", annotations=OLD)).goals
    else:
        told(started("A", "app", annotations=OLD))
        if known_before == "it was read":
            told(ev.Reached((LIMIT,)))
            sample(told, 7)
        goals = told(spec).goals

    kernel = SimKernel({EPC: 1000})
    kernel.make_cgroup(FILES + PATH)
    for above in ("", "/kubepods", "/kubepods/podA"):
        kernel.write(f"{FILES}{above}/cgroup.subtree_control", b"+misc")
    kernel.mkdir("/var/lib/nodeward")
    kernel.write(f"{FILES}{PATH}/misc.max", b"sgx_epc 7")
    lane = InlineLane()
    slots = Slots(lane, kernel, Tree(kernel, FILES), UndoList(kernel, "/var/lib/nodeward"), ManualClock())
    slots.set(goals)
    lane.drain()
    assert kernel.read(f"{FILES}{PATH}/misc.max", 99) == b"sgx_epc max\n"


def test_what_was_taken_back_is_left_to_others_from_then_on() -> None:
    told = node()
    told(ev.ApiLost("away"))
    told(creating("A", "app", annotations=OLD))
    told(ev.PodSeen(pod_spec("A", container_spec("app"))))
    told(started("A", "app", annotations=OLD))
    told(ev.Reached((LIMIT,)))

    again = told(ev.Updated(sandbox("A", OLD), container("A", "app")))

    assert [goal.target for goal in again.goals if goal.value is Special.ABSENT] == []


def test_what_was_answered_is_forgotten_with_a_create_that_fails() -> None:
    told = node()
    told(ev.PodSeen(pod_spec("A", container_spec("app", 5))))
    told(creating("A", "app"))
    assert told.state.limits.answered == {"A-app": (EPC,)}
    told(ev.CreateFailed(container("A", "app").id))
    assert told.state.limits.answered == {}
    told(creating("A", "app"))
    told(started("A", "app"))
    assert told.state.limits.answered == {}
