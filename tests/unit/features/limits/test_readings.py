"""What a reading means, what is taken back, what newer settings change of it, and what happened lately."""

from dataclasses import replace

import pytest

from nodeward.core import events as ev
from nodeward.core.cgroup import Hierarchy
from nodeward.core.conditions import Level, Verdict
from nodeward.core.decision import Decision, Special
from nodeward.core.modes import Mode
from nodeward.core.times import LATELY_NS
from nodeward.core.vms import UNLIMITED
from nodeward.core.workload import ContainerId, Phase, PodUid
from nodeward.features.lately.step import MOST
from nodeward.features.limits.readings import standing
from nodeward.features.limits.settings import LimitsSettings, Unsupported
from nodeward.features.root import SettingsChanged
from nodeward.features.settings import EngineSettings
from nodeward.people.explain import explain
from nodeward.people.verdict import verdict
from nodeward.people.view import node_view
from tests.goals import target
from tests.unit.features import build
from tests.unit.features.cpus import build as cpus
from tests.unit.features.sandboxes import test_step as vms
from tests.unit.features.sandboxes.build import GIB, MIB, pod, reading, shim, vmm

PATH = "/kubepods/podA/A-app"
LIMIT = target(f"misc.max:{build.EPC}:{PATH}")
OLD = {"epc-limit.nri.io": "7"}


def sample(told: build.Told, limit: int | None, as_of: int | None = None) -> Decision:
    told.at_ns += build.SECOND
    reading = ev.MiscReading(limit={} if limit is None else {build.EPC: limit})
    return told(ev.Sampled({PATH: reading}, as_of=told.state.seq if as_of is None else as_of))


def state(told: build.Told) -> str:
    return standing(told.state, PATH, told.state.limits.wanted[PATH], told.at_ns).value


NO_LIMIT, OTHER, WANTED = ({} if limit is None else {build.EPC: limit} for limit in (None, 9, 5))
REACHED, ANEW = ev.Reached((LIMIT,)), ev.PodSeen(build.pod_spec("A", build.container_spec("app", 6)))
V1 = Hierarchy(1, "/sys/fs/cgroup/misc", "/sys/fs/cgroup/pids")
LESS, ON_V1 = ev.CapacityRead(True, {build.EPC: 1 << 20}), ev.CapacityRead(True, {build.EPC: 1 << 30}, tree=V1)


@pytest.mark.parametrize(
    ("before", "limit", "shown"),
    [
        pytest.param([REACHED], WANTED, "enforced", id="it is there"),
        pytest.param([REACHED], NO_LIMIT, "drift", id="another has taken it away"),
        pytest.param([REACHED], OTHER, "drift", id="another has changed it"),
        pytest.param([], NO_LIMIT, "pending", id="it is on its way"),
        pytest.param([REACHED, ANEW], WANTED, "pending", id="another is wanted now"),
        pytest.param([REACHED, ANEW, REACHED], WANTED, "drift", id="which was reached"),
        pytest.param([ev.Missed(((LIMIT, "busy"),))], NO_LIMIT, "drift", id="it could not be written"),
        pytest.param([REACHED, LESS], NO_LIMIT, "pending", id="all is reached anew after a change of capacity"),
    ],
)
def test_a_reading_is_drift_only_of_what_was_reached(before: list[ev.Event], limit: dict[str, int], shown: str) -> None:
    told = build.running()
    assert state(told) == "pending", "it was never read"
    for event in before:
        told(event)
    notes = told(ev.Sampled({PATH: ev.MiscReading(limit=limit)}, as_of=told.state.seq)).notes

    assert [note.code for note in notes] == ["drift"] * (shown == "drift")
    assert state(told) == shown
    told.at_ns += 10 * build.SECOND
    assert state(told) == "stale"


def test_a_controller_that_somebody_switched_off_is_switched_on_before_the_limit_is_written() -> None:
    told = build.running()
    told(REACHED)
    goals = told(ev.Sampled({PATH: ev.MiscReading(controller=False)}, as_of=told.state.seq)).goals
    assert [str(goal.target) for goal in goals][-2:] == ["subtree:/kubepods/podA", str(LIMIT)]
    assert state(told) == "controller-off"


