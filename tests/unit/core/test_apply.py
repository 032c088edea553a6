"""The root of decisions: answers merged, faults contained, asks that end somehow, passes that bring no news."""

from dataclasses import replace

import pytest

from nodeward.core import events as ev
from nodeward.core.apply import merge
from nodeward.core.decision import Adjustment, Commit, Decision, Final, Goal, Mount, Need, Special, Target
from nodeward.core.devices import DeviceNode
from nodeward.core.feature import Feature, Hear
from nodeward.core.modes import Mode, OnError
from nodeward.core.refusal import Reason, Refusal
from nodeward.core.workload import ContainerId, SandboxId
from nodeward.features.all import ENGINE, FEATURES
from nodeward.features.cpus.settings import CpusSettings
from nodeward.features.limits import readings
from nodeward.features.limits.feature import LIMITS
from nodeward.features.limits.readings import differs, standing
from nodeward.features.limits.rows import Standing
from nodeward.features.limits.settings import LimitsSettings, Unsupported
from nodeward.features.limits.state import Wanted
from nodeward.features.notices import step as notices
from nodeward.features.pods.settings import PodsSettings
from nodeward.features.root import State
from nodeward.features.settings import EngineSettings
from tests.goals import target
from tests.unit.features import build

WHY = Reason("test")
GIVE = Final(Adjustment({"misc.max": "sgx_epc 1"}), WHY)
OTHER = Final(Adjustment({"memory.high": "1"}), WHY)
BOTH = Final(Adjustment({"misc.max": "sgx_epc 1", "memory.high": "1"}), WHY)
REFUSE = Final(Refusal("no"), WHY)
NEED = Need("pod", "a/b/c", 1)
COMMIT = Commit("r")
LIMIT = target(f"misc.max:{build.EPC}:/kubepods/podA/A-app")


def values(decision: Decision) -> dict[Target, object]:
    return {goal.target: goal.value for goal in decision.goals if goal.target.kind == "misc.max"}


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        pytest.param(NEED, GIVE, NEED, id="need over final"),
        pytest.param(GIVE, NEED, NEED, id="need over final, other order"),
        pytest.param(COMMIT, NEED, NEED, id="need over commit"),
        pytest.param(COMMIT, GIVE, COMMIT, id="commit over final"),
        pytest.param(NEED, REFUSE, REFUSE, id="refusal over need"),
        pytest.param(REFUSE, GIVE, REFUSE, id="refusal over adjustment"),
        pytest.param(None, GIVE, GIVE, id="no opinion does not matter"),
        pytest.param(None, None, None, id="nobody speaks"),
        pytest.param(GIVE, OTHER, BOTH, id="disjoint keys are given together"),
    ],
)
def test_merging_answers(one: Final | Need | None, two: Final | Need | None, expected: Final | Need | None) -> None:
    assert merge(Decision(one), Decision(two)).answer == expected


def test_of_two_features_that_set_the_same_the_first_one_stands_and_the_fault_names_both() -> None:
    def gives(adjustment: Adjustment) -> Hear[State]:
        return lambda state, _: (state.pods, Decision(Final(adjustment, WHY)))

    mounts = [(Mount(f"/of-{name}", "/data"),) for name in ("one", "two")]
    nodes = [DeviceNode("/dev/sgx_enclave", 10, minor) for minor in (1, 2)]
    one = Adjustment({"misc.max": "a 1"}, cpus="0-3", mounts=mounts[0], devices=(nodes[0],))
    two = Adjustment({"misc.max": "a 2"}, "4", "1", rdt_class="gold", mounts=mounts[1], devices=(nodes[1],))
    features = (Feature("pods", build.everywhere(gives(one))), replace(LIMITS, hears=build.everywhere(gives(two))))

    _, decision = replace(ENGINE, features=features).apply(State(), replace(build.creating("A", "app"), seq=1))

    assert build.value_of(decision) == replace(one, memory_nodes="1", rdt_class="gold")
    twice = ("misc.max", "cpus", "the mount at /data", "the device /dev/sgx_enclave")
    assert [fault.error for fault in decision.faults] == [f"pods and limits both set {what}" for what in twice]


def broken(state: State, event: ev.Event) -> tuple[object, Decision]:
    raise RuntimeError("broken")


