"""Given a node with a CPU policy, what each container is given, who else is moved, and who waits."""

from dataclasses import replace

import pytest

from nodeward.core import events as ev
from nodeward.core.annotations import CRI_RM_RESOURCES
from nodeward.core.cpuset import ids, parse
from nodeward.core.decision import Decision
from nodeward.core.modes import Mode, OnError
from nodeward.core.workload import (
    Container,
    ContainerId,
    ContainerSpec,
    CpuRecord,
    Phase,
    PodSpec,
    PodUid,
    Qos,
    Sandbox,
    Source,
)
from nodeward.features.cpus.barrier import in_the_way
from nodeward.features.cpus.settings import Amount, AmountKind, CpusSettings, PolicySettings
from tests.unit.features.build import Told
from tests.unit.features.cpus import build
from tests.unit.features.cpus.build import STATIC_RULES, create, given, home, one, resize, sets, settle, told, writes


def shared_and_alone() -> Told:
    """A node on which `a` shares, and `c` has the CPUs 2-3 alone."""
    node = told()
    settle(node, create(node, "a", qos="burstable"))
    settle(node, create(node, "c", cpus=2))
    return node


def test_who_shares_is_written_off_the_cpus_that_somebody_gets_alone() -> None:
    node = told()
    assert given(create(node, "a", qos="burstable")) == "0-7"
    assert given(create(node, "b", qos="besteffort")) == "0-7"
    alone = create(node, "c", cpus=2)
    assert given(alone) == "2-3"
    assert writes(alone) == {"/kubepods/burstable/poda/a-0": "0-1,4-7", "/kubepods/besteffort/podb/b-0": "0-1,4-7"}
    assert len(alone.goals) == 1, "one goal with many places"


def test_a_program_waits_while_an_older_write_of_its_own_set_may_come_last() -> None:
    node = told()
    settle(node, create(node, "c", cpus=2))
    resize(node, "c", 3)
    assert given(resize(node, "c", 2)) == sets(node)["c"] == "2-3"
    assert in_the_way(node.state, ContainerId("c-0")) == (ContainerId("c-0"),)


def test_a_container_that_was_created_before_a_shrink_gets_the_newer_set_before_its_program_begins() -> None:
    node = told()
    node(ev.Creating(home("a", "burstable"), one("a", qos="burstable"), ask_id=7))
    node(ev.Created(home("a", "burstable"), one("a", qos="burstable")))
    assert writes(create(node, "c", cpus=2)) == {}, "its cgroup is not there yet"
    starts = node(ev.Started(home("a", "burstable"), one("a", qos="burstable").in_phase(Phase.RUNNING)))
    assert writes(starts) == {"/kubepods/burstable/poda/a-0": "0-1,4-7"}
    assert in_the_way(node.state, ContainerId("a-0")) == (ContainerId("a-0"),)
    assert in_the_way(node.state, ContainerId("c-0")) == (ContainerId("a-0"),)


@pytest.mark.parametrize("policy", ["static", "static-plus"])
@pytest.mark.parametrize("source", [None, Source.API])
def test_a_resize_that_nobody_told_is_taken_in_with_the_next_list(policy: str, source: Source | None) -> None:
    node = told(replace(STATIC_RULES, active=policy))
    if source is not None:
        spec = ContainerSpec("app", cpu_m=2000, cpu_limit_m=2000)
        node(ev.PodSeen(PodSpec(PodUid("c"), "shop", "c", (spec,), source=source, qos=Qos.GUARANTEED)))
    settle(node, create(node, "c", 2))
    had = sets(node)["c"]
    told_shares = node.state.cpus.pools.grants["c/app"].shares

    def listed(cpus: int) -> Decision:
        known = one("c", cpus, now=0b110)
        record = replace(known.cpu, shares=told_shares or known.cpu.shares)
        running = replace(known, cpu=record).in_phase(Phase.RUNNING)
        return node(ev.Listed((home("c"),), (running,), as_of=node.state.seq))

    assert (writes(listed(2)), sets(node)["c"]) == ({}, had)
    settle(node, listed(3))
    assert len(ids(parse(sets(node)["c"]))) == 3
    assert parse(had) & ~parse(sets(node)["c"]) == 0
    assert writes(listed(99)) == {}
    assert node.state.cpus.unplaced == {}


