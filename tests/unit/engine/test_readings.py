"""What a reading means, what is taken back, and what newer settings change of it."""

from dataclasses import replace

import pytest

from nodeward.engine.limits.readings import Standing, standing
from nodeward.engine.show.explain import explain
from nodeward.engine.show.view import node_view
from nodeward.model import events as ev
from nodeward.model.decision import Decision, Special
from nodeward.model.hierarchy import Hierarchy
from nodeward.model.settings import EngineSettings, LimitsSettings, Mode
from nodeward.model.workload import Phase, PodUid
from tests.goals import target
from tests.unit.engine.build import (
    EPC,
    SECOND,
    Told,
    adjusted,
    container,
    container_spec,
    creating,
    known,
    node,
    pod_spec,
    running,
    sandbox,
    started,
)

PATH = "/kubepods/podA/A-app"
LIMIT = target(f"misc.max:{EPC}:{PATH}")
FILES = "/sys/fs/cgroup"
OLD = {"epc-limit.nri.io": "7"}


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


def test_a_changed_want_is_no_drift_until_it_is_reached_anew() -> None:
    told = running()
    told(ev.Reached((LIMIT,)))
    told(ev.PodSeen(pod_spec("A", container_spec("app", 6))))

    assert sample(told, 5).notes == ()
    told(ev.Reached((LIMIT,)))
    assert [note.code for note in sample(told, 5).notes] == ["drift"]


def test_a_goal_that_was_missed_is_repaired_as_drift() -> None:
    told = running()
    told(ev.Missed(((LIMIT, "busy"),)))

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
    assert target(f"misc.max:{EPC}:/kubepods/podA") in told(ev.PodGone(PodUid("A"))).forget


def taken_back(mode: Mode = Mode.ENFORCE) -> Told:
    """A node on which the runtime was told to limit A's container, of which nothing is wanted any more."""
    told = node()
    told(ev.ApiLost("away"))
    told(creating("A", "app", annotations=OLD))
    told(ev.PodSeen(pod_spec("A", container_spec("app"))))
    told(started("A", "app", annotations=OLD))
    told(ev.Reached((LIMIT,)))
    if mode is not Mode.ENFORCE:
        told(ev.SettingsChanged(EngineSettings(limits=LimitsSettings(mode=mode))))
    return told


def updated(told: Told, recorded: dict[str, int] | None = None) -> str:
    """The answer to an update of A's container, as it is to be written."""
    asked = ev.Updating(sandbox("A", OLD), replace(container("A", "app"), recorded=recorded or {}), ask_id=7)
    return adjusted(told(asked)).unified.get("misc.max", "")


def test_an_update_says_for_as_long_as_the_container_lives_what_was_taken_back() -> None:
    """Or the runtime writes again what it remembers."""
    told = taken_back()
    assert [updated(told) for _ in range(2)] == [f"{EPC} max"] * 2
    told(ev.SettingsChanged(EngineSettings(limits=LimitsSettings(strict=True))))
    assert updated(told) == f"{EPC} 0"
    told(ev.SettingsChanged(EngineSettings()))
    assert updated(told) == f"{EPC} max"
    told(ev.CapacityRead(controller=True, capacity={}))
    assert updated(told) == "", "the kernel has lost it"


def test_what_an_update_gave_is_taken_back_too_and_nothing_is_said_of_what_nobody_gave() -> None:
    told = running(5)
    assert updated(told) == f"{EPC} 5"
    told(ev.PodSeen(pod_spec("A", container_spec("app"))))
    told(ev.Reached((LIMIT,)))
    assert updated(told) == f"{EPC} max"

    told = running(None)
    assert updated(told) == ""
    told(ev.Reached((LIMIT,)))
    assert (sample(told, 0).goals, state(told)) == ((), "unmanaged"), "it is left to whoever wrote it"

    told = taken_back(Mode.OBSERVE)
    assert (sample(told, 0).goals, state(told), updated(told)) == ((), "unmanaged", "")


def test_where_one_line_is_all_it_says_what_is_wanted() -> None:
    told = taken_back()
    told(ev.SettingsChanged(EngineSettings(limits=LimitsSettings(resources={"a": EPC, "b": "keys"}))))
    told(ev.CapacityRead(controller=True, capacity={EPC: 100, "keys": 100}))
    told(ev.PodSeen(pod_spec("A", replace(container_spec("app"), declared={"keys": 1}))))
    assert updated(told) == "keys 1"
    told(ev.RuntimeConnected("containerd", "2.4", multi_line=True))
    assert updated(told) == f"keys 1\n{EPC} max"


