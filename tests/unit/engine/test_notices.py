"""What pods are told by Kubernetes Events: which, in what words, how often, and how many at once."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from nodeward.engine.notices.step import AGAIN_NS, MOST_NOTICES, MOST_SENT, QUIET_NS
from nodeward.engine.notices.text import told as words
from nodeward.model import events as ev
from nodeward.model.decision import Decision, PodEvent, Reason, Target
from nodeward.model.settings import EngineSettings, LimitsSettings, Mode
from nodeward.model.workload import Container, ContainerId, ContainerSpec, Phase, Role, Sandbox
from tests.goals import target
from tests.rigs.notices import APP, GOAL, LIMIT, POD, Node, codes, reading, seen
from tests.unit.engine.build import EPC, RULE, SECOND, container, container_spec, creating, pod_spec, sandbox, started


def test_a_refused_charge_is_told_to_the_pod_with_limit_source_and_remedy() -> None:
    node = Node()
    assert node.sees(reading()) == []
    calls = node.sees(reading(usage=LIMIT, refused=3))

    assert codes(calls) == [("app", "charge-refused", 3)]
    assert (calls[0].namespace, calls[0].pod, calls[0].pod_uid) == ("shop", "pod-A", "A")
    assert calls[0].field_path == "spec.containers{app}"
    said = words(calls[0])
    assert (said.reason, said.is_warning) == ("ChargeRefused", True)
    assert said.note == (
        "The limit of sgx_epc of container app was reached: it is 4096 bytes and 4096 are in use. The kernel pages "
        "enclaves out to make room, which slows them, or refuses. The limit is from the pod's spec in the API server. "
        "Raise sgx.intel.com/epc in the pod's spec, or use less."
    )


def test_of_keys_which_nobody_pages_out_a_refusal_is_told_as_one() -> None:
    node = seen()
    (call,) = node.sees(reading(usage=LIMIT, refused=1))
    values = ("tdx", "tdx.intel.com/keys", 1, 1, "the pod's spec in the API server")
    assert words(replace(call, reason=Reason("charge-refused", values))).note == (
        "The kernel refused container app more tdx: its limit is 1 and 1 are in use. The limit is from the pod's spec "
        "in the API server. Raise tdx.intel.com/keys in the pod's spec, or use less."
    )


def test_what_was_refused_before_the_first_reading_is_told_of_a_container_that_was_seen_to_start() -> None:
    node = Node()
    assert codes(node.sees(reading(refused=9))) == [("app", "charge-refused", 9)]
    assert node.sees(reading(refused=9), after_s=QUIET_NS / SECOND) == []
    assert node.told.state.notices.begun == {}


@pytest.mark.parametrize("hears", [ev.Created, ev.Hooked], ids=lambda kind: str(kind.__name__))
def test_of_a_container_that_was_made_or_hooked_the_first_reading_counts_too(
    hears: Callable[[Sandbox, Container], ev.Event],
) -> None:
    node = Node()
    node.told(ev.PodSeen(pod_spec("B", container_spec("app", LIMIT))))
    node.told(hears(sandbox("B"), container("B", "app")))
    calls = node.hears({"/kubepods/podB/B-app": reading(refused=2)})
    assert codes(calls) == [("app", "charge-refused", 2)]


def test_what_was_refused_before_the_daemon_was_there_is_not_told() -> None:
    node = Node()
    listed(node, "B")
    path = "/kubepods/podB/B-app"
    for refused, tells in ((9, []), (9, []), (10, [("app", "charge-refused", 1)])):
        calls = node.hears({path: reading(refused=refused)}, after_s=1)
        assert codes(calls) == tells


def test_what_a_pods_cgroup_refused_before_its_first_reading_is_not_told() -> None:
    """Kubelet keeps the cgroup when it starts the pod's sandbox anew: what is counted there may be told already."""
    assert Node().sees(reading(), reading(refused=9)) == []