def test_a_resize_stands_while_the_pods_spec_as_it_was_before_is_told_once_more() -> None:
    """The API server's watch is behind kubelet: a status comes with the older spec, then the newer one."""
    node = told()
    older, newer = (
        PodSpec(PodUid("c"), "shop", "c", (ContainerSpec("app", cpu_m=1000 * count, cpu_limit_m=1000 * count),))
        for count in (2, 3)
    )
    node(ev.PodSeen(replace(older, qos=Qos.GUARANTEED)))
    create(node, "c", cpus=2)
    assert given(resize(node, "c", 3)) == "1-3"
    node(ev.Updated(home("c"), one("c", 3).in_phase(Phase.RUNNING)))
    has = sets(node)["c"]
    for spec in (older, newer, newer):
        node(ev.PodSeen(replace(spec, qos=Qos.GUARANTEED)))
        assert sets(node)["c"] == has


def test_a_restart_with_a_spec_on_disk_from_before_a_resize_moves_nobody() -> None:
    node = told()
    spec = PodSpec(PodUid("c"), "shop", "c", (ContainerSpec("app", cpu_m=2000, cpu_limit_m=2000),), qos=Qos.GUARANTEED)
    node(ev.PodsListed((replace(spec, source=Source.DISK),), as_of=0))
    running = one("c", 3, now=0b11100).in_phase(Phase.RUNNING)
    node(ev.Listed((home("c"),), (running,), 0))
    assert sets(node) == {"c": "2-4"}


def test_who_has_to_move_by_other_settings_takes_nothing_from_those_who_may_stay() -> None:
    node = told()
    for pod in "ac":
        settle(node, create(node, pod, cpus=2))
    assert sets(node) == {"a": "2-3", "c": "4-5"}
    build.settings(node, replace(STATIC_RULES, reserved=Amount(AmountKind.CPUSET, cpus=0b1101)))
    assert sets(node) == {"a": "6-7", "c": "4-5"}


def test_cpus_that_a_write_under_way_may_still_give_to_others_are_taken_from_them_and_waited_for() -> None:
    node = shared_and_alone()
    build.stop(node, "c", cpus=2)
    assert writes(build.end(node, "c")) == {"/kubepods/burstable/poda/a-0": "0-7"}
    again = create(node, "d", cpus=2)
    assert writes(again) == {"/kubepods/burstable/poda/a-0": "0-1,4-7"}
    assert in_the_way(node.state, ContainerId("d-0")) == (ContainerId("a-0"),)
    settle(node, again)
    assert in_the_way(node.state, ContainerId("d-0")) == ()


def test_cpus_come_back_when_the_pod_ends_and_stay_while_its_container_is_tried_again() -> None:
    node = shared_and_alone()
    assert writes(build.stop(node, "c", cpus=2)) == {}
    assert given(create(node, "c", cpus=2, life=1)) == "2-3"
    assert writes(build.end(node, "c")) == {"/kubepods/burstable/poda/a-0": "0-7"}


def test_a_create_that_failed_gives_back_what_was_shared_and_the_pods_end_what_was_alone() -> None:
    node = told()
    settle(node, create(node, "a", qos="burstable"))
    asked = node(ev.Creating(home("c"), one("c", 2), ask_id=9))
    settle(node, asked)
    node(ev.CreateFailed(ContainerId("c-0")))
    assert writes(build.end(node, "c")) == {"/kubepods/burstable/poda/a-0": "0-7"}


def test_a_resize_in_place_grows_and_shrinks_and_keeps_what_it_can() -> None:
    node = shared_and_alone()
    grown = resize(node, "c", 3)
    assert given(grown) == "1-3"
    assert writes(grown)["/kubepods/burstable/poda/a-0"] == "0,4-7"
    settle(node, grown)
    assert given(resize(node, "c", 1)) == "1"
    assert build.refused(resize(node, "c", 99)) is not None
    assert sets(node)["c"] == "1", "a resize that is refused leaves everything as it was"