def test_a_fault_in_limits_is_contained_and_the_others_are_heard() -> None:
    state = State(settings=EngineSettings(LimitsSettings(on_error=OnError.PASS)))
    features = (*FEATURES[:2], replace(LIMITS, hears=build.everywhere(broken)))
    after, decision = replace(ENGINE, features=features).apply(state, replace(build.creating("A", "app"), seq=1))
    assert [fault.feature for fault in decision.faults] == ["limits"]
    assert build.value_of(decision) == Adjustment()
    assert "A-app" in after.pods.creating
    assert after.asks == {}


def test_a_feature_that_fails_over_an_answer_takes_nothing_from_it() -> None:
    def broken_over(state: State, question: ev.Question, answer: Final) -> object:
        raise RuntimeError("broken")

    told = build.known()
    engine = replace(ENGINE, features=(*FEATURES[:2], replace(LIMITS, answered=broken_over)))
    after, decision = engine.apply(told.state, replace(build.creating("A", "app"), seq=told.state.seq + 1))
    assert [fault.feature for fault in decision.faults] == ["limits"]
    assert build.value_of(decision) == Adjustment({"misc.max": "sgx_epc 5"})
    assert after.asks == {}


@pytest.mark.parametrize("faulty", [one.name for one in FEATURES])
def test_only_a_feature_with_an_on_error_refuses_a_container_and_names_that_key(faulty: str) -> None:
    limits, pods = LimitsSettings(on_error=OnError.REFUSE), PodsSettings(on_error=OnError.REFUSE)
    told = build.Told(State(settings=EngineSettings(limits, pods, cpus=CpusSettings(on_error=OnError.REFUSE))))
    told(ev.CapacityRead(controller=True, capacity={build.EPC: 9}))
    told(ev.PodSeen(build.pod_spec("A", build.container_spec("app", 5))))
    features = tuple(replace(one, hears=build.everywhere(broken)) if one.name == faulty else one for one in FEATURES)

    after, decision = replace(ENGINE, features=features).apply(told.state, build.creating("A", "app"))

    assert [fault.feature for fault in decision.faults] == [faulty]
    value = build.value_of(decision)
    if faulty in ("notices", "keys", "sandboxes", "gate"):  # no gate is set here
        assert value == Adjustment({"misc.max": f"{build.EPC} 5"})
    else:
        assert isinstance(value, Refusal)
        assert (after.pods.creating, after.asks) == ({}, {})
        assert f"and {faulty}.on_error is refuse" in value.message


def test_a_fault_in_pods_about_a_removal_is_no_fault_of_limits() -> None:
    told = build.node()
    features = tuple(replace(one, hears=build.everywhere(broken)) if one.name == "pods" else one for one in FEATURES)
    _, decision = replace(ENGINE, features=features).apply(
        told.state, ev.Removed(SandboxId("s"), ContainerId("c"), seq=told.state.seq + 1)
    )
    assert [fault.feature for fault in decision.faults] == ["pods"]


def test_an_unseen_pod_is_waited_for_and_the_fact_ends_the_ask() -> None:
    told = build.node()
    assert told(build.creating("A", "app")).answer == Need("pod", "shop/pod-A/A", 200_000_000)
    told(ev.PodSeen(build.pod_spec("A", build.container_spec("app", 5))))
    assert build.value_of(told(ev.FactRead(1))) == Adjustment({"misc.max": "sgx_epc 5"})
    assert told.state.asks == {}


@pytest.mark.parametrize("ending", [ev.FactRead(1, "late"), ev.Expired(1), ev.Committed(1)])
def test_an_ask_that_learns_nothing_ends_with_the_fallback(ending: ev.Event) -> None:
    told = build.node()
    told(build.creating("A", "app"))
    answer = told(ending).answer
    assert isinstance(answer, Final)
    assert (answer.value, answer.reason.code) == (Adjustment(), "pod-unknown")
    assert told.state.asks == {}


@pytest.mark.parametrize("event", [ev.FactRead(1), ev.Expired(1), ev.Committed(1), ev.Abandoned(1)])
def test_what_comes_for_an_ended_ask_changes_nothing(event: ev.Event) -> None:
    told = build.known()
    told(build.creating("A", "app"))
    before = told.state
    assert told(event) == Decision()
    assert replace(told.state, seq=before.seq) == before


