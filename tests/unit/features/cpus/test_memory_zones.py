"""Memory that is counted: which nodes a container may use, and who gets more nodes where one is full."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from nodeward.core import events as ev
from nodeward.core.cpuset import of, text
from nodeward.core.decision import Decision
from nodeward.core.hints import Hint, HintKind, Hints
from nodeward.core.topology import Machine, MemoryNode
from nodeward.core.workload import ContainerId, Phase, Qos
from nodeward.features.cpus.feature import CPUS
from nodeward.features.cpus.memory_zones import counted, promised
from nodeward.features.cpus.pool_settings import MemoryType, PoolLevel, TopologyAwareSettings
from nodeward.features.cpus.pools import joined, left
from nodeward.features.cpus.settings import Amount, AmountKind, PolicySettings
from nodeward.features.cpus.values import Ask, CpusRecalled, Grant, Ground, Pools, Recorded
from nodeward.features.cpus.words import drawing
from nodeward.features.root import State
from tests.unit.features.build import Told, adjusted
from tests.unit.features.cpus import build
from tests.unit.features.cpus.machines import W, machine

GIB = 1 << 30
RULES = PolicySettings("topology-aware")
CPU0_RESERVED = replace(RULES, reserved=Amount(AmountKind.CPUSET, 1))


def nodes(machine: Machine, *others: MemoryNode, gib: int = 8) -> Machine:
    """With so much DRAM a node: one of the same package is near."""

    def far(one: int, other: int) -> int:
        return 10 if one == other else 11 if one // 2 == other // 2 else 21

    count = len(machine.nodes)
    dram = (
        MemoryNode(one.id, one.cpus, gib * GIB, distances={i: far(one.id, i) for i in range(count)})
        for one in machine.nodes
    )
    return replace(machine, memory=(*dram, *others))


MACHINE = nodes(W)
WITH_PMEM = nodes(W, MemoryNode(4, 0, 64 * GIB, distances={i: 17 + 11 * (i > 1) for i in range(4)}))


class Node:
    def __init__(self, machine: Machine = MACHINE) -> None:
        self.ground, self.at = Ground(machine, RULES), Pools()

    def comes(
        self,
        name: str,
        gib: int,
        node: int,
        qos: Qos = Qos.GUARANTEED,
        mems: int | None = None,
        types: Sequence[MemoryType] = (),
    ) -> None:
        one = Ask(f"{name}/c", name, "shop", name, "c", qos, 1000, memory_request=gib * GIB, mems=mems)
        own = next(one.cpus for one in self.ground.machine.nodes if one.id == node)
        grant = Grant(one.key, own=own, pins_memory=True, memory_types=tuple(types))
        self.at = counted(self.ground, self.at, joined(self.at, grant), (one,))

    def ends(self, name: str) -> None:
        self.at = left(self.at, f"{name}/c")

    def zones(self) -> str:
        return " ".join(f"{key[0]}:{text(grant.zone) or 'any'}" for key, grant in self.at.grants.items())


def test_the_example_of_the_reference() -> None:
    node = Node()
    node.comes("a", 5, 0)
    node.comes("b", 2, 0, Qos.BURSTABLE)
    node.comes("c", 3, 0)
    assert (node.zones(), node.at.grants["b/c"].widened) == ("a:0 b:0-1 c:0", "c/c")
    node.comes("d", 1, 0)
    node.comes("e", 3, 1)
    assert node.zones() == "a:0 b:0-1 c:0 d:0-1 e:1"
    assert promised(node.at.grants) == {of([0]): 8 * GIB, of([1]): 3 * GIB, of([0, 1]): 14 * GIB}


def test_who_fits_no_zone_has_all_nodes_and_nobody_is_refused_and_one_node_is_not_counted() -> None:
    node = Node()
    node.comes("a", 40, 0)
    node.comes("b", 8, 0)
    assert node.zones() == "a:0-3 b:0"
    node = Node(replace(W, memory=(MemoryNode(0, W.online, GIB),)))
    node.comes("a", 4, 0)
    assert node.zones() == "a:any"


@pytest.mark.parametrize(("mems", "expected"), [(of([0, 2]), "a:0,2"), (0, "a:any")], ids=["these", "any"])
def test_who_runs_already_keeps_its_nodes(mems: int, expected: str) -> None:
    node = Node()
    node.comes("a", 1, 0, mems=mems)
    assert node.zones() == expected


def test_pmem_and_hbm_are_taken_by_who_asks_for_them_and_where_dram_is_short() -> None:
    node = Node(WITH_PMEM)
    node.comes("b", 1, 0, types=(MemoryType.PMEM,))
    for name in "acde":
        node.comes(name, 4, 0, types=(MemoryType.DRAM,))
    node.comes("f", 4, 2, types=(MemoryType.DRAM,))
    assert node.zones() == "b:4 a:0 c:0 d:0-1 e:0-1 f:2"


def test_a_node_without_cpus_that_goes_away_is_written_nowhere_until_it_is_back() -> None:
    engine = build.told(CPU0_RESERVED, of=WITH_PMEM)

    def comes(pod: str) -> str:
        home = replace(build.home(pod), annotations={"memory-type.resource-policy.nri.io/pod": "pmem"})
        return adjusted(build.begin(engine, home, replace(build.one(pod, 2), memory=GIB))).memory_nodes

    def read(machine: Machine) -> dict[str, str]:
        return {goal.target.where: str(goal.value) for goal in engine(ev.TopologyRead(machine)).goals}

    assert comes("a") == "4"
    assert read(nodes(W)) == {"/kubepods/poda/a-0": "1"}
    assert comes("b") == "2"
    engine(ev.Stopped(build.home("a"), build.one("a", 2)))
    assert comes("a") == "1"  # its container began anew
    assert read(WITH_PMEM) == {"/kubepods/poda/a-0": "1,4", "/kubepods/podb/b-0": "2,4"}


def two_nodes() -> Told:
    """Of 1 GiB each."""
    tree = TopologyAwareSettings(unlimited_burstable=PoolLevel.NUMA)
    return build.told(replace(CPU0_RESERVED, topology_aware=tree), of=nodes(machine(nodes=1), gib=1))


def memory_lines(engine: Told) -> list[str]:
    return [line for line in drawing(build.shown(engine), 100) if line.startswith("memory")]


def test_a_container_that_runs_gets_more_nodes_and_is_told_for_whom() -> None:
    """The one that runs is Burstable, and gives way to a Guaranteed one."""
    engine = two_nodes()
    paths = dict[str, str]()

    def comes(pod: str, cpus: int, mib: int, qos: str = "") -> Decision:
        made = replace(build.one(pod, cpus, qos), memory=mib << 20)
        paths[pod] = made.cgroups_path
        return build.begin(engine, build.home(pod, qos), made)

    assert adjusted(comes("web", 0, 700, "burstable")).memory_nodes == "1"
    assert adjusted(comes("job", 0, 700, "burstable")).memory_nodes == "0"  # where there is room
    last = comes("db", 4, 600)
    assert adjusted(last).memory_nodes == "1"
    written = {goal.target.where: str(goal.value) for goal in last.goals if goal.target.kind == "cpuset.mems"}
    assert written == {paths["web"]: "0-1"}
    (row,) = (row for row in build.shown(engine).holders if row.pod == "web")
    assert row.memory_for == "shop/db/app"
    assert memory_lines(engine) == [
        "memory of node(s) 0: 700Mi of 1Gi promised, 1 container(s); in use: not known",
        "memory of node(s) 1: 600Mi of 1Gi promised, 1 container(s); in use: not known",
        "memory of node(s) 0-1: 2000Mi of 2Gi promised, 3 container(s); in use: not known",
    ]


def in_use(**containers: Mapping[int, int]) -> ev.MemoryUsed:
    """By pod, MiB on each node."""
    used = {name: {node: mib << 20 for node, mib in of.items()} for name, of in containers.items()}
    return ev.MemoryUsed({ContainerId(f"{name}-0"): of for name, of in used.items()})


def test_what_is_in_use_on_a_node_is_shown_beside_what_is_promised() -> None:
    engine = two_nodes()
    build.create(engine, "db", 4)
    build.create(engine, "web", qos="burstable")
    engine(in_use(db={0: 0, 1: 512}, nobody={1: 99}))
    assert [line.partition("; ")[2] for line in memory_lines(engine)] == [
        "0 in use by 0 container(s), 1 not known",
        "512Mi in use by 1 container(s), 1 not known",
    ]
    engine(in_use(web={0: 32, 1: 8}))
    assert memory_lines(engine) == [
        "memory of node(s) 0: 0 of 1Gi promised, 1 container(s); 32Mi in use by 1 container(s)",
        "memory of node(s) 1: 0 of 1Gi promised, 1 container(s); 520Mi in use by 2 container(s)",
    ]
    assert build.shown(engine).memory_used == {0: 32 << 20, 1: 520 << 20}


def test_what_a_container_used_is_forgotten_once_it_cannot_be_read_or_ends() -> None:
    engine = two_nodes()
    for pod in ("db", "web"):
        build.create(engine, pod, 1)
    engine(in_use(db={0: 1}, web={0: 2}))
    engine(in_use(web={}))
    assert list(engine.state.cpus.memory_used) == ["db-0"]
    build.stop(engine, "db", 1)
    build.end(engine, "db")
    assert engine.state.cpus.memory_used == {}


def begins_cold(said: str, machine: Machine) -> tuple[Told, Decision]:
    """A container of two CPUs with this annotation, as JSON, on machine W and more memory."""
    engine = build.told(CPU0_RESERVED, of=machine)
    home, made = (
        replace(build.home("web"), annotations={"cold-start.resource-policy.nri.io": said}),
        build.one("web", 2),
    )
    return engine, engine(ev.Creating(home, made, ask_id=engine.state.seq + 1))


def test_a_container_begins_without_dram_and_gets_it_when_its_time_is_over() -> None:
    engine, decision = begins_cold('{"duration":"1m30s"}', WITH_PMEM)
    assert adjusted(decision).memory_nodes == "4"
    home, made = build.home("web"), build.one("web", 2)
    engine(ev.Created(home, made))
    assert CPUS.next_wake(engine.state) is None  # its time begins with its program
    engine(ev.Started(home, made.in_phase(Phase.RUNNING)))
    assert CPUS.next_wake(engine.state) == 91 * 10**9
    engine.at_ns = 90 * 10**9
    assert not engine(ev.Tick()).goals
    engine.at_ns = 91 * 10**9
    (goal,) = engine(ev.Tick()).goals
    assert (goal.target.kind, goal.target.where, goal.value) == ("cpuset.mems", made.cgroups_path, "1,4")
    assert CPUS.next_wake(engine.state) is None
    engine, decision = begins_cold('{"duration":"1m30s"}', nodes(W))
    assert adjusted(decision).memory_nodes == "1"  # there is nothing slower


def test_a_daemon_that_begins_anew_goes_on_with_the_time_that_is_left() -> None:
    before, _ = begins_cold('{"duration":"1h"}', WITH_PMEM)
    home, made = build.home("web"), build.one("web", 2)
    for event in ev.Created(home, made), ev.Started(home, made.in_phase(Phase.RUNNING)):
        before(event)
    cpus = before.state.cpus
    engine = Told(State(settings=before.state.settings), at_ns=3500 * 10**9)
    engine(CpusRecalled(Recorded(WITH_PMEM, cpus.rules, cpus.pools, {"web/app": of((4,))})))
    engine(ev.TopologyRead(WITH_PMEM))
    engine(ev.Listed((home,), (made.in_phase(Phase.RUNNING),), 1))
    assert CPUS.next_wake(engine.state) == 3601 * 10**9


def test_memory_of_things_that_kubelet_gave_stays_theirs() -> None:
    """Its CPUs are on all nodes; it is not given the memory of all."""
    engine = build.told(CPU0_RESERVED, of=nodes(W))
    home = replace(build.home("web"), annotations={"pick-resources-by-hints.resource-policy.nri.io": "true"})
    made = build.one("web", 3)
    hints = Hints(tuple(Hint(HintKind.POD_RESOURCE, nodes=1 << node) for node in (1, 3)))
    decision = engine(ev.Creating(home, made, ask_id=engine.state.seq + 1, hints=hints))
    assert adjusted(decision).memory_nodes == "1,3"
    engine(ev.Created(home, made))
    assert not engine(ev.Started(home, made.in_phase(Phase.RUNNING))).goals


@pytest.mark.parametrize(
    "said", ["60s", '{"duration":60}', '{"duration":"61m"}', '{"duration":"1s","x":1}', '{"duration":"s"}']
)
def test_a_time_without_dram_that_cannot_be_read_is_refused(said: str) -> None:
    _, decision = begins_cold(said, W)
    assert "is no time up to an hour; write `duration: 60s`" in str(build.refused(decision))


lives = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 9), st.integers(0, 3), st.sampled_from(Qos)), max_size=16
)


@drawn(lives)
def test_a_zone_only_ever_grows_and_none_is_promised_more_than_it_has(life: list[tuple[str, int, int, Qos]]) -> None:
    node = Node()
    for name, gib, of_node, qos in life:
        before = dict(node.at.grants)
        if f"{name}/c" in before:
            node.ends(name)
        else:
            node.comes(name, gib, of_node, qos)
        for key, grant in node.at.grants.items():
            assert not before.get(key, grant).zone & ~grant.zone
        for zone, bytes_ in promised(node.at.grants).items():
            assert bytes_ <= 8 * GIB * zone.bit_count() or zone == of(range(4))