def test_a_container_that_came_while_nobody_looked_takes_no_cpu_that_is_somebodys() -> None:
    node = told()
    unpinned = one("x", 2).in_phase(Phase.RUNNING)
    alone = one("c", 2, now=0b1100).in_phase(Phase.RUNNING)
    seen = node(ev.Listed((home("x"), home("c")), (unpinned, alone), as_of=0))
    assert sets(node) == {"x": "4-5", "c": "2-3"}
    assert writes(seen) == {"/kubepods/podx/x-0": "4-5", "/kubepods/podc/c-0": "2-3"}


def unread(pod: str, now: int) -> Container:
    """A running container with these CPUs, of which the runtime could not tell more."""
    known = one(pod).in_phase(Phase.RUNNING)
    return replace(known, cpu=CpuRecord(cpus=now, unread=True))


@pytest.mark.parametrize("policy", ["static", "static-plus"])
def test_who_alone_has_its_cpus_keeps_them_while_its_record_cannot_be_read(policy: str) -> None:
    node = told(replace(STATIC_RULES, active=policy))
    shares = one("s", 0, "burstable", now=0b11).in_phase(Phase.RUNNING)
    homes = home("x"), home("s", "burstable")
    seen = node(ev.Listed(homes, (unread("x", 0b1100), shares), as_of=0))
    settle(node, seen)
    assert sets(node)["x"] == "2-3"
    assert not {"2", "3"} & set(sets(node)["s"].replace("-", ","))
    assert given(node(ev.Updating(homes[0], unread("x", 0b1100), ask_id=node.state.seq + 1))) == ""
    fraction = replace(one("x", 1, now=0b1100), cpu=CpuRecord(512, cpus=0b1100)).in_phase(Phase.RUNNING)
    read = node(ev.Listed(homes, (fraction, shares), as_of=node.state.seq))
    assert sets(node)["x"] == sets(node)["s"] == writes(read)["/kubepods/podx/x-0"]


@pytest.mark.parametrize("policy", ["static", "static-plus"])
def test_who_seems_to_share_is_left_where_it_is_while_its_record_cannot_be_read(policy: str) -> None:
    node = told(replace(STATIC_RULES, active=policy))
    homes, ones = (home("x"), home("y")), (unread("x", 0b1100), unread("y", 0b1100))
    seen = node(ev.Listed(homes, ones, as_of=0))
    assert (writes(seen), sets(node)) == ({}, {"x": "", "y": ""})
    assert "did not tell what it asked for" in node.state.cpus.unplaced["x/app"]
    assert given(create(node, "c", 2)) == "4-5"
    assert "CPUs 2-3" in (build.refused(create(node, "d", 4)) or "")
    read = node(ev.Listed(homes, (one("x", 2, now=0b1100).in_phase(Phase.RUNNING), ones[1]), as_of=node.state.seq))
    assert "/kubepods/pody/y-0" not in writes(read)
    assert sets(node)["x"] == "2-3"


def test_newer_settings_are_taken_whole_or_refused_whole() -> None:
    node = told()
    settle(node, create(node, "c", cpus=4))
    small = PolicySettings("static", Amount(AmountKind.CPUSET, 0b1111), Amount(AmountKind.QUANTITY, milli=1000))
    refusal = build.settings(node, small)
    assert node.state.cpus.rules == STATIC_RULES
    assert any("shop/c" in why for why in node.state.cpus.refused)
    assert writes(refusal) == {}
    build.settings(node, replace(STATIC_RULES, reserved=Amount(AmountKind.QUANTITY, milli=2000)))
    assert node.state.cpus.refused == ()
    assert sets(node) == {"c": "2-5"}


def test_another_policy_leaves_everyone_who_may_stay() -> None:
    node = shared_and_alone()
    gone = build.settings(node, PolicySettings("none"))
    assert writes(gone) == {"/kubepods/burstable/poda/a-0": "0-7", "/kubepods/podc/c-0": "0-7"}
    settle(node, gone)
    back = build.settings(node, STATIC_RULES)
    assert sets(node)["a"] == "0-1,4-7"
    assert sets(node)["c"] == "2-3"
    settle(node, back)
    assert writes(build.settings(node, STATIC_RULES)) == {}


