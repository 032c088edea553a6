"""Memory nodes that follow CPUs: which are close, what a new container is given, and that nothing is taken away."""

from dataclasses import replace

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from nodeward.engine.cpus.memory import nodes_of
from nodeward.engine.show.cpus import cpu_sentences, cpus_view
from nodeward.model import events as ev
from nodeward.model.cpuset import of, text
from nodeward.model.decision import Decision, Target
from nodeward.model.policy_rule import Amount, AmountKind, CpusSettings, MemoryNodes, PolicySettings
from nodeward.model.pool_rule import BalloonsSettings, BalloonType, MemoryType
from nodeward.model.settings import Mode
from nodeward.model.topology import Group, Machine, MemoryNode
from nodeward.model.workload import Phase
from tests.unit.engine.build import Told, adjusted
from tests.unit.engine.cpus import build, histories
from tests.unit.engine.cpus.machines import W

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


@pytest.mark.parametrize(
    ("nodes", "cpus", "expected"),
    [
        (DRAM, ONE_NODE, "1"),
        (DRAM, 1 | 1 << 15, "0,3"),
        ((*DRAM, replace(PMEM, distances={1: 17}), FAR_PMEM), ONE_NODE, "1,4-5"),
        (
            (*(replace(one, distances={**one.distances, 4: 17 if one.id == 1 else 30, 5: 40}) for one in DRAM), PMEM),
            ONE_NODE,
            "1,4",
        ),
        ((*DRAM, HBM), ONE_NODE, "1,6"),
        ((DRAM[0], replace(DRAM[1], normal=False), *DRAM[2:]), ONE_NODE, "0-3"),
        ((DRAM[0], replace(DRAM[1], bytes=0, distances={0: 30, 1: 10, 2: 12, 3: 30}), *DRAM[2:]), ONE_NODE, "2"),
        ((), ONE_NODE, ""),
        (tuple(replace(one, bytes=0) for one in DRAM), ONE_NODE, ""),
    ],
    ids=[
        "its own node",
        "two nodes",
        "equally far PMEM: both",
        "the closest PMEM",
        "HBM without distances",
        "its node has no normal memory: the closest that have",
        "its node has none: the closest",
        "no NUMA",
        "no sizes",
    ],
)
def test_the_nodes_of_cpus(nodes: tuple[MemoryNode, ...], cpus: int, expected: str) -> None:
    assert text(nodes_of(of_memory(*nodes), cpus)) == expected


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


def told(cpus: CpusSettings = FOLLOW) -> Told:
    """CPU 0 is reserved; CPUs 0 to 3 are on node 0, 4 to 7 on node 1."""
    groups = tuple(Group(one.id, one.cpus) for one in TWO)
    return build.told(cpus=cpus, of=replace(build.machine(), packages=groups, nodes=groups, memory=TWO))


def memory(decision: Decision) -> str:
    return adjusted(decision).memory_nodes


def goals(decision: Decision) -> dict[str, str]:
    found = [goal for goal in decision.goals if goal.target.kind == "cpuset.mems"]
    return {where: str(goal.value) for goal in found for where in (goal.target.where, *goal.also)}


def test_a_container_gets_the_nodes_of_its_cpus_and_keeps_what_it_had() -> None:
    node = told()
    assert memory(build.create(node, "all", 0, "burstable")) == ""
    build.settle(node, build.create(node, "front", 1))
    assert memory(build.create(node, "wide", 4)) == "1"
    assert memory(build.create(node, "web", 0, "burstable")) == "0"
    gone = build.end(node, "wide")
    assert goals(gone) == {"/kubepods/burstable/podweb/web-0": "0-1"}
    where = Target("cpuset.mems", "/kubepods/burstable/podweb/web-0", "memory")
    node(ev.Missed(((where, "it may use memory nodes 0, not 1"),)))
    view = cpus_view(node.state, 0)
    assert view is not None
    (row,) = [row for row in view.holders if row.pod == "web"]
    assert "These could not be set: it may use memory nodes 0, not 1." in "\n".join(cpu_sentences(view, row))
    assert [row.memory for row in view.holders] == ["", "0", "0-1"]
    node(ev.Reached((where,), (where,)))
    assert node.state.cpus.memory_misses == {}

    build.create(node, "wide", 4, life=1)
    update = ev.Updating(build.home("web", "burstable"), build.one("web", qos="burstable"), ask_id=99)
    assert (memory(node(update)), build.sets(node)["web"]) == ("0-1", "0,2-3")


PODS = BalloonType("p", namespaces=("shop",), prefer_new_balloons=True)


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
    node = told(CpusSettings(memory=setting))
    if rules is not None:
        one = replace(PODS, pin_memory=rules.pin_memory if by_type else None)
        rules = replace(rules, balloon_types=(one,), pin_memory=rules.pin_memory != by_type)
        cpu0 = Amount(AmountKind.CPUSET, 0b1111)
        build.settings(node, PolicySettings("balloons", reserved=cpu0, balloons=rules))
    assert memory(build.create(node, "web", 2)) == expected


@pytest.mark.parametrize("why", ["off", "kubelet", "observe"])
def test_nodes_are_left_as_they_are(why: str) -> None:
    """By the setting, where kubelet's memory manager has given some, and where nothing is written at all."""
    cpus = {"off": CpusSettings(), "observe": replace(FOLLOW, mode=Mode.OBSERVE)}.get(why, FOLLOW)
    node = told(cpus)
    made = build.one("wide", 4)
    if why == "kubelet":
        made = replace(made, cpu=replace(made.cpu, mems=0b1))
    assert memory(node(ev.Creating(build.home("wide"), made, ask_id=7))) == ""


@pytest.mark.parametrize("is_back", [False, True], ids=["gone", "back, and empty"])
def test_memory_nodes_that_were_lost_with_the_controller_are_written_again(is_back: bool) -> None:
    """Somebody takes the controller away, and perhaps gives it back before the sets are compared."""
    node = told()
    build.settle(node, build.create(node, "wide", 4))
    path = "/kubepods/podwide/wide-0"
    read = ev.CpusetsRead({path: 0} if is_back else {}, node.state.seq, {} if is_back else {path: "gone"})
    assert goals(node(read)) == {path: "1"}


def test_after_a_restart_the_nodes_are_those_of_the_runtimes_record() -> None:
    node = told(CpusSettings())
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