def test_a_container_that_ends_before_it_is_read_is_not_waited_for() -> None:
    node = Node()
    node.pod("B")
    assert list(node.told.state.notices.begun) == ["A-app", "B-app"]
    node.told(ev.Stopped(sandbox("A"), container("A", "app")))
    assert list(node.told.state.notices.begun) == ["B-app"]
    node.told(ev.SandboxRemoved(sandbox("B")))
    node.told(ev.Sampled({}, as_of=node.told.state.seq))
    assert node.told.state.notices.begun == {}


def test_while_nobody_is_told_nothing_is_kept_of_what_begins() -> None:
    node = Node()
    node.told(ev.SettingsChanged(EngineSettings(limits=RULE, kube_events=False)))
    assert node.told.state.notices.begun == {}
    node.pod("B")
    assert node.told.state.notices.begun == {}


def test_the_pods_own_limit_refusing_is_told_of_the_pod() -> None:
    node = seen()
    calls = node.sees(reading(), reading(usage=LIMIT, refused=2))
    assert codes(calls) == [("", "charge-refused", 2)]
    assert calls[0].field_path == ""
    assert words(calls[0]).note.startswith("The limit of sgx_epc of the pod as a whole was reached: it is ")


def test_without_local_counters_a_containers_refusals_are_told_once_and_not_at_the_pod_too() -> None:
    node = Node()
    node.sees(reading(local=False), reading(local=False))
    calls = node.sees(reading(refused=1, local=False), reading(refused=1, local=False))
    assert codes(calls) == [("app", "charge-refused", 1)]


def drifts(node: Node, found: int | None) -> list[PodEvent]:
    """One round of drift and repair, as slots and sampler make it."""
    calls = node.sees(reading(limit=found))
    node.told(ev.Reached((GOAL,), (GOAL,)))
    return calls + node.sees(reading())


def test_a_drift_is_told_once_it_is_repaired_with_what_was_found() -> None:
    node = seen()
    (call,) = drifts(node, None)
    said = words(call)
    assert (said.reason, call.count) == ("LimitRestored", 1)
    assert said.note.startswith(
        "Something else had changed the limit of sgx_epc of container app to max. Nodeward wrote 4096 bytes back"
    )


def test_a_limit_that_was_not_there_before_the_first_write_is_no_drift() -> None:
    node = Node()
    node.told(ev.PodSeen(pod_spec("A", container_spec("app", 2 * LIMIT))))
    assert node.sees(reading()) == []
    node.told(ev.Reached((GOAL,), (GOAL,)))
    assert node.sees(reading(limit=2 * LIMIT), reading(limit=2 * LIMIT)) == []


def test_a_drift_that_comes_back_after_three_repairs_is_told_as_not_enforced() -> None:
    node = seen()
    calls = [call for _ in range(3) for call in drifts(node, 1 << 20)]
    assert codes(calls) == [("app", "limit-restored", 1)]
    assert node.sees(reading(limit=1 << 20)) == []
    (call,) = node.sees(reading(limit=1 << 20))
    said = words(call)
    assert said.reason == "LimitNotEnforced"
    assert "is 1048576 bytes in the kernel and not 4096 bytes" in said.note


def test_a_kernel_without_the_resource_is_told_once_in_half_an_hour_to_the_container_alone() -> None:
    node = Node(capacity=0)
    nothing = ev.MiscReading()
    assert node.sees(nothing, nothing) == []
    (call,) = node.sees(nothing, nothing)
    said = words(call)
    assert said.reason == "LimitNotEnforced"
    assert "this node's kernel has no misc resource sgx_epc" in said.note
    assert "pods with sgx.intel.com/epc do not start here" in said.note
    node.ends(call)
    for _ in range(20):
        assert node.sees(nothing, nothing, after_s=80) == []
    (again,) = node.sees(nothing, nothing, after_s=AGAIN_NS / SECOND)
    assert (again.series, again.count) == (call.id, 2)


