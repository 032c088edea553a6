"""`podpools`, `static-pools` and `dynamic-pools` by CRI Resource Manager's rules; memory nodes beside CPUs."""

import json
from dataclasses import replace

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from nodeward.core import annotations as keys
from nodeward.core import events as ev
from nodeward.core.cpuset import ids, of, parse, text
from nodeward.core.decision import Decision, Target
from nodeward.core.modes import Mode
from nodeward.core.topology import Group, Machine, MemoryNode
from nodeward.core.workload import Phase, Qos
from nodeward.features.cpus.memory_nodes import nodes_of
from nodeward.features.cpus.policies.dynamic_pools import sizes
from nodeward.features.cpus.pool_settings import (
    BalloonsSettings,
    BalloonType,
    CpuList,
    DynamicPoolsSettings,
    DynamicPoolType,
    FillOrder,
    MemoryType,
    PodPool,
    PodpoolsSettings,
    StaticPool,
    StaticPoolsSettings,
)
from nodeward.features.cpus.pools import changed, set_of
from nodeward.features.cpus.settings import Amount, AmountKind, CpusSettings, MemoryNodes, PolicySettings
from nodeward.features.cpus.values import Ask
from nodeward.features.cpus.words import cpu_sentences
from tests.unit.features.build import Told, adjusted
from tests.unit.features.cpus import build, histories
from tests.unit.features.cpus.build import create, end, refused, stop, told
from tests.unit.features.cpus.machines import PolicyNode, W, ask, machine, refusal

NOTES = {"podpools": keys.POD_POOL, "static-pools": keys.STATIC_POOL, "dynamic-pools": keys.DYNAMIC_POOL}


class Node(PolicyNode):
    def is_used(self, use: dict[int, int]) -> None:
        assert self.policy.rebalance is not None
        self.at = self.policy.rebalance(self.ground, self.at, use)

    def ask(
        self, name: str, kind: str = "", milli: int = 100, pod: str = "", namespace: str = "a", lists: int = 0
    ) -> Ask:
        notes = {NOTES[self.policy.name]: kind} if kind else {}
        if lists:
            said = {"containers": {name: {"requests": {"cmk.intel.com/exclusive-cores": str(lists)}}}}
            notes["intel.com/resources"] = json.dumps(said)
        return ask(name, milli, Qos.BURSTABLE, notes=notes, pod=pod, namespace=namespace)

    def runs(self, *args: object, **more: object) -> str:
        one = self.ask(*args, **more)  # type: ignore[arg-type]
        return self.admit(one) or self.at.grants[one.key].pool or self.has(one.container, one.pod_uid)

    def restarts(self, *asks: Ask) -> None:
        """A daemon that knows nothing finds these containers where they are: none of them moves."""
        before, self.at = self.at, self.begun
        self.finds(replace(one, has=set_of(before, before.grants[one.key])) for one in asks)
        assert list(changed(before, self.at)) == []


TWO_CPUS = Amount(AmountKind.QUANTITY, milli=2000)


# ---- podpools


def by_pods(*pools: PodPool) -> PolicySettings:
    return PolicySettings("podpools", reserved=TWO_CPUS, podpools=PodpoolsSettings(True, pools))


def pods(*pools: PodPool, of: Machine = W) -> Node:
    return Node(by_pods(*pools), of)


def test_how_many_pools_there_are() -> None:
    node = pods(PodPool("A", 5, instances="50%"), PodPool("B", 3, instances="7cpus"), of=machine(1, 2, cores=6))
    assert node.sizes() == {"reserved": 2, "default": 6, "A[0]": 5, "A[1]": 5, "B[0]": 3, "B[1]": 3}


@pytest.mark.parametrize(
    ("order", "expected"), [(FillOrder.BALANCED, "0101"), (FillOrder.PACKED, "0011"), (FillOrder.FIRST_FREE, "0011")]
)
def test_pods_fill_pools_in_order_and_the_rest_goes_to_default(order: FillOrder, expected: str) -> None:
    node = pods(PodPool("A", 4, 2, "2", order))
    found = [node.runs(name, "A") for name in "abcd"]
    assert "".join(name[-2] for name in found) == expected
    assert node.runs("side", "A", pod="a") == found[0], "a pod's containers stay together"
    assert node.runs("e", "A") == "default"
    assert node.runs("f", "nope") == node.runs("g") == "default"
    assert node.runs("h", "A", namespace="kube-system") == "reserved"
    node.restarts(*(node.ask(name, "A") for name in "abcde"))