def test_an_ask_waits_for_at_most_two_facts() -> None:
    def greedy(state: State, event: ev.Event) -> tuple[object, Decision]:
        return state.pods, Decision(NEED)

    engine = replace(ENGINE, features=(Feature("pods", build.everywhere(greedy)),))
    state, decision = engine.apply(State(), replace(build.creating("A", "app"), seq=1))
    answers = [decision.answer]
    for seq in (2, 3):
        state, decision = engine.apply(state, ev.FactRead(1, seq=seq))
        answers.append(decision.answer)
    assert answers[:2] == [NEED, NEED]
    assert answers[2] == Final(Adjustment(), Reason("no-opinion"))
    assert state.asks == {}


def test_waits_are_bounded_to_one_second_in_ten() -> None:
    told = build.node()

    def waits(number: int) -> bool:
        return isinstance(told(build.creating(f"P{number}", "app", ask_id=number)).answer, Need)

    assert [waits(number) for number in range(7)] == [True] * 5 + [False] * 2
    told.at_ns += 10 * build.SECOND
    assert waits(8)


@pytest.mark.parametrize(
    ("rule", "api"),
    [(PodsSettings(wait_ms=1001), True), (PodsSettings(wait_budget_ms=0), True), (PodsSettings(), False)],
)
def test_no_wait_that_is_too_long_or_while_the_api_server_is_away(rule: PodsSettings, api: bool) -> None:
    told = build.Told(State(settings=EngineSettings(pods=rule)))
    told(ev.ApiBack() if api else ev.ApiLost("down"))
    assert isinstance(told(build.creating("A", "app")).answer, Final)


def test_a_late_spec_mends_limit_and_budget() -> None:
    told = build.node()
    told(ev.ApiLost("down"))
    told(build.creating("A", "app"))
    first = told(build.started("A", "app"))
    assert [(str(goal.target), goal.undo) for goal in first.goals] == [
        ("subtree:/", True),
        ("subtree:/kubepods", True),
        ("subtree:/kubepods/podA", False),
    ]
    decision = told(ev.PodSeen(build.pod_spec("A", build.container_spec("app", 5), overhead=2)))
    assert [(goal.target, goal.value) for goal in decision.goals] == [
        (target(f"misc.max:{build.EPC}:/kubepods/podA"), "7"),
        (LIMIT, "5"),
    ]


def test_a_goal_is_given_once_and_again_for_what_was_touched() -> None:
    def seen(app: int) -> ev.PodSeen:
        return ev.PodSeen(build.pod_spec("A", build.container_spec("app", app), build.container_spec("db", 2)))

    told = build.node()
    told(seen(5))
    told(build.started("A", "app"))
    assert values(told(build.started("A", "db"))) == {LIMIT._replace(where="/kubepods/podA/A-db"): "2"}
    assert values(told(build.started("A", "app"))) == {LIMIT: "5"}
    assert told(seen(5)).goals == ()
    assert values(told(seen(6)))[LIMIT] == "6"


def test_a_goal_of_a_container_waits_until_its_cgroup_can_be_there() -> None:
    told = build.known()
    assert LIMIT not in values(told(ev.Created(build.sandbox("A"), build.container("A", "app"))))
    assert values(told(build.started("A", "app"))) == {LIMIT: "5"}


def test_what_is_declared_no_more_is_taken_back_though_the_kernel_has_it_no_more() -> None:
    told = build.running()
    told(ev.CapacityRead(controller=True, capacity={}))
    decision = told(ev.PodSeen(build.pod_spec("A", build.container_spec("app"))))
    assert values(decision)[LIMIT] is Special.ABSENT, "else its slot tries again for ever"


@pytest.mark.parametrize(("mode", "goals"), [(Mode.OBSERVE, True), (Mode.OFF, False)])
def test_only_enforce_performs(mode: Mode, goals: bool) -> None:
    told = build.known(limits=LimitsSettings(mode=mode))
    assert build.value_of(told(build.creating("A", "app"))) == Adjustment()
    decision = told(build.started("A", "app"))
    assert bool(decision.goals) is goals
    assert not any(goal.perform for goal in decision.goals)


@pytest.mark.parametrize("unsupported", list(Unsupported))
def test_a_resource_this_kernel_lacks(unsupported: Unsupported) -> None:
    told = build.node(LimitsSettings(unsupported=unsupported), capacity=0)
    told(ev.PodSeen(build.pod_spec("A", build.container_spec("app", 5), build.container_spec("zero"))))
    answer = build.value_of(told(build.creating("A", "app")))
    assert isinstance(answer, Refusal) is (unsupported is Unsupported.REFUSE)
    assert build.value_of(told(build.creating("A", "zero", ask_id=2))) == Adjustment()
    assert values(told(build.started("A", "app"))) == {}