def test_a_controller_that_is_off_is_told_when_it_is_still_off() -> None:
    node = seen()
    off = reading(controller=False)
    assert node.sees(off) == []
    (call,) = node.sees(off)
    assert "the misc controller is off in its cgroup" in words(call).note


def test_what_is_still_so_is_told_where_a_pass_says_only_that_it_is_the_same() -> None:
    node = seen()
    node.sees(reading(controller=False))
    calls = node.hears({}, rest_same=True, after_s=1)
    assert codes(calls) == [("app", "controller-off", 1)]


def test_a_limit_whose_processes_are_elsewhere_is_told_once_it_was_so_twice() -> None:
    node = Node()
    outside = replace(reading(), outside=True)
    assert node.sees(reading()) == []
    assert node.sees(outside) == []
    (call,) = node.sees(outside)
    assert codes([call]) == [("app", "processes-outside", 1)]
    assert words(call)[:2] == ("LimitNotEnforced", True)
    assert words(call).note == (
        "The limit of sgx_epc of container app, 4096 bytes from the pod's spec in the API server, is in the kernel and "
        "does not hold: the processes are not in this cgroup of the misc hierarchy (cgroup v1), since the OCI runtime "
        "does not join it. Install one that does (runc from 1.1.6 on) on this node and start the container anew, or "
        "use cgroup v2."
    )
    assert node.sees(outside) == []


def test_a_limit_that_holds_again_or_is_another_is_not_told_to_be_outside() -> None:
    node = Node()
    outside = replace(reading(), outside=True)
    node.sees(outside)
    assert node.sees(reading()) == []
    assert node.sees(replace(reading(limit=None), outside=True)) == []
    assert codes(node.sees(outside)) == [("app", "limit-restored", 1)]  # it is right only since now


def test_a_write_that_fails_is_told_with_its_error() -> None:
    node = seen()
    node.sees(reading(limit=None))
    node.told(ev.Missed(((GOAL, "Permission denied"),)))
    (call,) = node.sees(reading(limit=None))
    assert "misc.max could not be written (Permission denied)" in words(call).note


TWO = LimitsSettings(resources={"sgx.intel.com/epc": EPC, "tdx.intel.com/keys": "tdx"})


def two(capacity: dict[str, int]) -> Node:
    """A node on which the container `app` of pod A declares two resources, of which the kernel has `capacity`."""
    node = Node(TWO)
    node.told(ev.CapacityRead(controller=True, capacity=capacity))
    node.told(ev.PodSeen(pod_spec("A", ContainerSpec("app", Role.REGULAR, {EPC: LIMIT, "tdx": 1}))))
    written = tuple(Target("misc.max", path, name) for name in (EPC, "tdx") for path in (POD, APP))
    node.told(ev.Reached(written, written))
    return node


def said_of(calls: list[PodEvent]) -> list[tuple[str, str | int]]:
    return [(call.reason.code, call.reason.values[0]) for call in calls]


def test_each_resource_that_the_kernel_lacks_is_told_of() -> None:
    node, nothing = two({}), ev.MiscReading()
    node.sees(nothing, nothing)
    assert said_of(node.sees(nothing, nothing)) == [("not-supported", EPC), ("not-supported", "tdx")]
    assert node.sees(nothing, nothing) == []


def test_what_does_not_hold_is_told_beside_what_the_kernel_lacks() -> None:
    node = two({"tdx": 2})
    node.sees(reading(controller=False), ev.MiscReading(limit={"tdx": 1}))
    calls = node.sees(reading(controller=False), ev.MiscReading(limit={"tdx": 1}))
    assert said_of(calls) == [("not-supported", EPC), ("controller-off", "tdx")]


def test_each_limit_that_cannot_be_written_is_told_of() -> None:
    node, none = two({EPC: 1 << 30, "tdx": 2}), ev.MiscReading()
    right = ev.MiscReading(limit={EPC: LIMIT, "tdx": 1})
    node.sees(none, right)
    node.told(ev.Missed(tuple((target(f"misc.max:{name}:{APP}"), "Permission denied") for name in (EPC, "tdx"))))
    assert said_of(node.sees(none, right)) == [("write-failed", EPC), ("write-failed", "tdx")]


