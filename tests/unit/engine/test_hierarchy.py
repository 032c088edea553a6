"""What is decided where misc is mounted as cgroup v1, and what people are told of it."""

from nodeward.engine.show.explain import explain
from nodeward.engine.show.view import node_view
from nodeward.model import events as ev
from nodeward.model.decision import Final
from nodeward.model.hierarchy import Hierarchy
from nodeward.model.settings import LimitsSettings, Unsupported
from tests.goals import target
from tests.unit.engine.build import (
    EPC,
    Told,
    adjusted,
    container,
    container_spec,
    creating,
    node,
    pod_spec,
    sandbox,
    started,
)

V1 = Hierarchy(1, "/sys/fs/cgroup/misc", "/sys/fs/cgroup/pids")
APP = "/kubepods/poda/a-app"


def node_v1() -> Told:
    told = node()
    told(ev.CapacityRead(controller=True, capacity={EPC: 1 << 30}, tree=V1))
    told(ev.PodSeen(pod_spec("a", container_spec("app", 4096))))
    return told


def targets(told: Told, event: ev.Event) -> list[tuple[str, str]]:
    return [(str(goal.target), str(goal.value)) for goal in told(event).goals]


def state(told: Told, reading: ev.MiscReading) -> str:
    told(ev.Sampled({APP: reading}, as_of=told.state.seq))
    rows = node_view(told.state, told.at_ns, {}).rows
    return next(row.state for row in rows if row.cgroup == APP)


def test_the_runtime_is_told_nothing_it_would_refuse() -> None:
    told = node_v1()
    assert adjusted(told(creating("a", "app"))).unified == {}
    told(started("a", "app"))
    assert adjusted(told(ev.Updating(sandbox("a"), container("a", "app"), ask_id=2))).unified == {}

    told(ev.CapacityRead(controller=True, capacity={EPC: 1 << 30}))
    assert adjusted(told(creating("a", "app"))).unified == {"misc.max": f"{EPC} 4096"}


def test_limits_are_written_directly_and_nothing_is_handed_down() -> None:
    told = node_v1()
    told(creating("a", "app"))

    goals = targets(told, started("a", "app"))

    assert goals == [(f"misc.max:{EPC}:/kubepods/poda", "4096"), (f"misc.max:{EPC}:{APP}", "4096")]


def test_mounting_misc_as_v1_later_writes_every_limit_there() -> None:
    told = node()
    told(ev.PodSeen(pod_spec("a", container_spec("app", 4096))))
    told(started("a", "app"))

    goals = targets(told, ev.CapacityRead(controller=True, capacity={EPC: 1 << 30}, tree=V1))

    assert (f"misc.max:{EPC}:{APP}", "4096") in goals
    assert not [target for target, _ in goals if target.startswith("subtree:")]


def test_a_refusal_that_was_asked_for_holds_on_v1_too() -> None:
    told = node(LimitsSettings(unsupported=Unsupported.REFUSE), capacity=0)
    told(ev.CapacityRead(controller=True, capacity={}, tree=V1))
    told(ev.PodSeen(pod_spec("a", container_spec("app", 4096))))

    answer = told(creating("a", "app")).answer

    assert isinstance(answer, Final)
    assert "which this kernel cannot limit" in str(answer.value)


def test_a_limit_that_holds_no_process_is_not_called_enforced() -> None:
    told = node_v1()
    told(started("a", "app"))
    told(ev.Reached((target(f"misc.max:{EPC}:{APP}"),)))

    assert state(told, ev.MiscReading(limit={EPC: 4096}, outside=True)) == "outside"
    assert state(told, ev.MiscReading(limit={EPC: 4096})) == "enforced"
    assert state(told, ev.MiscReading(limit={EPC: 1}, outside=True)) == "drift"


def test_people_are_told_what_v1_means() -> None:
    told = node_v1()
    told(started("a", "app"))
    told(ev.Reached((target(f"misc.max:{EPC}:{APP}"),)))
    state(told, ev.MiscReading(limit={EPC: 4096}, outside=True))

    lines = explain(node_view(told.state, told.at_ns, {}), "shop/pod-a/app")

    assert lines is not None
    assert "misc is mounted as cgroup v1 at /sys/fs/cgroup/misc" in lines[-1]
    assert any("its runtime does not join it" in line for line in lines)


def test_people_are_told_of_a_root_that_cannot_be_used() -> None:
    told = node_v1()
    told(started("a", "app"))
    told(ev.CapacityRead(controller=False, tree=Hierarchy(2, "/x", "/x", "/x does not exist: correct cgroups.root")))

    lines = explain(node_view(told.state, told.at_ns, {}), "shop/pod-a")

    assert lines is not None
    assert lines[-1] == "node: no limit can be counted or set: /x does not exist: correct cgroups.root."
