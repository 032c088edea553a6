"""When the daemon says that it is ready."""

from dataclasses import replace

import pytest

from nodeward.app.node.readiness import BEFORE_KUBELET, Readiness
from nodeward.model import events as ev
from nodeward.model.hierarchy import Hierarchy
from nodeward.model.settings import KubeSection, LimitsSettings, MetricsSection, Mode, NriSection, Settings
from tests.unit.engine.build import SECOND, ManualClock


class Told:
    def __init__(self, settings: Settings | None = None) -> None:
        self.clock, self.changes = ManualClock(), 0
        self.readiness = Readiness(settings or Settings(), self.clock, self._changed)
        self.passed: list[ev.Event] = []
        self.tell = self.readiness.listens(self._tell)

    def _changed(self) -> None:
        self.changes += 1

    def _tell(self, event: ev.Event) -> int:
        self.passed.append(event)
        return len(self.passed)

    def all_synchronised(self) -> None:
        for event in (
            ev.Sampled({}, 0),
            ev.RuntimeConnected("containerd", "2.4"),
            ev.Listed((), (), 0),
            ev.ApiBack(),
            ev.PodsListed((), 0),
        ):
            self.tell(event)

    def detail(self, name: str) -> str:
        return next(row.detail for row in self.readiness.rows() if row.name == name)


def test_each_source_has_to_be_synchronised_and_not_only_reached() -> None:
    told = Told()
    steps: list[tuple[ev.Event, list[str]]] = [
        (ev.Sampled({}, 0), ["nri", "kube"]),
        (ev.RuntimeConnected("containerd", "2.4"), ["nri", "kube"]),
        (ev.Listed((), (), 0), ["kube"]),
        (ev.ApiBack(), ["kube"]),
        (ev.PodsListed((), 0), []),
    ]
    for event, waiting in steps:
        assert not told.readiness.ready
        told.tell(event)
        assert told.readiness.waiting(("nri", "kube", "cgroups")) == waiting
    assert told.readiness.ready
    assert told.passed == [event for event, _ in steps]


def test_a_lost_source_is_not_ready_and_says_why_and_since_when() -> None:
    told = Told()
    told.all_synchronised()
    told.clock.ns += SECOND
    told.tell(ev.ApiLost("connection refused"))
    row = next(row for row in told.readiness.rows() if row.name == "kube")
    assert (row.ready, row.detail, row.since_wall_ns) == (False, "stale: connection refused", 2 * SECOND)
    assert told.readiness.waiting(BEFORE_KUBELET) == []  # kubelet need not wait for the API server

    told.tell(ev.ApiBack())
    assert told.readiness.ready
    told.tell(ev.RuntimeLost("closed"))
    assert told.readiness.waiting(BEFORE_KUBELET) == ["nri"]


def test_a_sampler_that_tells_nothing_more_is_not_ready() -> None:
    told = Told()
    told.all_synchronised()
    told.clock.ns += 3 * SECOND

    assert told.readiness.sample_age_ms == 3000
    assert told.readiness.waiting(("cgroups",)) == ["cgroups"]
    told.tell(ev.Sampled({}, 0))
    assert told.readiness.ready


def test_only_what_is_chosen_is_waited_for() -> None:
    told = Told(replace(Settings(), nri=NriSection(enabled=False), kube=KubeSection(enabled=False)))
    told.tell(ev.ApiLost("nobody asked"))
    told.tell(ev.Sampled({}, 0))

    assert told.readiness.ready
    assert [row.name for row in told.readiness.rows()] == ["cgroups"]


@pytest.mark.parametrize(("mode", "ready"), [(Mode.ENFORCE, True), (Mode.OBSERVE, False)], ids=["enforce", "observe"])
def test_metrics_that_are_not_served_are_waited_for_only_where_nothing_is_enforced(mode: Mode, ready: bool) -> None:
    told = Told(Settings(limits=LimitsSettings(mode=mode), metrics=MetricsSection(enabled=True)))
    told.all_synchronised()
    assert told.readiness.ready is ready
    told.readiness.note("metrics", False, "somebody holds it")
    assert told.readiness.ready is ready
    row = next(row for row in told.readiness.rows() if row.name == "metrics")
    assert (row.ready, row.detail, row.needed) == (False, "somebody holds it", not ready)

    told.tell(ev.SettingsChanged(Settings(limits=LimitsSettings(mode=Mode.ENFORCE)).engine))
    assert told.readiness.ready
    told.tell(ev.SettingsChanged(Settings(limits=LimitsSettings(mode=Mode.OFF)).engine))
    assert not told.readiness.ready
    told.readiness.note("metrics", True, "served")
    assert told.readiness.ready


def test_a_change_is_said_once() -> None:
    told = Told()
    told.all_synchronised()
    before = told.changes
    for _ in range(5):
        told.tell(ev.Sampled({}, 0))

    assert told.changes == before


def test_a_tree_that_cannot_be_used_is_no_ready_source() -> None:
    """Given a cgroups.root that does not exist, then samples of it make nothing ready, until it is mended."""
    told = Told()
    told.all_synchronised()
    fault = Hierarchy(2, "/x", "/x", "/x does not exist: correct cgroups.root")
    told.tell(ev.CapacityRead(controller=False, tree=fault))
    told.tell(ev.Sampled({}, 0))

    assert told.readiness.waiting(("cgroups",)) == ["cgroups"]
    assert fault.fault in [row.detail for row in told.readiness.rows()]
    told.tell(ev.CapacityRead(controller=True))
    told.tell(ev.Sampled({}, 0))
    assert told.readiness.ready