def test_a_limit_that_was_taken_back_and_comes_back_is_drift() -> None:
    told = taken_back()
    assert (sample(told, None).notes, state(told)) == ((), "unmanaged")

    decision = sample(told, 0)

    assert state(told) == "drift"
    assert [note.code for note in decision.notes] == ["drift"]
    assert [(goal.target, goal.value, goal.ours) for goal in decision.goals] == [(LIMIT, Special.ABSENT, True)]
    sample(told, None)
    assert state(told) == "unmanaged"


@pytest.mark.parametrize(
    ("recorded", "ours"),
    [
        pytest.param({EPC: 0}, True, id="a denial"),
        pytest.param({EPC: 7}, True, id="what the annotation asks for"),
        pytest.param({EPC: 8}, False, id="another amount"),
        pytest.param({"keys": 0}, False, id="a resource the settings do not name"),
        pytest.param({}, False, id="nothing"),
    ],
)
@pytest.mark.parametrize("spec_first", [True, False])
def test_what_a_daemon_before_gave_is_known_by_the_runtimes_record(
    recorded: dict[str, int], ours: bool, spec_first: bool
) -> None:
    """It is taken back once the spec says that nothing is wanted, and not before."""
    told = node()
    there = replace(container("A", "app"), phase=Phase.RUNNING, recorded=recorded)
    events: list[ev.Event] = [
        ev.Listed((sandbox("A", OLD),), (there,), 1),
        ev.PodSeen(pod_spec("A", container_spec("app"))),
    ]
    absent = [
        [goal.target for goal in told(event).goals if goal.value is Special.ABSENT and goal.ours]
        for event in (reversed(events) if spec_first else events)
    ]

    assert absent == [[], [LIMIT] if ours else []]
    if spec_first:  # else the annotation's limit has been written meanwhile, and is ours to take back
        assert updated(told, recorded) == (f"{EPC} max" if ours else "")


def test_a_denial_of_a_daemon_before_stays_while_the_spec_is_not_known() -> None:
    told = node()
    there = replace(container("A", "app"), phase=Phase.RUNNING, recorded={EPC: 0})
    goals = told(ev.Listed((sandbox("A"),), (there,), 1)).goals
    assert [goal for goal in goals if goal.value is Special.ABSENT] == []
    told(ev.PodSeen(pod_spec("A", container_spec("app"), container_spec("db", 5))))
    assert told.state.limits.wanted[PATH].values == {EPC: 0}


def test_what_was_answered_is_forgotten_with_a_create_that_fails() -> None:
    told = known()
    told(creating("A", "app"))
    assert told.state.limits.answered == {"A-app": (EPC,)}
    told(ev.CreateFailed(container("A", "app").id))
    assert told.state.limits.answered == {}
    told(creating("A", "app"))
    told(started("A", "app"))
    assert told.state.limits.answered == {}


POD, APP = "/kubepods/podu", "/kubepods/podu/u-app"


def given(limits: LimitsSettings) -> Told:
    """A node with one pod whose container runs."""
    told = node(limits)
    told(ev.PodSeen(pod_spec("u", container_spec("app", 4096))))
    told(ev.SandboxStarted(sandbox("u")))
    told(started("u", "app"))
    return told


def changed(told: Told, limits: LimitsSettings) -> Decision:
    return told(ev.SettingsChanged(EngineSettings(limits=limits)))


def performed(decision: Decision) -> dict[str, object]:
    return {str(goal.target): goal.value for goal in decision.goals if goal.perform}


def test_from_enforce_to_observe_nothing_is_performed_and_the_slots_hear_of_each_goal() -> None:
    told = given(LimitsSettings())
    told(ev.Missed(((target(f"misc.max:{EPC}:{APP}"), "gone"),)))
    decision = changed(told, LimitsSettings(mode=Mode.OBSERVE))

    assert performed(decision) == {}
    assert f"misc.max:{EPC}:{APP}" in [str(goal.target) for goal in decision.goals]
    assert told.state.limits.misses == {}
    assert standing(told.state, APP, told.state.limits.wanted[APP], told.at_ns) is Standing.UNMANAGED


def test_off_forgets_what_was_wanted_and_on_again_wants_it() -> None:
    told = given(LimitsSettings())
    decision = changed(told, LimitsSettings(mode=Mode.OFF))
    assert target(f"misc.max:{EPC}:{APP}") in decision.forget
    assert told.state.limits.wanted == {}

    told(ev.CapacityRead(controller=True, capacity={EPC: 1 << 20}))  # the kernel's capacity changes meanwhile
    assert performed(changed(told, LimitsSettings()))[f"misc.max:{EPC}:{APP}"] == "4096"
    assert told.state.limits.capacity == {EPC: 1 << 20}