def test_drift_is_repaired_three_times_in_five_minutes() -> None:
    told = build.running()
    told(ev.Reached((LIMIT,)))
    path = "/kubepods/podA/A-app"

    def repaired() -> bool:
        told.at_ns += build.SECOND
        goals = told(ev.Sampled({path: ev.MiscReading(limit={build.EPC: 9})}, as_of=told.state.seq)).goals
        return Goal(LIMIT, "5", Reason("declared", ("app",))) in goals

    assert [repaired() for _ in range(5)] == [True, True, True, False, False]
    assert standing(told.state, path, told.state.limits.wanted[path], told.at_ns).value == "drift"
    told.at_ns += 300 * build.SECOND
    assert repaired()


def test_a_create_of_which_nothing_more_is_heard_is_given_up() -> None:
    """Which the daemon wakes for, and for nothing else."""
    told = build.known()
    assert ENGINE.next_wake(told.state) is None
    told(build.creating("A", "app"))
    told.at_ns += 120 * build.SECOND
    assert ENGINE.next_wake(told.state) == told.at_ns
    assert list(told.state.pods.creating) == ["A-app"]
    told(ev.Tick())
    assert (told.state.pods.creating, told.state.pods.containers) == ({}, {})


PODS, QUIET_LIMIT = 40, 4096
APP = "/kubepods/pod7/7-app"


def quiet_node(*, reached: bool = True) -> build.Told:
    told = build.Told(State(settings=EngineSettings(limits=build.RULE, kube_events=True)))
    told(ev.CapacityRead(controller=True, capacity={build.EPC: 1 << 30}))
    told(ev.ApiBack())
    for number in range(PODS):
        told(ev.PodSeen(build.pod_spec(str(number), build.container_spec("app", QUIET_LIMIT))))
        told(build.started(str(number), "app"))
    paths = tuple(told.state.limits.wanted)
    if reached:
        told(ev.Reached(tuple(target(f"misc.max:{build.EPC}:{path}") for path in paths)))
    told(ev.Sampled({path: ev.MiscReading(limit={build.EPC: QUIET_LIMIT}) for path in paths}, as_of=told.state.seq))
    return told


def quiet(told: build.Told, app: ev.MiscReading | None = None) -> Decision:
    """A pass a second later, where only the reading of APP may have changed."""
    told.at_ns += build.SECOND
    return told(ev.Sampled({} if app is None else {APP: app}, as_of=told.state.seq, rest_same=True))


def shown(told: build.Told) -> Standing:
    return standing(told.state, APP, told.state.limits.wanted[APP], told.at_ns)


def test_a_pass_compares_only_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    told, compared = quiet_node(), list[ev.MiscReading]()

    def counted(state: State, wanted: Wanted, reading: ev.MiscReading) -> tuple[str, ...]:
        compared.append(reading)
        return differs(state, wanted, reading)

    monkeypatch.setattr(readings, "differs", counted)
    monkeypatch.setattr(notices, "differs", counted)
    assert quiet(told) == Decision()
    assert compared == []

    more = ev.MiscReading(limit={build.EPC: QUIET_LIMIT}, usage={build.EPC: 1})
    quiet(told, more)
    assert [one is more for one in compared] == [True, True], "once for its limit and once for its Events"

    quiet(told)
    assert len(compared) == 2


def test_a_limit_that_is_wanted_anew_is_compared_though_the_kernel_says_the_same() -> None:
    told = quiet_node()
    told(ev.PodSeen(build.pod_spec("7", build.container_spec("app", 2 * QUIET_LIMIT))))
    told(ev.Reached((target(f"misc.max:{build.EPC}:{APP}"),)))

    notes = [quiet(told).notes for _ in range(3)]

    assert [(note.code, note.values[-1]) for told in notes for note in told] == [("drift", n) for n in (1, 2, 3)]
    assert shown(told) is Standing.DRIFT


@pytest.mark.parametrize("reached", [True, False])
def test_a_capacity_that_is_lost_is_told_though_the_readings_are_the_same(reached: bool) -> None:
    told = quiet_node(reached=reached)
    quiet(told)
    told(ev.CapacityRead(controller=True, capacity={}))

    assert [call.reason.code for call in quiet(told).calls] == ["not-supported"] * PODS
    assert shown(told) is Standing.UNSUPPORTED