def test_a_pass_that_began_before_the_goal_was_reached_is_no_drift_and_spends_no_repair() -> None:
    told = build.running()
    began = told.state.seq
    told(REACHED)

    decision = sample(told, None, as_of=began)

    assert (decision.goals, decision.notes, told.state.limits.repairs_ns) == ((), (), {})
    assert state(told) == "pending"
    assert [note.code for note in sample(told, None).notes] == ["drift"]


def test_a_goal_to_take_back_is_forgotten_with_its_cgroup() -> None:
    told = build.running()
    taken = told(ev.PodSeen(build.pod_spec("A", build.container_spec("app"))))
    assert Special.ABSENT in [goal.value for goal in taken.goals]

    decision = told(ev.Stopped(build.sandbox("A"), build.container("A", "app")))

    assert LIMIT in decision.forget
    assert target(f"misc.max:{build.EPC}:/kubepods/podA") in told(ev.PodGone(PodUid("A"))).forget


def taken_back(mode: Mode = Mode.ENFORCE) -> build.Told:
    """A node on which the runtime was told to limit A's container, of which nothing is wanted any more."""
    told = build.node()
    told(ev.ApiLost("away"))
    told(build.creating("A", "app", annotations=OLD))
    told(ev.PodSeen(build.pod_spec("A", build.container_spec("app"))))
    told(build.started("A", "app", annotations=OLD))
    told(ev.Reached((LIMIT,)))
    if mode is not Mode.ENFORCE:
        told(SettingsChanged(EngineSettings(limits=LimitsSettings(mode=mode))))
    return told


def updated(told: build.Told, recorded: dict[str, int] | None = None) -> str:
    asks = ev.Updating(build.sandbox("A", OLD), replace(build.container("A", "app"), recorded=recorded or {}), ask_id=7)
    return build.adjusted(told(asks)).unified.get("misc.max", "")


def test_an_update_says_for_as_long_as_the_container_lives_what_was_taken_back() -> None:
    """Or the runtime writes again what it remembers."""
    told = taken_back()
    assert [updated(told) for _ in range(2)] == [f"{build.EPC} max"] * 2
    told(SettingsChanged(EngineSettings(limits=LimitsSettings(strict=True))))
    assert updated(told) == f"{build.EPC} 0"
    told(SettingsChanged(EngineSettings()))
    assert updated(told) == f"{build.EPC} max"
    told(ev.CapacityRead(controller=True, capacity={}))
    assert updated(told) == "", "the kernel has lost it"


def test_what_an_update_gave_is_taken_back_too_and_nothing_is_said_of_what_nobody_gave() -> None:
    told = build.running(5)
    assert updated(told) == f"{build.EPC} 5"
    told(ev.PodSeen(build.pod_spec("A", build.container_spec("app"))))
    told(ev.Reached((LIMIT,)))
    assert updated(told) == f"{build.EPC} max"

    told = build.running(None)
    assert updated(told) == ""
    told(ev.Reached((LIMIT,)))
    assert (sample(told, 0).goals, state(told)) == ((), "unmanaged"), "it is left to whoever wrote it"

    told = taken_back(Mode.OBSERVE)
    assert (sample(told, 0).goals, state(told), updated(told)) == ((), "unmanaged", "")


@pytest.mark.parametrize(
    ("multi_line", "by_hook", "has", "text"),
    [
        pytest.param(False, False, {build.EPC: 9, "keys": 9}, f"{build.EPC} 5", id="one line where all is written"),
        pytest.param(
            True, False, {build.EPC: 9, "keys": 9}, f"{build.EPC} 5\nkeys 1", id="all to one that writes line by line"
        ),
        pytest.param(False, True, {build.EPC: 9, "keys": 9}, f"{build.EPC} 5\nkeys 1", id="all to the hook"),
        pytest.param(True, False, {"keys": 9}, "keys 1", id="only what the kernel has"),
    ],
)
def test_several_resources_are_told_as_they_can_be_written(
    multi_line: bool, by_hook: bool, has: dict[str, int], text: str
) -> None:
    told = build.node(LimitsSettings(resources={"a": build.EPC, "b": "keys"}))
    told(ev.RuntimeConnected("containerd", "2.1", "", multi_line))
    told(ev.CapacityRead(controller=True, capacity=has))
    told(ev.PodSeen(build.pod_spec("A", replace(build.container_spec("app"), declared={build.EPC: 5, "keys": 1}))))
    assert build.adjusted(told(replace(build.creating("A", "app"), by_hook=by_hook))).unified == {"misc.max": text}