def test_a_refusal_of_one_resource_does_not_count_up_the_event_of_another() -> None:
    node = two({EPC: 1 << 30, "tdx": 2})

    def refused(epc: int, tdx: int) -> list[PodEvent]:
        counts = {EPC: epc, "tdx": tdx}
        right = ev.MiscReading(limit={EPC: LIMIT, "tdx": 1})
        return node.sees(replace(right, refusals=counts, refusals_local=counts), right)

    refused(0, 0)
    (first,) = refused(1, 0)
    (other,) = refused(1, 1)
    assert said_of([first, other]) == [("charge-refused", EPC), ("charge-refused", "tdx")]
    assert (other.series, other.count) == (other.id, 1)


def test_a_limit_that_came_back_though_it_is_no_longer_wanted_hides_nothing_that_is_to_be_told() -> None:
    node = Node(TWO)
    both = pod_spec("B", ContainerSpec("app", Role.REGULAR, {EPC: LIMIT, "tdx": 1}))
    node.told(ev.CapacityRead(controller=True, capacity={EPC: 1 << 30, "tdx": 2}))
    node.told(ev.RuntimeConnected("containerd", "v2", multi_line=True))
    for event in (ev.PodSeen(both), creating("B", "app"), started("B", "app")):
        node.told(event)
    node.told(ev.PodSeen(pod_spec("B", container_spec("app", LIMIT))))
    path = "/kubepods/podB/B-app"
    written = tuple(Target("misc.max", path, name) for name in (EPC, "tdx"))

    def pass_of(limit: dict[str, int], refused: int) -> Decision:
        node.told.at_ns += SECOND
        read = ev.MiscReading(limit=limit, refusals_local={EPC: refused})
        return node.told(ev.Sampled({path: read}, as_of=node.told.state.seq))

    node.told(ev.Reached(written, written))
    pass_of({EPC: LIMIT}, 0)
    assert pass_of({EPC: LIMIT, "tdx": 1}, 0).goals
    node.told(ev.Reached(written, written))
    decision = pass_of({EPC: LIMIT}, 1)
    assert (decision.faults, said_of(list(decision.calls))) == ((), [("charge-refused", EPC)])


def listed(node: Node, uid: str) -> None:
    running = replace(container(uid, "app"), phase=Phase.RUNNING)
    node.told(ev.PodSeen(pod_spec(uid, container_spec("app", LIMIT))))
    node.told(ev.Listed((sandbox(uid),), (running,), as_of=node.told.state.seq, complete=False))


@pytest.mark.parametrize(("written", "tells"), [(True, 1), (False, 0)], ids=["ran without it", "had kept it"])
def test_an_adopted_container_is_told_if_it_ran_without_its_limit(written: bool, tells: int) -> None:
    node = Node()
    listed(node, "B")
    goal = target(f"misc.max:{EPC}:/kubepods/podB/B-app")
    calls = node.told(ev.Reached((goal,), (goal,) if written else ())).calls
    assert [words(call)[:2] for call in calls] == [("LimitSetLate", False)] * tells
    assert node.told.state.notices.newcomers == {}
    assert node.told(ev.Reached((goal,), (goal,))).calls == ()


def test_a_container_whose_start_was_seen_is_not_adopted() -> None:
    assert Node().told(ev.Reached((GOAL,), (GOAL,))).calls == ()


def test_a_container_whose_start_was_seen_is_not_adopted_by_a_list_either() -> None:
    node = Node()
    running = replace(container("A", "app"), phase=Phase.RUNNING)
    node.told(ev.Listed((sandbox("A"),), (running,), as_of=node.told.state.seq))
    assert node.told(ev.Reached((GOAL,), (GOAL,))).calls == ()


