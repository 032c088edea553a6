"""New settings in a running engine: everything is decided anew, and limits of ours are only taken back by a rule."""

from dataclasses import replace

from nodeward.engine.limits.readings import Standing, standing
from nodeward.model import events as ev
from nodeward.model.decision import Decision, Special
from nodeward.model.settings import EngineSettings, LimitsSettings, Mode
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
    return {goal.target: goal.value for goal in decision.goals if goal.perform}


def test_from_observe_to_enforce_every_limit_is_wanted_in_the_kernel() -> None:
    told = given(LimitsSettings(mode=Mode.OBSERVE))
    decision = changed(told, LimitsSettings())

    assert performed(decision)[f"misc.max:{EPC}:{POD}"] == "4096"
    assert performed(decision)[f"misc.max:{EPC}:{APP}"] == "4096"
    assert performed(decision)["subtree:/"] == "+misc"


def test_from_enforce_to_observe_nothing_is_performed_and_the_slots_hear_of_each_goal() -> None:
    told = given(LimitsSettings())
    told(ev.Missed({f"misc.max:{EPC}:{APP}": "gone"}))
    decision = changed(told, LimitsSettings(mode=Mode.OBSERVE))

    assert performed(decision) == {}
    assert f"misc.max:{EPC}:{APP}" in [goal.target for goal in decision.goals]
    assert told.state.limits.misses == {}
    assert standing(told.state, APP, told.state.limits.wanted[APP], told.at_ns) is Standing.UNMANAGED


def test_off_forgets_what_was_wanted_and_on_again_wants_it() -> None:
    told = given(LimitsSettings())
    decision = changed(told, LimitsSettings(mode=Mode.OFF))
    assert f"misc.max:{EPC}:{APP}" in decision.forget
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


def test_settings_of_other_domains_are_kept_with_the_event() -> None:
    told = given(LimitsSettings())
    settings = replace(told.state.settings, pods=replace(told.state.settings.pods, wait_ms=7))
    told(ev.SettingsChanged(settings))

    assert told.state.settings == settings