def test_where_one_line_is_all_it_says_what_is_wanted() -> None:
    told = taken_back()
    told(SettingsChanged(EngineSettings(limits=LimitsSettings(resources={"a": build.EPC, "b": "keys"}))))
    told(ev.CapacityRead(controller=True, capacity={build.EPC: 100, "keys": 100}))
    told(ev.PodSeen(build.pod_spec("A", replace(build.container_spec("app"), declared={"keys": 1}))))
    assert updated(told) == "keys 1"
    told(ev.RuntimeConnected("containerd", "2.4", multi_line=True))
    assert updated(told) == f"keys 1\n{build.EPC} max"


@pytest.mark.parametrize(
    ("recorded", "ours"),
    [
        pytest.param({build.EPC: 0}, True, id="a denial"),
        pytest.param({build.EPC: 7}, True, id="what the annotation asks for"),
        pytest.param({build.EPC: 8}, False, id="another amount"),
        pytest.param({"keys": 0}, False, id="a resource the settings do not name"),
        pytest.param({}, False, id="nothing"),
    ],
)
@pytest.mark.parametrize("spec_first", [True, False])
def test_what_was_given_before_is_known_by_the_record(recorded: dict[str, int], ours: bool, spec_first: bool) -> None:
    """It is taken back once the spec says that nothing is wanted, and not before."""
    told = build.node()
    there = replace(build.container("A", "app"), phase=Phase.RUNNING, recorded=recorded)
    events: list[ev.Event] = [
        ev.Listed((build.sandbox("A", OLD),), (there,), 1),
        ev.PodSeen(build.pod_spec("A", build.container_spec("app"))),
    ]
    absent = [
        [goal.target for goal in told(event).goals if goal.value is Special.ABSENT and goal.ours]
        for event in (reversed(events) if spec_first else events)
    ]

    assert absent == [[], [LIMIT] if ours else []]
    if spec_first:  # else the annotation's limit has been written meanwhile, and is ours to take back
        assert updated(told, recorded) == (f"{build.EPC} max" if ours else "")


def test_a_denial_of_a_daemon_before_stays_while_the_spec_is_not_known() -> None:
    told = build.node()
    there = replace(build.container("A", "app"), phase=Phase.RUNNING, recorded={build.EPC: 0})
    goals = told(ev.Listed((build.sandbox("A"),), (there,), 1)).goals
    assert [goal for goal in goals if goal.value is Special.ABSENT] == []
    told(ev.PodSeen(build.pod_spec("A", build.container_spec("app"), build.container_spec("db", 5))))
    assert told.state.limits.wanted[PATH].values == {build.EPC: 0}


def test_what_was_answered_is_forgotten_with_a_create_that_fails() -> None:
    told = build.known()
    told(build.creating("A", "app"))
    assert told.state.limits.answered == {"A-app": (build.EPC,)}
    told(ev.CreateFailed(build.container("A", "app").id))
    assert told.state.limits.answered == {}
    told(build.creating("A", "app"))
    told(build.started("A", "app"))
    assert told.state.limits.answered == {}


def changed(told: build.Told, limits: LimitsSettings) -> Decision:
    return told(SettingsChanged(EngineSettings(limits=limits)))


def performed(decision: Decision) -> dict[str, object]:
    return {str(goal.target): goal.value for goal in decision.goals if goal.perform}


def test_in_observe_nothing_is_performed_and_the_slots_hear_of_each_goal() -> None:
    told = build.running()
    told(ev.Missed(((LIMIT, "gone"),)))
    decision = changed(told, LimitsSettings(mode=Mode.OBSERVE))

    assert performed(decision) == {}
    assert LIMIT in [goal.target for goal in decision.goals]
    assert (told.state.limits.misses, state(told)) == ({}, "unmanaged")