def test_observe_decides_and_writes_nothing() -> None:
    node = told(cpus=CpusSettings(mode=Mode.OBSERVE))
    assert given(create(node, "a", qos="burstable")) == ""
    alone = create(node, "c", cpus=2)
    assert (given(alone), writes(alone)) == ("", {})
    assert sets(node) == {"a": "0-1,4-7", "c": "2-3"}
    assert in_the_way(node.state, ContainerId("c-0")) == ()


def test_a_lost_set_counts_as_any_cpu_until_it_is_read_back_whatever_else_is_told() -> None:
    node = told()
    settle(node, create(node, "c", cpus=2))
    settle(node, create(node, "a", qos="burstable"))
    assert in_the_way(node.state, ContainerId("c-0")) == ()
    path = "/kubepods/burstable/poda/a-0"
    lost = node(ev.CpusetsRead({}, node.state.seq, {path: "gone"}))
    running = one("a", qos="burstable", now=parse("0-1,4-7")).in_phase(Phase.RUNNING)
    node(ev.Listed((home("a", "burstable"),), (running,), as_of=0))
    assert in_the_way(node.state, ContainerId("c-0")) == (ContainerId("a-0"),)
    assert writes(lost) == {path: "0-1,4-7"}
    settle(node, lost)
    assert in_the_way(node.state, ContainerId("c-0")) == ()


def test_a_set_that_is_lost_while_another_is_written_counts_as_any_cpu() -> None:
    node = shared_and_alone()
    create(node, "d", cpus=2)
    assert in_the_way(node.state, ContainerId("c-0")) == ()
    path = "/kubepods/burstable/poda/a-0"
    old, written = parse("0-1,4-7"), parse("0-1,6-7")
    for seen in (old, written):
        assert writes(node(ev.CpusetsRead({path: seen}, node.state.seq))) == {}
    assert node.state.cpus.drifts == 0
    assert writes(node(ev.CpusetsRead({}, node.state.seq, {path: "gone"}))) == {}, "a write of it is under way"
    assert in_the_way(node.state, ContainerId("c-0")) == (ContainerId("a-0"),)
    assert node.state.cpus.drifts == 1


def test_a_cpu_that_goes_offline_under_its_owner_moves_that_owner_alone() -> None:
    node = told()
    settle(node, create(node, "a", qos="burstable"))
    settle(node, create(node, "b", cpus=2))
    settle(node, create(node, "c", cpus=2))
    moved = node(ev.TopologyRead(build.machine(offline=1 << 2)))
    assert sets(node)["c"] == "4-5"
    assert sets(node)["b"] == "0-1"
    assert "/kubepods/podc/c-0" not in writes(moved)


NAMED = replace(STATIC_RULES, reserved=Amount(AmountKind.CPUSET, 0b11))


@pytest.mark.parametrize(
    ("offline", "shared", "said"),
    [
        pytest.param(0b10, "0,2-7", "CPUs 1 are offline; until they are back only 0 is reserved", id="one of two"),
        pytest.param(0b11, "0-7", "0-7 before, 2-7 now), and the policy static does not fit these", id="all"),
    ],
)
def test_creates_and_ends_go_on_while_cpus_reserved_by_number_are_offline(offline: int, shared: str, said: str) -> None:
    node = told(NAMED)
    settle(node, create(node, "a", qos="burstable"))
    node(ev.TopologyRead(build.machine(offline=offline)))
    assert build.shown(node).notes[0].partition(said)[1]
    assert given(create(node, "c", cpus=2)) == "2-3"
    build.end(node, "c")
    assert sets(node) == {"a": shared}
    node(ev.TopologyRead(build.machine()))
    assert (sets(node), build.shown(node).notes) == ({"a": "0-7"}, ())