def test_a_container_that_ends_before_it_is_adopted_is_forgotten() -> None:
    node = Node()
    listed(node, "B")
    assert list(node.told.state.notices.newcomers) == ["B-app"]
    node.told(ev.Stopped(sandbox("B"), container("B", "app")))
    assert node.told.state.notices.newcomers == {}


def test_a_static_pod_is_told_at_its_mirror_pod_by_the_uid_that_kubelet_uses() -> None:
    node = Node()
    node.pod("mirror", config_hash="hash")
    path = "/kubepods/podhash/hash-app"
    for refused in (0, 1):
        calls = node.hears({path: reading(refused=refused)}, after_s=1)
    assert [(call.pod, call.pod_uid) for call in calls] == [("pod-hash", "hash")]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Node(kube_events=False),
        lambda: Node(replace(RULE, mode=Mode.OBSERVE)),
        lambda: Node(replace(RULE, mode=Mode.OFF)),
    ],
    ids=["kube.events is false", "observe", "off"],
)
def test_nobody_is_told_anything(make: Callable[[], Node]) -> None:
    node = make()
    node.sees(reading())
    assert node.sees(reading(refused=1)) == []
    assert node.told.state.notices.notices == {}


@pytest.mark.parametrize("role", [Role.INIT, Role.SIDECAR, Role.EPHEMERAL], ids=lambda role: role.value)
def test_the_field_path_says_where_in_the_spec(role: Role) -> None:
    node = Node()
    node.pod("B", role=role)
    path = "/kubepods/podB/B-app"
    for refused in (0, 1):
        calls = node.hears({path: reading(refused=refused)}, after_s=1)
    group = "ephemeralContainers" if role is Role.EPHEMERAL else "initContainers"
    assert [call.field_path for call in calls] == [f"spec.{group}{{app}}"]


def test_each_start_of_a_container_counts_on_the_same_event() -> None:
    node = Node()
    (first,) = node.sees(reading(refused=9))
    node.ends(first)
    again = replace(container("A", "app"), id=ContainerId("A-app-2"), cgroups_path=f"{POD}/A-app-2")
    node.told(ev.Started(sandbox("A"), again))
    node.told.at_ns += QUIET_NS
    calls = node.hears({again.cgroups_path: reading(refused=9)})
    assert [(call.series, call.count) for call in calls] == [(first.id, 18)]


def test_refusals_are_counted_and_sent_at_most_once_in_five_minutes_on_the_same_event() -> None:
    node = seen()
    (first,) = node.sees(reading(refused=1))
    node.ends(first)
    for second in range(1, 299):
        assert node.sees(reading(refused=1 + second)) == []
    (again,) = node.sees(reading(refused=300), after_s=2)
    assert (again.series, again.count) == (first.id, 300)
    assert again.id != first.id
    assert again.first_ns == first.first_ns
    assert again.last_ns > first.last_ns
    node.ends(again)
    assert node.sees(reading(refused=300), after_s=600) == []  # nothing new


def test_what_is_left_unsent_within_the_quiet_time_is_sent_when_it_is_over() -> None:
    node = seen()
    node.ends(node.sees(reading(refused=1))[0])
    assert node.sees(reading(refused=5)) == []
    (late,) = node.sees(reading(refused=5), after_s=QUIET_NS / SECOND)
    assert late.count == 5


def test_an_event_that_was_not_taken_is_not_sent_again_and_the_next_one_is_made_anew() -> None:
    node = seen()
    (first,) = node.sees(reading(refused=1))
    node.ends(first, "403")
    assert node.sees(reading(refused=1), after_s=2000) == []
    (again,) = node.sees(reading(refused=2))
    assert again.series == again.id


def test_nothing_of_a_notice_is_sent_while_the_outcome_of_the_last_is_not_known() -> None:
    node = seen()
    (first,) = node.sees(reading(refused=1))
    assert node.sees(reading(refused=2), after_s=600) == []
    node.ends(first)
    (again,) = node.sees(reading(refused=2))
    assert again.series == first.id