def test_off_forgets_what_was_wanted_and_on_again_wants_it_and_takes_nothing_back() -> None:
    told = build.running()
    decision = changed(told, LimitsSettings(mode=Mode.OFF))
    assert LIMIT in decision.forget
    assert told.state.limits.wanted == {}

    told(LESS)  # the kernel's capacity changes meanwhile
    again = performed(changed(told, LimitsSettings()))
    assert (again[str(LIMIT)], Special.ABSENT in again.values()) == ("5", False)
    assert told.state.limits.capacity == {build.EPC: 1 << 20}


@pytest.mark.parametrize(
    "by_way_of",
    [
        pytest.param([], id="at once"),
        pytest.param([Mode.OFF], id="off"),
        pytest.param([Mode.OBSERVE], id="observe"),
        pytest.param([Mode.OBSERVE, Mode.OFF], id="observe-and-off"),
        pytest.param([Mode.OFF, Mode.OBSERVE], id="off-and-observe"),
    ],
)
def test_a_denial_of_ours_does_not_outlive_the_rule_that_asked_for_it(by_way_of: list[Mode]) -> None:
    told = build.running(None)
    assert performed(changed(told, LimitsSettings(strict=True)))[str(LIMIT)] == "0"
    for mode in by_way_of:
        changed(told, LimitsSettings(mode=mode, strict=True))
        assert performed(changed(told, LimitsSettings(mode=mode))) == {}

    goals = changed(told, LimitsSettings()).goals

    assert {str(goal.target): goal.value for goal in goals if goal.perform and goal.value is Special.ABSENT} == {
        f"misc.max:{build.EPC}:/kubepods/podA": Special.ABSENT,
        str(LIMIT): Special.ABSENT,
    }
    if Mode.OFF in by_way_of:  # the slots have forgotten that they wrote it
        assert all(goal.ours for goal in goals if goal.value is Special.ABSENT)
    assert told.state.limits.left == {}


def test_where_misc_is_cgroup_v1_limits_are_written_directly_and_the_runtime_is_told_nothing_it_would_refuse() -> None:
    told = build.running()
    decision = told(ON_V1)

    assert [(str(goal.target), goal.value) for goal in decision.goals] == [
        (f"misc.max:{build.EPC}:/kubepods/podA", "5"),
        (f"misc.max:{build.EPC}:{PATH}", "5"),
    ]
    assert build.adjusted(told(build.creating("A", "app"))).unified == {}
    by_hook = replace(build.creating("A", "app"), by_hook=True)
    assert build.adjusted(told(by_hook)).unified == {"misc.max": f"{build.EPC} 5"}, "which writes by itself"
    assert updated(told) == ""
    told(ev.CapacityRead(controller=True, capacity={build.EPC: 1 << 30}))
    assert build.adjusted(told(build.creating("A", "app"))).unified == {"misc.max": f"{build.EPC} 5"}