def test_a_pod_keeps_its_pool_while_its_container_is_tried_again() -> None:
    engine = told(by_pods(PodPool("default", 0, 1)))
    create(engine, "a", qos="burstable")
    stop(engine, "a", qos="burstable")
    why = str(refused(create(engine, "b", qos="burstable")))
    assert "the pool default has 1 pods, as many as it may have (MaxPods)" in why
    assert refused(create(engine, "a", qos="burstable", life=1)) is None
    end(engine, "a", qos="burstable")
    assert refused(create(engine, "b", qos="burstable")) is None


@pytest.mark.parametrize(
    ("newer", "sets"),
    [
        ((PodPool("B", 4), PodPool("A", 2, 1, "3")), {"a": "1,17", "b": "2,18"}),
        ((PodPool("B", 4), PodPool("A", 4, 1, "2")), {"a": "1,3,17,19", "b": "2,6,18,22"}),
        ((PodPool("B", 30 - 4), PodPool("A", 1, 1, "2")), {"a": "1", "b": "2"}),
    ],
)
def test_other_settings_leave_pods_on_the_cpus_that_they_have(newer: tuple[PodPool, ...], sets: dict[str, str]) -> None:
    before, after = pods(PodPool("A", 2, 1, "2")), pods(*newer)
    for name in "ab":
        before.runs(name, "A")
    asks = [replace(before.ask(name, "A"), has=parse(before.has(name))) for name in "ab"]
    after.finds(asks)
    assert {name: after.has(name) for name in "ab"} == sets
    taken = [pool.cpus for pool in after.at.pools.values()]
    assert sum(cpus.bit_count() for cpus in taken) == W.online.bit_count() == sum(taken).bit_count()
    after.restarts(*asks)


def test_a_pool_without_pods_is_made_where_those_in_no_pool_do_not_run() -> None:
    node = pods(PodPool("A", 2))
    runs = parse("1-4,6-15,17-20,22-31")
    node.finds([replace(node.ask("d"), has=runs)])
    assert (node.cpus("A[0]"), node.has("d")) == ("5,21", text(runs))


def test_a_restart_gives_the_place_of_nobody_to_one_that_found_its_pool_full() -> None:
    node = pods(PodPool("A", 2, 1))
    assert [node.runs(name, "A") for name in "abc"] == ["A[0]", "default", "default"]
    node.ends("a")
    assert node.runs("d", "A") == "A[0]"
    node.restarts(*(node.ask(name, "A") for name in "bcd"))


def test_default_is_the_reserved_set_while_nothing_is_left_over() -> None:
    node = pods(PodPool("A", 15, instances="2"))
    assert node.cpus("default") == node.cpus("reserved") == "0,16"
    assert not node.at.pools["default"].apart


# ---- static-pools

LISTS = (
    StaticPool("exclusive", True, (CpuList(0, "4,20"), CpuList(0, "5,21"), CpuList(1, "8,24"))),
    StaticPool("shared", False, (CpuList(0, "0-3,16-19"), CpuList(1, "12-15,28-31"))),
)


def lists(*pools: StaticPool) -> PolicySettings:
    return PolicySettings("static-pools", static_pools=StaticPoolsSettings(pools))


