"""A pass of the sampler over a node where little happens: what is looked at, and that nothing is overlooked for it."""

from dataclasses import replace

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


@pytest.fixture
def node() -> Told:
    return node_with({EPC: 1 << 30})


def node_with(capacity: dict[str, int], *, reached: bool = True) -> Told:
    """Forty pods whose limits hold, as a first pass has seen."""
    told = Told(State(settings=EngineSettings(limits=RULE, kube_events=True)))
    told(ev.CapacityRead(controller=True, capacity=capacity))
    told(ev.ApiBack())
    for number in range(PODS):
        told(ev.PodSeen(pod_spec(str(number), container_spec("app", LIMIT))))
        told(started(str(number), "app"))
    paths = tuple(told.state.limits.wanted)
    if reached:
        told(ev.Reached(tuple(target(f"misc.max:{EPC}:{path}") for path in paths)))
    told(ev.Sampled({path: ev.MiscReading(limit={EPC: LIMIT}) for path in paths}, as_of=told.state.seq))
    return told


def quiet(told: Told, *unread: str, **changed: ev.MiscReading) -> Decision:
    """A pass a second later, where only the reading of APP may have changed."""
    told.at_ns += SECOND
    found = {APP: changed["app"]} if changed else {}
    return told(ev.Sampled(found, as_of=told.state.seq, rest_same=True, unread=unread))


def shown(told: Told, path: str) -> Standing:
    return standing(told.state, path, told.state.limits.wanted[path], told.at_ns)


def test_a_pass_compares_only_what_changed(node: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[ev.MiscReading] = []

    def counted(state: State, wanted: Wanted, reading: ev.MiscReading) -> tuple[str, ...]:
        compared.append(reading)
        return differs(state, wanted, reading)

    monkeypatch.setattr(readings, "differs", counted)
    monkeypatch.setattr(notices, "differs", counted)
    assert quiet(node) == Decision()
    assert compared == []

    more = ev.MiscReading(limit={EPC: LIMIT}, usage={EPC: 1})
    quiet(node, app=more)
    assert all(one is more for one in compared)
    assert len(compared) == 2, "once for its limit and once for its Events"

    compared.clear()
    quiet(node)
    assert compared == []


def test_what_was_not_compared_is_fresh_and_what_was_not_read_grows_stale(node: Told) -> None:
    for _ in range(4):
        quiet(node, APP)

    assert shown(node, APP) is Standing.STALE
    assert shown(node, "/kubepods/pod8/8-app") is Standing.ENFORCED
    assert list(node.state.limits.readings) == list(node.state.limits.wanted)


def test_a_reading_newer_than_the_pass_stays(node: Told) -> None:
    before = node.state.limits.readings[APP]
    node.at_ns += SECOND
    node(ev.Sampled({}, as_of=before.as_of - 1, rest_same=True))
    node(ev.Sampled({APP: ev.MiscReading()}, as_of=before.as_of - 1))

    assert node.state.limits.readings[APP] == before


def test_a_limit_that_is_wanted_anew_is_compared_though_the_kernel_says_the_same(node: Told) -> None:
    node(ev.PodSeen(pod_spec("7", container_spec("app", 2 * LIMIT))))
    node(ev.Reached((target(f"misc.max:{EPC}:{APP}"),)))

    decision = quiet(node)

    assert [note.code for note in decision.notes] == ["drift"]
    assert shown(node, APP) is Standing.DRIFT


def test_a_drift_that_stays_is_repaired_again(node: Told) -> None:
    notes = [quiet(node, app=ev.MiscReading(limit={EPC: 1})).notes, quiet(node).notes, quiet(node).notes]

    assert [note.values[-1] for told in notes for note in told] == [1, 2, 3]


@pytest.mark.parametrize("reached", [True, False])
def test_a_capacity_that_is_lost_is_told_though_the_readings_are_the_same(reached: bool) -> None:
    node = node_with({EPC: 1 << 30}, reached=reached)
    quiet(node)
    node(ev.CapacityRead(controller=True, capacity={}))

    codes = [call.reason.code for call in quiet(node).calls]

    assert dict.fromkeys(codes) == {"not-supported": None}
    assert len(codes) == PODS
    assert shown(node, APP) is Standing.UNSUPPORTED


def test_processes_that_stay_outside_are_told(node: Told) -> None:
    quiet(node, app=replace(ev.MiscReading(limit={EPC: LIMIT}), outside=True))

    assert [call.reason.code for call in quiet(node).calls] == ["processes-outside"]


def test_a_cgroup_that_is_made_anew_is_looked_at_again(node: Told) -> None:
    node(ev.Sampled({}, as_of=node.state.seq, gone=(APP,), rest_same=True))
    assert APP not in node.state.limits.readings

    assert [note.code for note in quiet(node, app=ev.MiscReading()).notes] == ["drift"]
