"""Containers and pods by whoever tells of them: cgroups, the OCI hook, mirror pods and forged ones."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.contracts import cri_pb2, nri_pb2
from nodeward.core import events as ev
from nodeward.core.decision import Adjustment, Decision
from nodeward.core.events import FoundCgroup, MiscReading
from nodeward.core.modes import Mode
from nodeward.core.workload import Container, ContainerId, Phase, PodSpec, PodUid, Sandbox, SandboxId
from nodeward.features.limits.rows import CgroupRow
from nodeward.features.limits.settings import LimitsSettings
from nodeward.features.pods.found import ENDED, by_cgroups, is_known, pod_cgroups
from nodeward.features.root import SettingsChanged
from nodeward.neighbours.cri import mapping as cri_mapping
from nodeward.neighbours.hook.line import HookRequest, decode_request, encode_request
from nodeward.neighbours.hook.server import sandbox as hook_sandbox
from nodeward.neighbours.nri import mapping as nri_mapping
from nodeward.people.view import node_view
from tests.unit.features import build

POD = "/kubepods/podA"
APP, DB, PAUSE = "A-app", "A-db", "s-A"


def found(*names: str) -> ev.CgroupsFound:
    return ev.CgroupsFound(tuple(ev.FoundCgroup(f"{POD}/{n}", ContainerId(n), PodUid("A")) for n in names), as_of=0)


def spec(**ids: str) -> PodSpec:
    """Pod A: `app` declares 5, `db` nothing; with these ids in its status."""
    return replace(build.pod_spec("A", build.container_spec("app", 5), build.container_spec("db")), container_ids=ids)


def seen(pod: PodSpec) -> ev.Event:
    return ev.PodSeen(pod)


def listed(*pods: PodSpec, as_of: int = 1 << 40) -> ev.Event:
    return ev.PodsListed(pods, as_of)


def limits(decision: Decision) -> dict[str, object]:
    return {g.target.where: g.value for g in decision.goals if g.target.kind == "misc.max"}


def row(told: build.Told, cgroup: str) -> CgroupRow:
    return next(row for row in node_view(told.state, told.at_ns, {}).rows if row.cgroup == cgroup)


def test_a_lost_container_of_a_known_pod_gets_its_limit_when_the_status_names_it() -> None:
    told = build.node()
    told(ev.SandboxStarted(build.sandbox("A")))
    told(ev.PodSeen(spec()))

    assert limits(told(found(APP))) == {}
    assert told.state.limits.wanted[POD].values == {build.EPC: 5}, "the pod's budget holds"
    assert (row(told, f"{POD}/{APP}").state, row(told, f"{POD}/{APP}").container) == ("unknown", "")

    assert limits(told(ev.PodSeen(spec(app=APP)))) == {f"{POD}/{APP}": "5"}
    assert row(told, f"{POD}/{APP}").container == "app"


def test_a_pod_known_by_its_cgroup_gets_controller_and_budget() -> None:
    told = build.node()
    told(ev.PodSeen(spec(app=APP, db=DB)))

    decision = told(found(APP, DB, PAUSE))

    assert limits(decision) == {POD: "5", f"{POD}/{APP}": "5", f"{POD}/{DB}": "0"}
    assert [str(g.target) for g in decision.goals if g.target.kind == "subtree"] == [
        "subtree:/",
        "subtree:/kubepods",
        f"subtree:{POD}",
    ]
    assert (row(told, POD).namespace, row(told, POD).pod) == ("shop", "pod-A")
    pause = row(told, f"{POD}/{PAUSE}")
    assert (pause.state, pause.container) == ("unmanaged", "")
    assert "(pause)" in pause.rule


def test_a_restarted_container_is_not_taken_for_the_pause_container() -> None:
    told = build.node()
    told(ev.PodSeen(spec(app="A-app-before", db=DB)))
    told(found(APP, DB))

    assert row(told, f"{POD}/{APP}").state == "unknown"


def test_what_the_runtime_tells_takes_the_place_of_what_was_found() -> None:
    told = build.node()
    told(ev.PodSeen(spec(app=APP)))
    told(found(APP, PAUSE))

    told(build.started("A", "db"))

    pods = told.state.pods
    assert list(pods.sandboxes) == [SandboxId(PAUSE)]
    assert list(pods.containers) == [APP, DB], "the sandbox's own container is dropped"
    assert pods.containers[ContainerId(APP)].container.sandbox_id == PAUSE
    told(build.started("A", "app"))
    assert told.state.pods.containers[ContainerId(APP)].container == replace(
        build.container("A", "app"), phase=told.state.pods.containers[ContainerId(APP)].container.phase
    )
    assert not told.state.pods.containers[ContainerId(APP)].by_cgroup
    told(ev.SandboxRemoved(build.sandbox("A")))
    assert (told.state.pods.containers, told.state.pods.by_pod, told.state.limits.wanted) == ({}, {}, {})


def test_the_memory_of_ends_is_bounded() -> None:
    told = build.node()
    for number in range(ENDED + 5):
        told(ev.Removed(SandboxId(PAUSE), ContainerId(str(number))))

    assert len(told.state.pods.ended) == ENDED
    assert not is_known(told.state.pods, "4")
    assert is_known(told.state.pods, "5")


def test_a_pod_whose_cgroup_is_not_named_after_it_is_known_by_the_cgroup() -> None:
    told = build.node()
    told(ev.PodSeen(replace(spec(app=APP))))
    told(ev.SandboxStarted(build.sandbox("A")))
    told(ev.CgroupsFound((ev.FoundCgroup(f"{POD}/{APP}", ContainerId(APP), PodUid("")),), as_of=0))

    assert told.state.limits.wanted[f"{POD}/{APP}"].values == {build.EPC: 5}
    told(ev.CgroupsFound((ev.FoundCgroup("/else/x/y", ContainerId("y"), PodUid("")),), as_of=0))
    assert "y" not in told.state.pods.containers, "nobody's"


def test_with_mode_off_what_was_found_is_known_until_its_cgroup_is_gone() -> None:
    """Else each VM would count twice where nothing but cgroups tells of pods: for its pod, and as foreign use."""
    told = build.node(LimitsSettings(mode=Mode.OFF))
    told(found(APP))

    assert list(told.state.pods.containers) == [APP]
    assert pod_cgroups(told.state.pods) == {"A": POD}
    assert by_cgroups(told.state.pods) == [POD, f"{POD}/{APP}"]
    assert told.state.limits.wanted == {}

    told(ev.Sampled({}, as_of=told.state.seq, gone=(POD, f"{POD}/{APP}"), rest_same=True))
    assert (told.state.pods.containers, told.state.pods.sandboxes, by_cgroups(told.state.pods)) == ({}, {}, [])


def test_what_was_found_and_vanished_while_the_feature_was_off_ends_when_it_is_on_again() -> None:
    told = build.node()
    on, off = (replace(told.state.settings, limits=LimitsSettings(mode=mode)) for mode in (Mode.ENFORCE, Mode.OFF))
    told(found(APP))
    told(SettingsChanged(off))
    assert told.state.limits.wanted == {}

    told(SettingsChanged(on))
    assert list(told.state.limits.wanted) == [POD, f"{POD}/{APP}"]
    told(ev.Sampled({}, as_of=told.state.seq, gone=(POD, f"{POD}/{APP}")))

    assert (told.state.pods.containers, told.state.pods.sandboxes, told.state.limits.wanted) == ({}, {}, {})


PATH = "/kubepods/podu/u-app"
POD_U = "/kubepods/podu"
SPEC_U = build.pod_spec("u", build.container_spec("app", 4096), build.container_spec("other"))


def hooked(name: str = "app", sandbox_id: str = "") -> ev.Hooked:
    return ev.Hooked(build.sandbox("u", sandbox_id=sandbox_id), running(name, sandbox_id))


def running(name: str = "app", sandbox_id: str = "") -> Container:
    return build.container("u", name, sandbox_id).in_phase(Phase.RUNNING)


def asks(name: str = "app") -> ev.Creating:
    return ev.Creating(build.sandbox("u"), running(name), by_hook=True, ask_id=7)


def known_node() -> build.Told:
    told = build.node()
    told(seen(SPEC_U))
    return told


def limit_given(told: build.Told, event: ev.Creating) -> str:
    return build.adjusted(told(event)).unified.get("misc.max", "")


def test_a_container_of_the_hooks_has_goals_at_once_and_its_pod_too_and_both_end_with_their_cgroups() -> None:
    told = known_node()
    alone = {str(goal.target) for goal in told(ev.Hooked(build.sandbox("u"))).goals}
    assert f"subtree:{POD_U}" in alone
    limit_given(told, asks())
    goals = {str(goal.target) for goal in told(hooked()).goals}
    assert {f"misc.max:{build.EPC}:{PATH}", f"misc.max:{build.EPC}:{POD_U}"} <= goals | alone
    assert told.state.pods.creating == {}

    told(ev.Sampled({POD_U: MiscReading()}, as_of=told.state.seq, gone=(PATH,)))
    assert list(told.state.limits.wanted) == [POD_U]
    told(ev.Sampled({}, as_of=told.state.seq, gone=(POD_U,)))
    assert (told.state.limits.wanted, told.state.pods.sandboxes) == ({}, {})


def test_what_the_runtime_has_told_stays() -> None:
    told = known_node()
    told(build.started("u", "app", {"nodeward.io/limits": "{}"}))
    before = told.state.pods
    limit_given(told, asks())
    told(hooked())
    told(ev.Abandoned(7))

    assert told.state.pods.containers == before.containers
    assert told.state.pods.sandboxes == before.sandboxes
    assert told.state.pods.creating == {}


def test_a_container_that_was_found_nameless_has_a_name_by_the_hook() -> None:
    for event in (hooked(), asks()):
        told = known_node()
        told(ev.CgroupsFound((FoundCgroup(PATH, running().id, PodUid("u")),), as_of=told.state.seq))
        assert told.state.limits.wanted[PATH].values == {}
        if isinstance(event, ev.Creating):
            assert limit_given(told, event) == f"{build.EPC} 4096"
        told(hooked())
        assert told.state.limits.wanted[PATH].values == {build.EPC: 4096}
        assert list(told.state.pods.sandboxes) == ["s-u"], "the stand-in has made way"


def by_nri(name: str) -> Sandbox:
    return nri_mapping.sandbox(nri_pb2.PodSandbox(id="s", uid="u", name=name))


def by_cri(name: str) -> Sandbox:
    return cri_mapping.sandbox("s", cri_pb2.PodSandboxConfig(metadata=cri_pb2.PodSandboxMetadata(uid="u", name=name)))


def by_hook(name: str) -> Sandbox:
    line = encode_request(HookRequest("c", "s", "u", "shop", name, "app", "/kubepods/podu/c", {}))
    return hook_sandbox(decode_request(line))


@pytest.mark.parametrize("way", [by_nri, by_cri, by_hook])
def test_a_name_that_would_break_a_line_is_written_out_and_cut(way: Callable[[str], Sandbox]) -> None:
    """Kubernetes names no pod so; another client of the runtime may."""
    assert way("web\nFault: \x1b[31m").name == "web\\u000aFault: \\u001b[31m"
    assert len(way("w" * 3000).name) < 300


NOW = 1 << 40
"""What a list or a pass was asked after: all that was told, or see `after`."""
STARTED, STOPPED = build.started("A", "app"), ev.Stopped(build.sandbox("A"), build.container("A", "app"))
REMOVED = ev.SandboxRemoved(build.sandbox("A"))
FIRST, SECOND_ONE = (build.sandbox("A", sandbox_id=one) for one in ("first", "second"))


def after(events: int) -> int:
    return build.node().state.seq + events


def gone(*paths: str, as_of: int = NOW) -> ev.Event:
    return ev.Sampled({}, as_of, gone=paths)


def both(as_of: int) -> ev.Event:
    return ev.Listed(tuple(map(build.sandbox, "AB")), tuple(build.container(uid, "app") for uid in "AB"), as_of)


def nothing(as_of: int, complete: bool = True) -> ev.Event:
    return ev.Listed((), (), as_of, complete=complete)


STORIES = {
    "what was found ends with its cgroup": ([found(APP, DB), gone(f"{POD}/{APP}")], "A-db"),
    "and its pod with its own": ([found(APP, DB), gone(f"{POD}/{APP}"), gone(f"{POD}/{DB}", POD)], ""),
    "a pass that began before says nothing": ([found(APP), gone(f"{POD}/{APP}", as_of=after(0))], "A-app"),
    "the lingering cgroup of what has stopped": ([STARTED, STOPPED, found(APP)], ""),
    "the lingering cgroup of what was removed": (
        [STARTED, ev.Removed(SandboxId(PAUSE), ContainerId(APP)), found(APP)],
        "",
    ),
    "a list takes the place of what was found and ends none of it": (
        [
            found(APP, DB, PAUSE),
            ev.Listed((build.sandbox("A"),), (build.container("A", "app"),), as_of=0),
            nothing(as_of=0),
            ev.Listed((build.sandbox("A"),), (), NOW),
        ],
        "A-db",
    ),
    "a list from before an end revives nothing": ([STARTED, STOPPED, both(after(1))], "B-app"),
    "nor its sandbox": ([STARTED, STOPPED, REMOVED, both(after(1))], "B-app"),
    "a newer list knows better": ([STARTED, STOPPED, REMOVED, both(NOW)], "A-app B-app"),
    "a list says nothing of what is newer": ([STARTED, build.started("B", "app"), nothing(after(1))], "B-app"),
    "a list that is not complete ends nothing": ([STARTED, nothing(NOW, complete=False)], "A-app"),
    "a list ends what it lacks": ([STARTED, nothing(NOW)], ""),
    "a sandbox takes only its own containers along": (
        [
            ev.Started(FIRST, build.container("A", "old", "first")),
            ev.Started(SECOND_ONE, build.container("A", "new", "second")),
            ev.SandboxRemoved(FIRST),
        ],
        "A-new",
    ),
    "of the hook's the runtime tells later": ([seen(SPEC_U), hooked(), build.started("u", "app"), gone(PATH)], "u-app"),
    "a hook that nobody waits for takes nothing along": ([build.started("u", "app"), asks(), ev.Abandoned(7)], "u-app"),
}


@pytest.mark.parametrize("story", STORIES)
def test_which_containers_are_known(story: str) -> None:
    """Each belongs to a sandbox, and where there is none nothing is wanted."""
    events, known = STORIES[story]
    told = build.node()
    for event in events:
        told(event)
    pods = told.state.pods

    assert " ".join(sorted(pods.containers)) == known
    assert {one.container.sandbox_id for one in pods.containers.values()} <= pods.sandboxes.keys()
    assert sorted(one for ids in pods.by_pod.values() for one in ids) == sorted(pods.containers)
    assert {path.split("/")[2] for path in told.state.limits.wanted} == {f"pod{uid}" for uid in pods.sandbox_of}


STATIC = build.pod_spec("mirror", build.container_spec("app", 5), config_hash="HASH")
VICTIM = build.pod_spec("A", build.container_spec("app", 5))
FORGED = replace(build.pod_spec("forged", build.container_spec("app", 99)), config_hash="HASH")
IDLE, NEWER = (build.pod_spec(uid, build.container_spec("app", 5)) for uid in ("idle", "newer"))
AGAINST_A = replace(FORGED, config_hash="A")
BOTH, MIRROR = {"A": "A", "forged": "forged"}, {"HASH": "mirror", "forged": "forged"}
RUNS = ev.SandboxStarted(build.sandbox("HASH"))


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([seen(VICTIM), seen(AGAINST_A)], BOTH, id="against a pod of the API"),
        pytest.param([seen(AGAINST_A), seen(VICTIM)], BOTH, id="before the pod of the API is seen"),
        pytest.param([listed(AGAINST_A, VICTIM)], BOTH, id="in one list with the pod"),
        pytest.param([seen(STATIC), seen(FORGED)], MIRROR, id="against a static pod"),
        pytest.param([RUNS, seen(FORGED), seen(STATIC)], MIRROR, id="before the mirror, of a static pod that runs"),
        pytest.param([seen(FORGED), seen(STATIC), RUNS], MIRROR, id="before the mirror and the static pod"),
        pytest.param([seen(FORGED), RUNS, seen(STATIC)], MIRROR, id="before the static pod and its mirror"),
        pytest.param(
            [listed(FORGED, STATIC), ev.Listed((build.sandbox("HASH"),), (), as_of=1 << 40)],
            MIRROR,
            id="first in the lists",
        ),
        pytest.param([seen(STATIC), seen(replace(STATIC, uid=PodUid("next")))], {"HASH": "next"}, id="made again"),
        pytest.param([seen(FORGED), seen(replace(FORGED, config_hash=""))], {"forged": "forged"}, id="withdrawn"),
        pytest.param([seen(FORGED), ev.PodGone(FORGED.uid)], {}, id="a forged one that kubelet deletes"),
        pytest.param(
            [seen(STATIC), RUNS, ev.PodGone(STATIC.uid), ev.SandboxRemoved(build.sandbox("HASH"))], {}, id="its end"
        ),
        pytest.param(
            [seen(FORGED), seen(STATIC), ev.PodGone(FORGED.uid), seen(STATIC)], {"HASH": "mirror"}, id="its turn"
        ),
        pytest.param(
            [seen(VICTIM), ev.PodGone(VICTIM.uid), listed(VICTIM, as_of=after(1))], {}, id="a list from before its end"
        ),
        pytest.param([seen(VICTIM), ev.PodGone(VICTIM.uid), listed(VICTIM)], {"A": "A"}, id="a list after its end"),
        pytest.param(
            [seen(VICTIM), build.creating("A", "app"), gone(POD), ev.PodGone(VICTIM.uid)],
            {"A": "A, gone"},
            id="a pod does not end while a container of it is being created",
        ),
        pytest.param(
            [seen(VICTIM), STARTED, ev.PodGone(VICTIM.uid), listed(VICTIM, as_of=after(2))],
            {"A": "A, gone"},
            id="gone while it runs",
        ),
        pytest.param(
            [seen(IDLE), seen(VICTIM), STARTED, seen(NEWER), listed(replace(NEWER, containers=()), as_of=after(3))],
            {"A": "A, gone", "newer": "newer"},
            id="what a list lacks, and what is newer than it",
        ),
        pytest.param([seen(VICTIM), STARTED, listed(), REMOVED], {}, id="gone with its sandbox"),
    ],
)
def test_who_is_kept_where(events: list[ev.Event], expected: dict[str, str]) -> None:
    told = build.node()
    for event in events:
        told(event)
    specs = told.state.pods.specs
    assert {uid: f"{known.spec.uid}{', gone' * known.gone}" for uid, known in specs.items()} == expected
    assert all(known.spec.containers for known in specs.values()), "nothing older has taken its place"
    if "mirror" in expected.values():
        assert build.value_of(told(build.creating("HASH", "app"))) == Adjustment({"misc.max": "sgx_epc 5"})


PODS = (VICTIM, STATIC, FORGED, AGAINST_A)
EVENTS = st.one_of(
    st.sampled_from(PODS).map(seen),
    st.permutations(PODS).map(lambda pods: listed(*pods)),
    st.sampled_from([FORGED.uid, STATIC.uid]).map(ev.PodGone),
    st.sampled_from(["A", "HASH"]).map(lambda uid: ev.SandboxStarted(build.sandbox(uid))),
)


@given(st.lists(EVENTS, max_size=8))
def test_whatever_is_heard_a_running_pod_is_never_another(events: list[ev.Event]) -> None:
    told = build.node()
    told(seen(VICTIM))
    for event in events:
        told(event)
        specs, homes = told.state.pods.specs, told.state.pods.sandbox_of
        assert specs[VICTIM.uid].spec == VICTIM
        if "HASH" in homes and "HASH" in specs:
            assert specs[PodUid("HASH")].spec == STATIC
        assert len(specs) == len({known.spec.uid for known in specs.values()})