def test_exclusive_lists_are_taken_whole_and_come_back() -> None:
    node = Node(lists(*LISTS))
    assert node.runs("a", "exclusive", lists=2) == "4-5,20-21"
    assert node.runs("b", "exclusive/1", lists=1) == "8,24"
    why = node.runs("c", "exclusive", lists=1)
    assert why.startswith("it asks for 1 list(s) of the pool exclusive, and 0 of 3 are")
    assert node.runs("d", "exclusive").startswith("it is to be in an exclusive pool and asks for no lists")
    assert [node.runs(name) for name in "efg"] == ["shared[0]", "shared[1]", "shared[0]"]
    assert "is 'nope', which is no pool; write one of exclusive, shared" in node.runs("h", "nope")
    kept = [node.ask("b", "exclusive/1", lists=1), node.ask("a", "exclusive", lists=2)]
    node.restarts(*map(node.ask, "efg"), *kept)
    node.ends("a")
    assert node.runs("c", "exclusive", lists=1) == "4,20"


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        (by_pods(PodPool("A", 16, instances="2")), "2 pool(s) A of 16 CPUs do not fit: 30 of 30 CPUs are left"),
        (by_pods(PodPool("A", 4, instances="1% ")), "1% of 30 CPUs is not enough for one pool A of 4 CPUs"),
        (by_pods(PodPool("A", 2, 0, "2", FillOrder.PACKED)), "of 2 pools A that are Packed only the first"),
        (by_pods(PodPool("reserved", 3)), "the pool reserved has 3 CPUs, and 2 are reserved"),
        (lists(LISTS[0]), "there is no pool shared that is not exclusive"),
        (lists(LISTS[1], StaticPool("x", False, (CpuList(0, "3-4"),))), "CPUs 3 are in another list too"),
        (lists(LISTS[1], StaticPool("x", False, (CpuList(0, "40"),))), "CPUs 40 are not available"),
    ],
)
def test_pools_and_lists_that_cannot_be_are_refused(rules: PolicySettings, why: str) -> None:
    assert why in refusal(rules)


# ---- dynamic-pools

TYPES = (DynamicPoolType("a", ("a",)), DynamicPoolType("b", ("b",)))


def dynamic(of: Machine = W) -> Node:
    rules = DynamicPoolsSettings(dynamic_pool_types=TYPES)
    return Node(PolicySettings("dynamic-pools", reserved=TWO_CPUS, dynamic_pools=rules), of)


def test_the_rest_is_divided_by_use() -> None:
    requests = {"shared": 0, "a": 4, "b": 3}
    assert sizes(requests, {"shared": 30, "a": 60, "b": 10}, 20) == {"shared": 3, "a": 13, "b": 4}
    assert sizes(requests, dict.fromkeys(requests, 0), 20) == {"shared": 13, "a": 4, "b": 3}
    assert sizes(requests, dict.fromkeys(requests, 0), 6) is None


def test_pools_follow_requests_and_use() -> None:
    node = dynamic()
    assert node.runs("x", milli=3500) == "a"
    assert node.runs("y", milli=1000, namespace="b") == "b"
    assert node.runs("z", milli=0, namespace="b") == "shared", "it asks for nothing"
    assert node.runs("s", milli=500, namespace="kube-system") == "reserved"
    assert node.runs("w", "b", milli=1) == "b"
    assert node.sizes() == {"reserved": 2, "shared": 24, "a": 4, "b": 2}
    node.is_used(dict.fromkeys(ids(node.at.pools["a"].cpus), 900) | dict.fromkeys(ids(node.at.pools["b"].cpus), 450))
    assert [node.at.pools[name].cpus.bit_count() for name in ("shared", "a", "b")] == [1, 23, 6]
    before = node.at
    node.is_used(dict.fromkeys(ids(node.at.pools["a"].cpus), 900) | dict.fromkeys(ids(node.at.pools["b"].cpus), 850))
    assert list(changed(before, node.at)) == [], "one CPU more or less is not worth a change"
    assert "of 30 CPUs that are divided pools need shared 0, a 4, b 2" in node.runs("v", milli=25_000)
    assert node.at.pools["shared"].cpus, "it has a container"


GIB = 1 << 30
FOLLOW = CpusSettings(memory=MemoryNodes.FOLLOW)
DRAM = tuple(
    MemoryNode(node.id, node.cpus, 8 * GIB, True, {other: 10 if other == node.id else 21 for other in range(4)})
    for node in W.nodes
)
ONE_NODE = W.nodes[1].cpus
PMEM = MemoryNode(4, 0, 64 * GIB, False, {0: 30, 1: 17, 2: 30, 3: 30, 4: 10})
FAR_PMEM = MemoryNode(5, 0, 64 * GIB, False, {0: 17, 1: 40, 2: 40, 3: 40, 5: 10})
HBM = MemoryNode(6, 0, 2 * GIB, False, {})