@pytest.mark.parametrize(
    ("reading", "shown"),
    [
        (ev.MiscReading(limit={build.EPC: 5}, outside=True), "outside"),
        (ev.MiscReading(limit={build.EPC: 5}), "enforced"),
        (ev.MiscReading(limit={build.EPC: 1}, outside=True), "drift"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_limit_that_holds_no_process_is_not_called_enforced(reading: ev.MiscReading, shown: str) -> None:
    told = build.running()
    told(ON_V1)
    told(REACHED)
    told(ev.Sampled({PATH: reading}, as_of=told.state.seq))

    assert state(told) == shown
    lines = explain(node_view(told.state, told.at_ns, {}), "shop/pod-A/app") or []
    assert "misc is mounted as cgroup v1 at /sys/fs/cgroup/misc" in lines[-1]
    assert any("its runtime does not join it" in line for line in lines) == (shown == "outside")
    told(ev.CapacityRead(controller=False, tree=Hierarchy(2, "/x", "/x", "/x does not exist")))
    lines = explain(node_view(told.state, told.at_ns, {}), "shop/pod-A/app") or []
    assert lines[-1] == "node: no limit can be counted or set: /x does not exist."


AT = "1970-01-01T00:00:01Z"
WEB = ("shop/web",)


def killed_vm(limit: int = GIB) -> build.Told:
    told = vms.told()
    vms.read(told, reading(shim(), vmm(), cgroups=(replace(pod(limit), oom_kills=0),), vm_memory=GIB, at_s=1))
    vms.read(told, reading(shim(), cgroups=(replace(pod(limit), oom_kills=1),), at_s=2))
    return told


def refused_create() -> build.Told:
    told = cpus.told()
    for name in "abc":
        cpus.create(told, name, cpus=3)
    return told


def late_start() -> build.Told:
    told = cpus.told()
    cpus.settle(told, cpus.create(told, "c", cpus=2))
    told(ev.StartLate(ContainerId("c-0")))
    return told


def drifted_cpus() -> build.Told:
    told = cpus.told()
    cpus.settle(told, cpus.create(told, "a", qos="burstable"))
    told(ev.CpusetsRead({"/kubepods/burstable/poda/a-0": 1}, as_of=told.state.seq))
    return told


def refused_charge() -> build.Told:
    told = build.known(4096)
    told(build.creating("A", "app"))
    told(build.started("A", "app"))
    for count in (0, 7):
        found = ev.MiscReading(True, {build.EPC: 4096}, refusals_local={build.EPC: count})
        told(ev.Sampled({"/kubepods/podA/A-app": found}, as_of=told.state.seq))
    return told


def shown(told: build.Told, after_ns: int = 0) -> Verdict:
    return verdict(node_view(told.state, told.at_ns + after_ns, {}))


HAPPENED = {
    "vm-killed": (killed_vm, WEB, f"The VM of shop/web was killed at {AT} for memory: the limit of its pod is 1Gi"),
    "refused": (
        refused_create,
        ("shop/c",),
        "1 create(s) or update(s) of containers were refused (shop/c), the last: ",
    ),
    "late-starts": (
        late_start,
        ("shop/c",),
        "1 start(s) were late or refused: other containers were still on their CPUs",
    ),
    "drift": (
        drifted_cpus,
        ("shop/a",),
        "Another program changed what Nodeward had set 1 time(s) (shop/a); the last at",
    ),
    "charges-refused": (refused_charge, ("shop/pod-A",), "The kernel refused 7 charge(s) (shop/pod-A)"),
}


@pytest.mark.parametrize("code", HAPPENED)
def test_it_is_the_headline_until_a_quarter_of_an_hour_after_the_last_time(code: str) -> None:
    happen, pods, sentence = HAPPENED[code]
    told = happen()
    said = shown(told)

    assert said.sentence.startswith(sentence)
    assert [(one.code, one.pods) for one in said.conditions if one.code in HAPPENED] == [(code, pods)]
    assert (said.conditions[0].since, said.level is not Level.GOOD, bool(said.conditions[0].remedy)) == (AT, True, True)
    assert code in [one.code for one in shown(told, LATELY_NS).conditions]
    over = code not in [one.code for one in shown(told, LATELY_NS + 1).conditions]
    assert over is (code != "vm-killed"), "which lasts until a new one is there"


def test_a_killed_vm_is_killed_while_it_is_there_and_a_new_one_is_not() -> None:
    told = killed_vm()
    told.at_ns += 2 * LATELY_NS
    assert "vm-killed" in [one.code for one in shown(told).conditions]
    vms.read(told, reading(shim(), vmm(), cgroups=(replace(pod(2 * GIB), oom_kills=1),), vm_memory=MIB, at_s=3))
    assert "vm-killed" not in [one.code for one in shown(told).conditions]


def test_what_is_not_known_of_a_kill_is_said() -> None:
    assert "by a limit that was not seen, above the pod or the node's own" in shown(killed_vm(UNLIMITED)).sentence
    told = vms.told()
    vms.read(told, reading(shim(), cgroups=(replace(pod(GIB), oom_kills=1),)))
    assert "killed before Nodeward first read it for memory" in shown(told).sentence


def test_many_refusals_keep_a_bounded_table_and_their_number() -> None:
    told = build.node(replace(build.RULE, unsupported=Unsupported.REFUSE), capacity=0)
    ids = [f"p{number}" for number in range(MOST + 50)]
    for uid in ids:
        told(ev.PodSeen(build.pod_spec(uid, build.container_spec("app", 4096))))
        told(build.creating(uid, "app"))
        told.at_ns += build.SECOND // 100
    assert len(told.state.lately) <= MOST + 1
    assert sum(one.count for one in told.state.lately.values()) == len(ids)