def test_while_the_api_server_is_away_things_are_counted_and_sent_once_when_it_is_back() -> None:
    node = seen()
    node.told(ev.ApiLost("gone"))
    assert node.sees(reading(refused=1)) == []
    assert node.sees(reading(refused=4)) == []
    node.told(ev.ApiBack())
    assert codes(node.sees(reading(refused=4))) == [("app", "charge-refused", 4)]


def test_a_node_sends_a_bounded_number_and_the_rest_later() -> None:
    node = Node()
    uids = [f"p{number}" for number in range(MOST_SENT + 20)]
    for uid in uids:
        node.pod(uid)
    paths = [f"/kubepods/pod{uid}/{uid}-app" for uid in uids]

    def passes(refused: int, after_s: float = 1.0) -> list[PodEvent]:
        return node.hears(dict.fromkeys(paths, reading(refused=refused)), after_s)

    passes(0)
    first = passes(1)
    assert len(first) == MOST_SENT
    assert passes(1) == []
    later = passes(1, QUIET_NS / SECOND)
    assert len(later) == 20
    assert {call.pod for call in first} | {call.pod for call in later} == {f"pod-{uid}" for uid in uids}


def test_of_more_than_a_node_sends_those_that_waited_longest_come_first() -> None:
    node = Node()
    uids = [f"p{number}" for number in range(MOST_SENT + 20)]
    for uid in uids:
        node.pod(uid)

    def told(refused: int) -> list[str]:
        node.told.at_ns += QUIET_NS
        readings = {f"/kubepods/pod{uid}/{uid}-app": reading(refused=refused) for uid in uids}
        calls = node.hears(readings)
        for call in calls:
            node.ends(call)
        return [call.pod_uid for call in calls]

    assert told(1) == uids[:MOST_SENT]
    assert told(2) == uids[MOST_SENT:] + uids[: MOST_SENT - 20]
    assert told(3) == uids[MOST_SENT - 20 : MOST_SENT] + uids[: MOST_SENT - 20]
    assert told(4)[:20] == uids[MOST_SENT:]


def test_what_has_no_room_is_counted() -> None:
    node = Node()
    node.told(ev.ApiLost("away"))
    uids = [f"p{number}" for number in range(MOST_NOTICES + 7)]
    spec = pod_spec("big", *(container_spec(uid, LIMIT) for uid in uids))
    node.told(ev.PodSeen(spec))
    running = tuple(replace(container("big", uid), phase=Phase.RUNNING) for uid in uids)
    node.told(ev.Listed((sandbox("big"),), running, as_of=node.told.state.seq, complete=False))
    for refused in (0, 1):
        readings = {one.cgroups_path: reading(refused=refused) for one in running}
        node.told.at_ns += SECOND
        node.told(ev.Sampled(readings, as_of=node.told.state.seq))
    assert len(node.told.state.notices.notices) == MOST_NOTICES
    assert node.told.state.notices.left_out == 7


def test_notices_end_with_their_pod_and_with_time() -> None:
    node = seen()
    node.ends(node.sees(reading(refused=1))[0])
    node.sees(reading(refused=1), after_s=3001)
    assert node.told.state.notices.notices == {}
    node.sees(reading(refused=2))
    assert len(node.told.state.notices.notices) == 1
    node.told(ev.SandboxRemoved(sandbox("A")))
    node.told(ev.Sampled({}, as_of=node.told.state.seq))
    assert node.told.state.notices.notices == {}


def test_settings_that_switch_events_off_end_what_waits() -> None:
    node = Node()
    node.told(ev.ApiLost("away"))
    node.sees(reading())
    node.sees(reading(refused=1))
    assert node.told.state.notices.notices
    node.told(ev.SettingsChanged(EngineSettings(limits=replace(RULE, mode=Mode.OBSERVE), kube_events=True)))
    assert node.told.state.notices.notices == {}