def of_memory(*nodes: MemoryNode) -> Machine:
    return replace(W, memory=nodes)


NEAR_PMEM = tuple(replace(one, distances={**one.distances, 4: 17 if one.id == 1 else 30, 5: 40}) for one in DRAM)
NODES = {
    "its own node": (DRAM, "1"),
    "equally far PMEM: both": ((*DRAM, replace(PMEM, distances={1: 17}), FAR_PMEM), "1,4-5"),
    "the closest PMEM": ((*NEAR_PMEM, PMEM), "1,4"),
    "HBM without distances": ((*DRAM, HBM), "1,6"),
    "its node has no normal memory: the closest that have": (
        (DRAM[0], replace(DRAM[1], normal=False), *DRAM[2:]),
        "0-3",
    ),
    "its node has none: the closest": (
        (DRAM[0], replace(DRAM[1], bytes=0, distances={0: 30, 1: 10, 2: 12, 3: 30}), *DRAM[2:]),
        "2",
    ),
    "no NUMA": ((), ""),
    "no sizes": (tuple(replace(one, bytes=0) for one in DRAM), ""),
}


@pytest.mark.parametrize(("nodes", "expected"), NODES.values(), ids=NODES)
def test_the_nodes_of_cpus(nodes: tuple[MemoryNode, ...], expected: str) -> None:
    assert text(nodes_of(of_memory(*nodes), ONE_NODE)) == expected
    assert text(nodes_of(of_memory(*DRAM), 1 | 1 << 15)) == "0,3", "of two nodes"


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param([MemoryType.DRAM], "1", id="the near node alone"),
        pytest.param([MemoryType.HBM], "1,6", id="HBM, and the closest normal node, since none of HBM is"),
        pytest.param([MemoryType.PMEM], "1", id="there is none: as if any were wanted"),
    ],
)
def test_the_nodes_of_some_types(wanted: list[MemoryType], expected: str) -> None:
    near = {6: 17}
    nodes = (DRAM[0], replace(DRAM[1], distances={**DRAM[1].distances, **near}), *DRAM[2:], HBM)
    assert text(nodes_of(of_memory(*nodes), ONE_NODE, wanted)) == expected


@drawn(st.integers(1, (1 << 32) - 1), st.integers(1, (1 << 32) - 1))
def test_more_cpus_never_have_fewer_nodes(some: int, more: int) -> None:
    machine = of_memory(*DRAM)
    assert nodes_of(machine, some) & ~nodes_of(machine, some | more) == 0


TWO = tuple(MemoryNode(node, 0b1111 << 4 * node, GIB) for node in (0, 1))


def told_nodes(cpus: CpusSettings = FOLLOW) -> Told:
    """CPU 0 is reserved; CPUs 0 to 3 are on node 0, 4 to 7 on node 1."""
    groups = tuple(Group(one.id, one.cpus) for one in TWO)
    return build.told(cpus=cpus, of=replace(build.machine(), packages=groups, nodes=groups, memory=TWO))


def memory(decision: Decision) -> str:
    return adjusted(decision).memory_nodes


def goals(decision: Decision) -> dict[str, str]:
    found = [goal for goal in decision.goals if goal.target.kind == "cpuset.mems"]
    return {where: str(goal.value) for goal in found for where in (goal.target.where, *goal.also)}


def test_a_container_gets_the_nodes_of_its_cpus_and_keeps_what_it_had() -> None:
    node = told_nodes()
    assert memory(build.create(node, "all", 0, "burstable")) == ""
    build.settle(node, build.create(node, "front", 1))
    assert memory(build.create(node, "wide", 4)) == "1"
    assert memory(build.create(node, "web", 0, "burstable")) == "0"
    gone = build.end(node, "wide")
    assert goals(gone) == {"/kubepods/burstable/podweb/web-0": "0-1"}
    where = Target("cpuset.mems", "/kubepods/burstable/podweb/web-0", "memory")
    node(ev.Missed(((where, "it may use memory nodes 0, not 1"),)))
    view = build.shown(node)
    (row,) = [row for row in view.holders if row.pod == "web"]
    assert "These could not be set: it may use memory nodes 0, not 1." in "\n".join(cpu_sentences(view, row))
    assert [row.memory for row in view.holders] == ["", "0", "0-1"]
    node(ev.Reached((where,), (where,)))
    assert node.state.cpus.memory_misses == {}

    build.create(node, "wide", 4, life=1)
    update = ev.Updating(build.home("web", "burstable"), build.one("web", qos="burstable"), ask_id=99)
    assert (memory(node(update)), build.sets(node)["web"]) == ("0-1", "0,2-3")


