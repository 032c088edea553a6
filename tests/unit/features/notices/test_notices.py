"""What pods are told by Kubernetes Events: which, in what words, how often, and how many at once."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import pytest

from nodeward.core import events as ev
from nodeward.core.decision import Decision, PodEvent, Target
from nodeward.core.modes import Mode
from nodeward.core.workload import Container, ContainerId, ContainerSpec, Phase, Role, Sandbox
from nodeward.features.limits.settings import LimitsSettings
from nodeward.features.notices.step import AGAIN_NS, MOST_NOTICES, MOST_SENT, QUIET_NS
from nodeward.features.notices.words import told as words
from nodeward.features.root import SettingsChanged, State
from nodeward.features.settings import EngineSettings
from tests.goals import target
from tests.unit.features import build

POD, APP = "/kubepods/podA", "/kubepods/podA/A-app"
GOAL = target(f"misc.max:{build.EPC}:{APP}")
LIMIT = 4096
QUIET_S = QUIET_NS / build.SECOND


def reading(
    limit: int | None = LIMIT, usage: int = 0, refused: int = 0, local: bool = True, outside: bool = False
) -> ev.MiscReading:
    return ev.MiscReading(
        limit={} if limit is None else {build.EPC: limit},
        usage={build.EPC: usage},
        refusals={build.EPC: refused},
        refusals_local={build.EPC: refused} if local else {},
        outside=outside,
    )


def paths(uids: Iterable[str]) -> list[str]:
    return [f"/kubepods/pod{uid}/{uid}-app" for uid in uids]


class Node:
    """An engine that may tell pods, with the pod A whose container `app` declares LIMIT and holds it."""

    def __init__(self, rule: LimitsSettings = build.RULE, capacity: int = 1 << 30, kube_events: bool = True) -> None:
        self.told = build.Told(State(settings=EngineSettings(limits=rule, kube_events=kube_events)))
        self.told(ev.CapacityRead(controller=True, capacity={build.EPC: capacity} if capacity else {}))
        self.told(ev.ApiBack())
        self.pod("A")

    def pod(self, uid: str, config_hash: str = "", role: Role = Role.REGULAR) -> None:
        self.told(ev.PodSeen(build.pod_spec(uid, build.container_spec("app", LIMIT, role), config_hash=config_hash)))
        of = config_hash or uid
        self.told(build.creating(of, "app"))
        self.told(build.started(of, "app"))
        path = f"/kubepods/pod{of}"
        self.told(ev.Reached((target(f"misc.max:{build.EPC}:{path}"), target(f"misc.max:{build.EPC}:{path}/{of}-app"))))

    def listed(self, uid: str, *names: str) -> list[str]:
        """A pod with these containers, which ran before the daemon did; and their cgroups."""
        there = tuple(replace(build.container(uid, name), phase=Phase.RUNNING) for name in names or ("app",))
        self.told(ev.PodSeen(build.pod_spec(uid, *(build.container_spec(one.name, LIMIT) for one in there))))
        self.told(ev.Listed((build.sandbox(uid),), there, as_of=self.told.state.seq, complete=False))
        return [one.cgroups_path for one in there]

    def sees(self, app: ev.MiscReading, pod: ev.MiscReading | None = None, after_s: float = 1.0) -> list[PodEvent]:
        return self.hears({POD: pod or reading(), APP: app}, after_s)

    def hears(
        self, readings: Mapping[str, ev.MiscReading], after_s: float = 1.0, rest_same: bool = False
    ) -> list[PodEvent]:
        self.told.at_ns += int(after_s * build.SECOND)
        return list(self.told(ev.Sampled(readings, as_of=self.told.state.seq, rest_same=rest_same)).calls)

    def ends(self, call: PodEvent, error: str = "") -> None:
        self.told(ev.CallEnded(call.id, error))


def codes(calls: Iterable[PodEvent]) -> list[tuple[str, str, int]]:
    return [(call.container, call.reason.code, call.count) for call in calls]


def seen() -> Node:
    node = Node()
    node.sees(reading())
    return node


WELL, OFF, NOTHING, GONE = reading(), ev.MiscReading(controller=False), ev.MiscReading(), reading(limit=None)
OUTSIDE, WRONG = reading(outside=True), reading(limit=1 << 20)
Pass = ev.MiscReading | tuple[ev.MiscReading, ev.MiscReading]
REFUSED = "charge-refused"


@pytest.mark.parametrize(
    ("passes", "tells", "note"),
    [
        pytest.param(
            [WELL, reading(usage=LIMIT, refused=3)],
            ("app", REFUSED, 3),
            "The limit of sgx_epc of container app was reached: it is 4096 bytes and 4096 are in use. The kernel pages "
            "enclaves out to make room, which slows them, or refuses. The limit is from the pod's spec in the API "
            "server. Raise sgx.intel.com/epc in the pod's spec, or use less.",
            id="a refused charge",
        ),
        pytest.param([(WELL, reading(refused=9))], None, "", id="a pod's cgroup may have been told of before"),
        pytest.param(
            [WELL, (WELL, reading(usage=LIMIT, refused=2))],
            ("", REFUSED, 2),
            "The limit of sgx_epc of the pod as a whole was reached: it is ",
            id="the pod's own limit",
        ),
        pytest.param(
            [(reading(local=False),) * 2, (reading(refused=1, local=False),) * 2],
            ("app", REFUSED, 1),
            "",
            id="without local counters it is told once and not of the pod too",
        ),
        pytest.param(
            [WELL, OFF, OFF],
            ("app", "controller-off", 1),
            "the misc controller is off in its cgroup",
            id="the controller is still off",
        ),
        pytest.param(
            [WELL, OUTSIDE, OUTSIDE],
            ("app", "processes-outside", 1),
            "The limit of sgx_epc of container app, 4096 bytes from the pod's spec in the API server, is in the kernel "
            "and does not hold: the processes are not in this cgroup of the misc hierarchy (cgroup v1), since the OCI "
            "runtime does not join it. Install one that does (runc from 1.1.6 on) on this node and start the container "
            "anew, or use cgroup v2.",
            id="processes are still outside",
        ),
        pytest.param(
            [OUTSIDE, WELL, reading(limit=None, outside=True), OUTSIDE],
            ("app", "limit-restored", 1),
            "",
            id="it holds again, is another, and is right only since now",
        ),
    ],
)
def test_a_container_is_told_once_what_is_so(passes: list[Pass], tells: tuple[str, str, int] | None, note: str) -> None:
    node, calls = Node(), list[PodEvent]()
    for one in passes:
        assert calls == [], "not before the last of them"
        calls = node.sees(*one) if isinstance(one, tuple) else node.sees(one)

    assert codes(calls) == ([] if tells is None else [tells])
    assert all(note in words(call).note and words(call).is_warning for call in calls)
    if note:
        last = passes[-1]
        assert (node.sees(*last) if isinstance(last, tuple) else node.sees(last)) == []


def test_what_is_still_so_is_told_where_a_pass_says_only_that_it_is_the_same() -> None:
    node = seen()
    node.sees(OFF)
    assert codes(node.hears({}, rest_same=True)) == [("app", "controller-off", 1)]


def test_an_event_is_of_its_pod_and_names_where_in_the_spec() -> None:
    node = seen()
    (call,) = node.sees(reading(refused=1))
    assert (call.namespace, call.pod, call.pod_uid) == ("shop", "pod-A", "A")
    assert call.field_path == "spec.containers{app}"
    (call,) = node.sees(reading(refused=1), reading(refused=1))
    assert call.field_path == ""


@pytest.mark.parametrize(
    ("role", "group"),
    [(Role.INIT, "initContainers"), (Role.SIDECAR, "initContainers"), (Role.EPHEMERAL, "ephemeralContainers")],
)
def test_a_static_pod_is_told_at_its_mirror_pod_by_the_uid_that_kubelet_uses(role: Role, group: str) -> None:
    node = Node()
    node.pod("mirror", config_hash="hash", role=role)
    (call,) = node.hears({"/kubepods/podhash/hash-app": reading(refused=1)})
    assert (call.pod, call.pod_uid, call.field_path) == ("pod-hash", "hash", f"spec.{group}{{app}}")


@pytest.mark.parametrize("hears", [ev.Created, ev.Hooked], ids=lambda kind: str(kind.__name__))
def test_first_reading_of_a_made_or_hooked_container_counts(
    hears: Callable[[Sandbox, Container], ev.Event],
) -> None:
    node = Node()
    node.told(ev.PodSeen(build.pod_spec("B", build.container_spec("app", LIMIT))))
    node.told(hears(build.sandbox("B"), build.container("B", "app")))
    assert codes(node.hears({"/kubepods/podB/B-app": reading(refused=2)})) == [("app", REFUSED, 2)]


def test_what_was_refused_before_the_daemon_was_there_is_not_told() -> None:
    node = Node()
    (path,) = node.listed("B")
    for refused, tells in ((9, []), (9, []), (10, [("app", REFUSED, 1)])):
        assert codes(node.hears({path: reading(refused=refused)})) == tells


def test_nothing_is_kept_of_what_begins_once_it_was_read_or_has_ended_or_nobody_is_told() -> None:
    node = Node()
    node.pod("B")
    assert list(node.told.state.notices.begun) == ["A-app", "B-app"]
    node.told(ev.Stopped(build.sandbox("A"), build.container("A", "app")))
    assert list(node.told.state.notices.begun) == ["B-app"]
    node.told(ev.SandboxRemoved(build.sandbox("B")))
    node.told(ev.Sampled({}, as_of=node.told.state.seq))
    assert node.told.state.notices.begun == {}
    assert seen().told.state.notices.begun == {}

    node = Node()
    node.told(SettingsChanged(EngineSettings(limits=build.RULE, kube_events=False)))
    assert node.told.state.notices.begun == {}
    node.pod("B")
    assert node.told.state.notices.begun == {}


def drifts(node: Node, found: int | None) -> list[PodEvent]:
    """One round of drift and repair, as slots and sampler make it."""
    calls = node.sees(reading(limit=found))
    node.told(ev.Reached((GOAL,), (GOAL,)))
    return calls + node.sees(WELL)


def test_a_drift_is_told_once_it_is_repaired_with_what_was_found() -> None:
    (call,) = drifts(seen(), None)
    assert (words(call).reason, call.count) == ("LimitRestored", 1)
    assert words(call).note.startswith(
        "Something else had changed the limit of sgx_epc of container app to max. Nodeward wrote 4096 bytes back"
    )


def test_a_limit_that_was_not_there_before_the_first_write_is_no_drift() -> None:
    node = Node()
    node.told(ev.PodSeen(build.pod_spec("A", build.container_spec("app", 2 * LIMIT))))
    assert node.sees(WELL) == []
    node.told(ev.Reached((GOAL,), (GOAL,)))
    assert node.sees(reading(limit=2 * LIMIT), reading(limit=2 * LIMIT)) == []


def test_a_drift_that_comes_back_after_three_repairs_is_told_as_not_enforced() -> None:
    node = seen()
    calls = [call for _ in range(3) for call in drifts(node, 1 << 20)]
    assert codes(calls) == [("app", "limit-restored", 1)]
    assert node.sees(WRONG) == []
    (call,) = node.sees(WRONG)
    assert words(call).reason == "LimitNotEnforced"
    assert "is 1048576 bytes in the kernel and not 4096 bytes" in words(call).note


def test_a_kernel_without_the_resource_is_told_once_in_half_an_hour_to_the_container_alone() -> None:
    node = Node(capacity=0)
    assert node.sees(NOTHING, NOTHING) == []
    (call,) = node.sees(NOTHING, NOTHING)
    assert words(call).reason == "LimitNotEnforced"
    assert "this node's kernel has no misc resource sgx_epc" in words(call).note
    node.ends(call)
    for _ in range(20):
        assert node.sees(NOTHING, NOTHING, after_s=80) == []
    (again,) = node.sees(NOTHING, NOTHING, after_s=AGAIN_NS / build.SECOND)
    assert (again.series, again.count) == (call.id, 2)


TWO = LimitsSettings(resources={"sgx.intel.com/epc": build.EPC, "tdx.intel.com/keys": "tdx"})
BOTH = ev.MiscReading(limit={build.EPC: LIMIT, "tdx": 1})
ALL = {build.EPC: 1 << 30, "tdx": 2}


def two(capacity: dict[str, int]) -> Node:
    """A node on which the container `app` of pod A declares two resources, of which the kernel has `capacity`."""
    node = Node(TWO)
    node.told(ev.CapacityRead(controller=True, capacity=capacity))
    node.told(ev.PodSeen(build.pod_spec("A", ContainerSpec("app", Role.REGULAR, {build.EPC: LIMIT, "tdx": 1}))))
    written = tuple(Target("misc.max", path, name) for name in (build.EPC, "tdx") for path in (POD, APP))
    node.told(ev.Reached(written, written))
    return node


def said_of(calls: Iterable[PodEvent]) -> list[tuple[str, str | int]]:
    return [(call.reason.code, call.reason.values[0]) for call in calls]


LACKED = [("not-supported", build.EPC), ("not-supported", "tdx")]
NOT_WRITTEN = [("write-failed", build.EPC), ("write-failed", "tdx")]


@pytest.mark.parametrize(
    ("capacity", "app", "pod", "tells"),
    [
        ({}, NOTHING, NOTHING, LACKED),
        ({"tdx": 2}, OFF, ev.MiscReading(limit={"tdx": 1}), [("not-supported", build.EPC), ("controller-off", "tdx")]),
        (ALL, OFF, BOTH, [("controller-off", build.EPC)]),
        (ALL, NOTHING, BOTH, NOT_WRITTEN),
    ],
    ids=["the kernel lacks both", "the kernel lacks one", "off for both is told once", "neither can be written"],
)
def test_each_of_two_resources_is_told_of(
    capacity: dict[str, int], app: ev.MiscReading, pod: ev.MiscReading, tells: list[tuple[str, str]]
) -> None:
    node = two(capacity)
    node.sees(app, pod)
    if tells is NOT_WRITTEN:
        node.told(
            ev.Missed(tuple((target(f"misc.max:{name}:{APP}"), "Permission denied") for name in (build.EPC, "tdx")))
        )
    calls = node.sees(app, pod)
    assert said_of(calls) == tells
    assert all("misc.max could not be written (Permission denied)" in words(one).note for one in calls) is (
        tells is NOT_WRITTEN
    )
    assert node.sees(app, pod) == []


def test_a_refusal_of_one_resource_does_not_count_up_the_event_of_another() -> None:
    node = two(ALL)

    def refused(epc: int, tdx: int) -> list[PodEvent]:
        counts = {build.EPC: epc, "tdx": tdx}
        return node.sees(replace(BOTH, usage={"tdx": 1}, refusals=counts, refusals_local=counts), BOTH)

    refused(0, 0)
    (first,) = refused(1, 0)
    (other,) = refused(1, 1)
    assert said_of([first, other]) == [(REFUSED, build.EPC), (REFUSED, "tdx")]
    assert (other.series, other.count) == (other.id, 1)
    assert words(other).note == (
        "The kernel refused container app more tdx: its limit is 1 and 1 are in use. The limit is from the pod's spec "
        "in the API server. Raise tdx.intel.com/keys in the pod's spec, or use less."
    )


def test_a_limit_that_came_back_though_it_is_no_longer_wanted_hides_nothing_that_is_to_be_told() -> None:
    node = two(ALL)
    node.told(ev.RuntimeConnected("containerd", "v2", multi_line=True))
    both = build.pod_spec("B", ContainerSpec("app", Role.REGULAR, {build.EPC: LIMIT, "tdx": 1}))
    for event in (ev.PodSeen(both), build.creating("B", "app"), build.started("B", "app")):
        node.told(event)
    node.told(ev.PodSeen(build.pod_spec("B", build.container_spec("app", LIMIT))))
    (path,) = paths("B")
    written = tuple(Target("misc.max", path, name) for name in (build.EPC, "tdx"))

    def pass_of(limit: dict[str, int], refused: int) -> Decision:
        node.told.at_ns += build.SECOND
        read = ev.MiscReading(limit=limit, refusals_local={build.EPC: refused})
        return node.told(ev.Sampled({path: read}, as_of=node.told.state.seq))

    node.told(ev.Reached(written, written))
    pass_of({build.EPC: LIMIT}, 0)
    assert pass_of({build.EPC: LIMIT, "tdx": 1}, 0).goals
    node.told(ev.Reached(written, written))
    decision = pass_of({build.EPC: LIMIT}, 1)
    assert (decision.faults, said_of(decision.calls)) == ((), [(REFUSED, build.EPC)])


@pytest.mark.parametrize(("written", "tells"), [(True, 1), (False, 0)], ids=["ran without it", "had kept it"])
def test_an_adopted_container_is_told_if_it_ran_without_its_limit(written: bool, tells: int) -> None:
    node = Node()
    (path,) = node.listed("B")
    goal = target(f"misc.max:{build.EPC}:{path}")
    calls = node.told(ev.Reached((goal,), (goal,) if written else ())).calls
    assert [words(call)[:2] for call in calls] == [("LimitSetLate", False)] * tells
    assert node.told.state.notices.newcomers == {}
    assert node.told(ev.Reached((goal,), (goal,))).calls == ()


def test_who_was_seen_to_start_is_not_adopted_and_who_ends_before_is_forgotten() -> None:
    node = Node()
    assert node.told(ev.Reached((GOAL,), (GOAL,))).calls == ()
    node.listed("A")
    assert node.told(ev.Reached((GOAL,), (GOAL,))).calls == ()
    node.listed("B")
    assert list(node.told.state.notices.newcomers) == ["B-app"]
    node.told(ev.Stopped(build.sandbox("B"), build.container("B", "app")))
    assert node.told.state.notices.newcomers == {}


@pytest.mark.parametrize(
    "make",
    [
        lambda: Node(kube_events=False),
        lambda: Node(replace(build.RULE, mode=Mode.OBSERVE)),
        lambda: Node(replace(build.RULE, mode=Mode.OFF)),
    ],
    ids=["kube.events is false", "observe", "off"],
)
def test_nobody_is_told_anything(make: Callable[[], Node]) -> None:
    node = make()
    assert node.sees(reading(refused=1)) == []
    assert node.told.state.notices.notices == {}


def test_each_start_of_a_container_counts_on_the_same_event() -> None:
    node = Node()
    (first,) = node.sees(reading(refused=9))
    node.ends(first)
    again = replace(build.container("A", "app"), id=ContainerId("A-app-2"), cgroups_path=f"{POD}/A-app-2")
    node.told(ev.Started(build.sandbox("A"), again))
    calls = node.hears({again.cgroups_path: reading(refused=9)}, after_s=QUIET_S)
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
    assert node.sees(reading(refused=305)) != []
    assert node.sees(reading(refused=306), after_s=600) == [], "the outcome of the last is not known"


def test_what_is_left_unsent_is_sent_when_the_quiet_time_is_over_or_the_api_server_is_back() -> None:
    node = seen()
    node.ends(node.sees(reading(refused=1))[0])
    assert node.sees(reading(refused=5)) == []
    (late,) = node.sees(reading(refused=5), after_s=QUIET_S)
    assert late.count == 5

    node = seen()
    node.told(ev.ApiLost("gone"))
    assert node.sees(reading(refused=1)) == node.sees(reading(refused=4)) == []
    node.told(ev.ApiBack())
    assert codes(node.sees(reading(refused=4))) == [("app", REFUSED, 4)]


def test_an_event_that_was_not_taken_is_not_sent_again_and_the_next_one_is_made_anew() -> None:
    node = seen()
    (first,) = node.sees(reading(refused=1))
    node.ends(first, "403")
    assert node.sees(reading(refused=1), after_s=2000) == []
    (again,) = node.sees(reading(refused=2))
    assert again.series == again.id


def test_a_node_sends_a_bounded_number_and_those_that_waited_longest_come_first() -> None:
    node = Node()
    uids = [f"p{number}" for number in range(MOST_SENT + 20)]
    for uid in uids:
        node.pod(uid)

    def told(refused: int, after_s: float = QUIET_S) -> list[str]:
        calls = node.hears(dict.fromkeys(paths(uids), reading(refused=refused)), after_s)
        for call in calls:
            node.ends(call)
        return [call.pod_uid for call in calls]

    assert told(1) == uids[:MOST_SENT]
    assert told(1, 1.0) == []
    assert told(2) == uids[MOST_SENT:] + uids[: MOST_SENT - 20]
    assert told(3) == uids[MOST_SENT - 20 : MOST_SENT] + uids[: MOST_SENT - 20]
    assert told(4)[:20] == uids[MOST_SENT:]


def test_what_has_no_room_is_counted() -> None:
    node = Node()
    node.told(ev.ApiLost("away"))
    crowd = node.listed("big", *(f"p{number}" for number in range(MOST_NOTICES + 7)))
    for refused in (0, 1):
        node.hears(dict.fromkeys(crowd, reading(refused=refused)))
    assert len(node.told.state.notices.notices) == MOST_NOTICES
    assert node.told.state.notices.left_out == 7


def test_notices_end_with_their_pod_with_time_and_with_the_setting() -> None:
    node = seen()
    node.ends(node.sees(reading(refused=1))[0])
    node.sees(reading(refused=1), after_s=3001)
    assert node.told.state.notices.notices == {}
    node.sees(reading(refused=2))
    assert len(node.told.state.notices.notices) == 1
    node.told(ev.SandboxRemoved(build.sandbox("A")))
    node.told(ev.Sampled({}, as_of=node.told.state.seq))
    assert node.told.state.notices.notices == {}

    node = Node()
    node.told(ev.ApiLost("away"))
    node.sees(reading(refused=1))
    assert node.told.state.notices.notices
    node.told(SettingsChanged(EngineSettings(limits=replace(build.RULE, mode=Mode.OBSERVE), kube_events=True)))
    assert node.told.state.notices.notices == {}
