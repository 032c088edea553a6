"""New settings in a running engine: everything is decided anew, and limits of ours are only taken back by a rule."""

import pytest

from nodeward.engine.limits.readings import Standing, standing
from nodeward.model import events as ev
from nodeward.model.decision import Decision, Special
from nodeward.model.settings import EngineSettings, LimitsSettings, Mode
from tests.goals import target
from tests.unit.engine.build import EPC, Told, container_spec, node, pod_spec, sandbox, started

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


def test_from_observe_to_enforce_every_limit_is_wanted_in_the_kernel() -> None:
    told = given(LimitsSettings(mode=Mode.OBSERVE))
    decision = changed(told, LimitsSettings())

    assert performed(decision)[f"misc.max:{EPC}:{POD}"] == "4096"
    assert performed(decision)[f"misc.max:{EPC}:{APP}"] == "4096"
    assert performed(decision)["subtree:/"] == "+misc"


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