@pytest.mark.parametrize(
    ("rules", "setting", "expected"),
    [
        pytest.param(BalloonsSettings(), MemoryNodes.POLICY, "1", id="the policy's own word, true by default"),
        pytest.param(BalloonsSettings(pin_cpu=False), MemoryNodes.POLICY, "1", id="also where CPUs are not pinned"),
        pytest.param(BalloonsSettings(pin_memory=False), MemoryNodes.FOLLOW, "", id="false overrules follow"),
        pytest.param(BalloonsSettings(), MemoryNodes.OFF, "", id="off overrules true"),
        pytest.param(None, MemoryNodes.POLICY, "", id="static has no word on it"),
    ],
)
@pytest.mark.parametrize("by_type", [False, True], ids=["policy", "type"])
def test_pin_memory_of_the_policy_decides(
    rules: BalloonsSettings | None, setting: MemoryNodes, expected: str, by_type: bool
) -> None:
    node = told_nodes(CpusSettings(memory=setting))
    if rules is not None:
        pin = rules.pin_memory if by_type else None
        one = BalloonType("p", namespaces=("shop",), prefer_new_balloons=True, pin_memory=pin)
        rules = replace(rules, balloon_types=(one,), pin_memory=rules.pin_memory != by_type)
        cpu0 = Amount(AmountKind.CPUSET, 0b1111)
        build.settings(node, PolicySettings("balloons", reserved=cpu0, balloons=rules))
    assert memory(build.create(node, "web", 2)) == expected


@pytest.mark.parametrize("why", ["off", "kubelet", "observe"])
def test_nodes_are_left_as_they_are(why: str) -> None:
    """By the setting, where kubelet's memory manager has given some, and where nothing is written at all."""
    cpus = {"off": CpusSettings(), "observe": replace(FOLLOW, mode=Mode.OBSERVE)}.get(why, FOLLOW)
    node = told_nodes(cpus)
    made = build.one("wide", 4)
    if why == "kubelet":
        made = replace(made, cpu=replace(made.cpu, mems=0b1))
    assert memory(node(ev.Creating(build.home("wide"), made, ask_id=7))) == ""


@pytest.mark.parametrize("is_back", [False, True], ids=["gone", "back, and empty"])
def test_memory_nodes_that_were_lost_with_the_controller_are_written_again(is_back: bool) -> None:
    """Somebody takes the controller away, and perhaps gives it back before the sets are compared."""
    node = told_nodes()
    build.settle(node, build.create(node, "wide", 4))
    path = "/kubepods/podwide/wide-0"
    read = ev.CpusetsRead({path: 0} if is_back else {}, node.state.seq, {} if is_back else {path: "gone"})
    assert goals(node(read)) == {path: "1"}


def test_after_a_restart_the_nodes_are_those_of_the_runtimes_record() -> None:
    node = told_nodes(CpusSettings())
    made = build.one("web", qos="burstable", now=0b1111).in_phase(Phase.RUNNING)
    made = replace(made, cpu=replace(made.cpu, mems=of([0])))
    listed = node(ev.Listed((build.home("web", "burstable"),), (made,), as_of=node.state.seq))
    assert goals(listed) == {"/kubepods/burstable/podweb/web-0": "0-1"}


HISTORIES = 25


@pytest.mark.parametrize("policy", histories.RULES)
def test_nobody_moves_and_no_cpu_is_two_containers_own_whatever_dies_when(policy: str) -> None:
    assert list(histories.wrong(policy, range(HISTORIES))) == []


@pytest.mark.nightly
@pytest.mark.parametrize("policy", histories.RULES)
def test_the_same_in_two_thousand_histories(policy: str) -> None:
    assert list(histories.wrong(policy, range(HISTORIES, 2000))) == []