def test_strict_denies_running_containers_that_declare_nothing_and_gives_it_back() -> None:
    told = node()
    told(ev.PodSeen(pod_spec("u", container_spec("app"))))
    told(ev.SandboxStarted(sandbox("u")))
    told(started("u", "app"))

    assert performed(changed(told, LimitsSettings(strict=True)))[f"misc.max:{EPC}:{APP}"] == "0"
    assert performed(changed(told, LimitsSettings()))[f"misc.max:{EPC}:{APP}"] is Special.ABSENT


@pytest.mark.parametrize(
    "by_way_of",
    [
        pytest.param([Mode.OFF], id="off"),
        pytest.param([Mode.OBSERVE], id="observe"),
        pytest.param([Mode.OBSERVE, Mode.OFF], id="observe-and-off"),
        pytest.param([Mode.OFF, Mode.OBSERVE], id="off-and-observe"),
    ],
)
def test_a_denial_of_ours_does_not_outlive_the_rule_that_asked_for_it(by_way_of: list[Mode]) -> None:
    told = node(LimitsSettings(strict=True))
    told(ev.PodSeen(pod_spec("u", container_spec("app"))))
    told(ev.SandboxStarted(sandbox("u")))
    told(started("u", "app"))
    for mode in by_way_of:
        changed(told, LimitsSettings(mode=mode, strict=True))
        assert performed(changed(told, LimitsSettings(mode=mode))) == {}

    goals = changed(told, LimitsSettings()).goals

    assert {str(goal.target): goal.value for goal in goals if goal.perform and goal.value is Special.ABSENT} == {
        f"misc.max:{EPC}:{POD}": Special.ABSENT,
        f"misc.max:{EPC}:{APP}": Special.ABSENT,
    }
    if Mode.OFF in by_way_of:  # the slots have forgotten that they wrote it
        assert all(goal.ours for goal in goals if goal.value is Special.ABSENT)
    assert told.state.limits.left == {}


def test_after_off_nothing_is_taken_back_that_was_never_ours() -> None:
    told = node(LimitsSettings())
    told(ev.PodSeen(pod_spec("u", container_spec("app"))))
    told(started("u", "app"))
    changed(told, LimitsSettings(mode=Mode.OFF))

    assert not [goal for goal in changed(told, LimitsSettings()).goals if goal.value is Special.ABSENT]


V1 = Hierarchy(1, "/sys/fs/cgroup/misc", "/sys/fs/cgroup/pids")


def test_where_misc_is_cgroup_v1_limits_are_written_directly_and_the_runtime_is_told_nothing_it_would_refuse() -> None:
    told = running()
    decision = told(ev.CapacityRead(controller=True, capacity={EPC: 1 << 30}, tree=V1))

    assert [(str(goal.target), goal.value) for goal in decision.goals] == [
        (f"misc.max:{EPC}:/kubepods/podA", "5"),
        (f"misc.max:{EPC}:{PATH}", "5"),
    ]
    assert adjusted(told(creating("A", "app"))).unified == {}
    assert updated(told) == ""
    told(ev.CapacityRead(controller=True, capacity={EPC: 1 << 30}))
    assert adjusted(told(creating("A", "app"))).unified == {"misc.max": f"{EPC} 5"}


@pytest.mark.parametrize(
    ("reading", "shown"),
    [
        (ev.MiscReading(limit={EPC: 5}, outside=True), "outside"),
        (ev.MiscReading(limit={EPC: 5}), "enforced"),
        (ev.MiscReading(limit={EPC: 1}, outside=True), "drift"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_limit_that_holds_no_process_is_not_called_enforced(reading: ev.MiscReading, shown: str) -> None:
    told = running()
    told(ev.CapacityRead(controller=True, capacity={EPC: 1 << 30}, tree=V1))
    told(ev.Reached((LIMIT,)))
    told(ev.Sampled({PATH: reading}, as_of=told.state.seq))

    assert state(told) == shown
    lines = explain(node_view(told.state, told.at_ns, {}), "shop/pod-A/app") or []
    assert "misc is mounted as cgroup v1 at /sys/fs/cgroup/misc" in lines[-1]
    assert any("its runtime does not join it" in line for line in lines) == (shown == "outside")
