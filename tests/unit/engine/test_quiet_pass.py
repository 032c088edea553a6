"""A pass of the sampler over a node where little happens: what is looked at, and that nothing is overlooked for it."""

import pytest

from nodeward.engine.limits import readings
from nodeward.engine.limits.readings import Standing, differs, standing
from nodeward.engine.notices import step as notices
from nodeward.engine.state.limits import Wanted
from nodeward.engine.state.root import State
from nodeward.model import events as ev
from nodeward.model.decision import Decision
from nodeward.model.settings import EngineSettings
from tests.goals import target
from tests.unit.engine.build import EPC, RULE, SECOND, Told, container_spec, pod_spec, started

PODS, LIMIT = 40, 4096
APP = "/kubepods/pod7/7-app"


def node(*, reached: bool = True) -> Told:
    told = Told(State(settings=EngineSettings(limits=RULE, kube_events=True)))
    told(ev.CapacityRead(controller=True, capacity={EPC: 1 << 30}))
    told(ev.ApiBack())
    for number in range(PODS):
        told(ev.PodSeen(pod_spec(str(number), container_spec("app", LIMIT))))
        told(started(str(number), "app"))
    paths = tuple(told.state.limits.wanted)
    if reached:
        told(ev.Reached(tuple(target(f"misc.max:{EPC}:{path}") for path in paths)))
    told(ev.Sampled({path: ev.MiscReading(limit={EPC: LIMIT}) for path in paths}, as_of=told.state.seq))
    return told


def quiet(told: Told, app: ev.MiscReading | None = None) -> Decision:
    """A pass a second later, where only the reading of APP may have changed."""
    told.at_ns += SECOND
    return told(ev.Sampled({} if app is None else {APP: app}, as_of=told.state.seq, rest_same=True))


def shown(told: Told) -> Standing:
    return standing(told.state, APP, told.state.limits.wanted[APP], told.at_ns)


def test_a_pass_compares_only_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    told, compared = node(), list[ev.MiscReading]()

    def counted(state: State, wanted: Wanted, reading: ev.MiscReading) -> tuple[str, ...]:
        compared.append(reading)
        return differs(state, wanted, reading)

    monkeypatch.setattr(readings, "differs", counted)
    monkeypatch.setattr(notices, "differs", counted)
    assert quiet(told) == Decision()
    assert compared == []

    more = ev.MiscReading(limit={EPC: LIMIT}, usage={EPC: 1})
    quiet(told, more)
    assert [one is more for one in compared] == [True, True], "once for its limit and once for its Events"

    quiet(told)
    assert len(compared) == 2


def test_a_limit_that_is_wanted_anew_is_compared_though_the_kernel_says_the_same() -> None:
    told = node()
    told(ev.PodSeen(pod_spec("7", container_spec("app", 2 * LIMIT))))
    told(ev.Reached((target(f"misc.max:{EPC}:{APP}"),)))

    notes = [quiet(told).notes for _ in range(3)]

    assert [(note.code, note.values[-1]) for told in notes for note in told] == [("drift", n) for n in (1, 2, 3)]
    assert shown(told) is Standing.DRIFT


@pytest.mark.parametrize("reached", [True, False])
def test_a_capacity_that_is_lost_is_told_though_the_readings_are_the_same(reached: bool) -> None:
    told = node(reached=reached)
    quiet(told)
    told(ev.CapacityRead(controller=True, capacity={}))

    assert [call.reason.code for call in quiet(told).calls] == ["not-supported"] * PODS
    assert shown(told) is Standing.UNSUPPORTED