def test_other_settings_that_fit_take_the_machine_as_it_was_read_last() -> None:
    node = told(NAMED)
    settle(node, create(node, "a", qos="burstable"))
    node(ev.TopologyRead(build.machine(offline=0b11)))
    build.settings(node, replace(NAMED, reserved=Amount(AmountKind.CPUSET, 0b1 << 8)))
    assert (len(node.state.cpus.refused), sets(node)) == (1, {"a": "0-7"}), "no such CPU"
    build.settings(node, STATIC_RULES)
    assert (node.state.cpus.refused, sets(node)) == ((), {"a": "2-7"})
    build.settings(node, replace(NAMED, reserved=Amount(AmountKind.CPUSET, 0b1 << 8)))
    node(ev.TopologyRead(build.machine(offline=1 << 7)))
    assert (len(node.state.cpus.refused), sets(node)) == (1, {"a": "0-6"}), "refused ones keep no machine away"


@pytest.mark.parametrize("on_error", list(OnError), ids=lambda rule: rule.value)
def test_while_the_settings_of_the_start_do_not_fit_on_error_answers_creates(on_error: OnError) -> None:
    node = told(replace(STATIC_RULES, reserved=Amount(AmountKind.CPUSET, 1 << 8)), CpusSettings(on_error=on_error))
    why = build.refused(create(node, "c", cpus=2))
    if on_error is OnError.PASS:
        assert why is None
    else:
        assert why is not None
        assert why.startswith("shop/c, container app: the policy static does not fit this machine (policy.Reserved")
    build.settings(node, STATIC_RULES)
    assert given(create(node, "d", cpus=2))


def test_a_container_that_was_created_before_a_policy_came_gets_its_set_before_its_program_begins() -> None:
    node = told(PolicySettings("none"))
    node(ev.Creating(home("c"), one("c", 2), ask_id=3))
    node(ev.Created(home("c"), one("c", 2)))
    build.settings(node, STATIC_RULES)
    starts = node(ev.Started(home("c"), one("c", 2).in_phase(Phase.RUNNING)))
    assert writes(starts) == {"/kubepods/podc/c-0": "2-3"}
    assert in_the_way(node.state, ContainerId("c-0")) == (ContainerId("c-0"),)
    settle(node, starts)
    assert in_the_way(node.state, ContainerId("c-0")) == ()


def test_a_resize_after_the_policy_none_came_brings_no_older_set_back() -> None:
    node = told()
    settle(node, create(node, "c", cpus=2))
    settle(node, build.settings(node, PolicySettings("none")))
    assert given(resize(node, "c", 3)) == "0-7"


def test_an_annotation_gives_no_cpus_that_kubelet_did_not_ask_for() -> None:
    rules = replace(STATIC_RULES, active="static-plus")
    node, again = told(rules), told(rules)
    homes, ones = list[Sandbox](), list[Container]()
    for pod, shares, claimed in (("liar", 512, "3500m"), ("honest", 2560, "2500m")):
        said = f'{{"containers":{{"app":{{"requests":{{"cpu":"{claimed}"}}}}}}}}'
        homes.append(replace(home(pod, "burstable"), annotations={CRI_RM_RESOURCES: said}))
        made = replace(one(pod, qos="burstable"), cpu=CpuRecord(shares))
        decision = node(ev.Creating(homes[-1], made, ask_id=node.state.seq + 1))
        assert [note.code for note in decision.notes] == (["cpus-source"] if pod == "liar" else [])
        node(ev.Created(homes[-1], made))
        shares = node.state.cpus.pools.grants[f"{pod}/app"].shares
        ones.append(replace(made.in_phase(Phase.RUNNING), cpu=CpuRecord(shares, cpus=parse(given(decision)))))
        node(ev.Started(homes[-1], ones[-1]))
    has = sets(node)
    assert has == {"liar": "1,4-7", "honest": "1-7"}
    build.settings(node, replace(rules, available=Amount(AmountKind.CPUSET, cpus=0xFE), reserved=build.RESERVED_ONE))
    assert len(ids(node.state.cpus.pools.grants["honest/app"].own)) == 2

    ones[0] = replace(ones[0], cpu=replace(ones[0].cpu, cpus=parse(has["liar"])))
    again(ev.Listed(tuple(homes), tuple(ones), as_of=again.state.seq))
    assert sets(again) == has
