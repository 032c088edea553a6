"""Who sits on which CPUs, drawn, told, and in a NodeResourceTopology object."""

from dataclasses import replace

import pytest

from nodeward.cli.cpu_lines import cpu_lines, cpus_by_container
from nodeward.doubles.cpus import Plan
from nodeward.doubles.kernel import SimKernel
from nodeward.edges.sysfs.topology import read
from nodeward.engine.show.cpu_words import cpu_sentence
from nodeward.engine.show.cpus import cpus_view, drawing
from nodeward.engine.show.explain import explain
from nodeward.engine.show.view import node_view
from nodeward.engine.show.zones import NOTHING, zones
from nodeward.engine.state.cpus import Cpus, Held
from nodeward.engine.state.pods import KnownSandbox, Pods
from nodeward.engine.state.root import State
from nodeward.model import cpuset
from nodeward.model import events as ev
from nodeward.model.cpu_rows import CpusView
from nodeward.model.cpus import Grant, Pool
from nodeward.model.cpus import Pools as PoolsOfPolicy
from nodeward.model.policy_rule import Amount, AmountKind, CpusSettings, PolicySettings
from nodeward.model.pool_rule import BalloonsSettings, BalloonType
from nodeward.model.refusal import Reason
from nodeward.model.settings import EngineSettings, Mode
from nodeward.model.topology import MemoryNode
from nodeward.model.workload import ContainerId, PodUid
from nodeward.model.zones import CpuAmount, NodeZones, Zone
from tests.unit.engine.build import SECOND, Told, sandbox
from tests.unit.engine.cpus.build import create, told
from tests.unit.engine.cpus.machines import machine

SHARED = cpuset.parse("2-7,10-15")
GRANTS = (
    Grant("A/db", own=cpuset.parse("1,9"), request_m=2000, source="pod spec", reason=Reason("static-own", (2,))),
    Grant("A/side", "shared", part_m=500, request_m=500),
    Grant("B/app", "shared", request_m=100),
    Grant("B/agent", "reserved", request_m=100),
    Grant("C/half", "shared", own=1 << 8, part_m=500, request_m=1500),
)
HELD = {"A/db": cpuset.parse("1,9"), "A/side": SHARED, "B/app": (1 << 16) - 1}


def state(mode: Mode = Mode.ENFORCE) -> State:
    pools = {"reserved": Pool(1, members=("B/agent",)), "shared": Pool(SHARED, members=("A/side", "B/app", "C/half"))}
    boxes = [sandbox(uid) for uid in "AB"]
    return State(
        EngineSettings(cpus=CpusSettings(mode)),
        Pods(
            sandboxes={box.id: KnownSandbox(box, 1) for box in boxes},
            sandbox_of={PodUid(box.pod_uid): box.id for box in boxes},
        ),
        cpus=Cpus(
            read(SimKernel({}, machine=Plan(nodes=1))),
            PolicySettings("static"),
            PoolsOfPolicy(pools, {grant.key: grant for grant in GRANTS}),
            {ContainerId(key.replace("/", "-")): Held(key, has=has, since_ns=SECOND) for key, has in HELD.items()},
            unplaced={"D/old": "its request is not known"},
            misses={ContainerId("B-app"): "Permission denied"},
        ),
    )


def shown(mode: Mode = Mode.ENFORCE) -> CpusView:
    found = cpus_view(state(mode), 4 * SECOND)
    assert found is not None
    return found


def test_the_drawing_has_a_sign_for_each_thread_by_package_node_and_cache() -> None:
    assert list(drawing(shown(), 80)) == [
        "cpus enforce by nri | policy static | 3 of 16 CPUs exclusive to 2 container(s), 4 share",
        "package 0",
        "  node 0",
        "    L3 0  [rB][AA][..][..]  CPUs 0-3,8-11",
        "package 1",
        "  node 1",
        "    L3 1  [..][..][..][..]  CPUs 4-7,12-15",
        ". shared, r reserved",
        "A shop/pod-A/db: 1,9",
        "B C/half: 8 and pool shared (waiting)",
        "pool reserved: 0, 1 container(s)",
        "pool shared: 2-7,10-15, 3 container(s)",
        "D/old: has no CPUs by the policy and stays where it is: its request is not known",
        "shop/pod-B/app: its CPUs could not be set: Permission denied",
    ]


def test_a_line_is_no_wider_than_the_terminal_and_loses_no_core() -> None:
    large = cpus_view(State(cpus=Cpus(read(SimKernel({}, machine=Plan(nodes=4, l3=2, cores=8))))), 0)
    assert large is not None
    lines = [line for line in drawing(large, 24) if "[" in line]
    assert sum(line.count("[--]") for line in lines) == 128
    assert max(len(line.partition("  CPUs")[0]) for line in lines) <= 24


def test_status_has_a_line_where_a_policy_is_at_work_and_some_of_its_troubles_and_in_observe_nothing_is_held() -> None:
    found = state(Mode.OBSERVE)
    crowd = {f"{number}/old": "why" for number in range(9)}
    view = node_view(replace(found, cpus=replace(found.cpus, unplaced=crowd)), 0, {})
    lines = [line.plain for line in cpu_lines(view)]
    assert lines[0].startswith("cpus observe by nri | policy static")
    assert lines[-1] == "... and 5 more, see nodeward cpus"
    assert cpu_lines(node_view(State(), 0, {})) == []
    assert {row.state for row in shown(Mode.OBSERVE).holders if row.kind != "unplaced"} == {"observed"}


def test_explain_says_which_cpus_with_whom_since_when_and_why() -> None:
    view = node_view(state(), 4 * SECOND, {})
    assert explain(view, "shop/pod-A/db") == [
        "cpus shop/pod-A/db: 1,9, exclusive; 2 CPU(s) requested (pod spec).",
        "  static-own 2",
        "  The kernel lets it use 1,9, for 3 s.",
    ]
    assert explain(view, "B-app") == [
        "cpus shop/pod-B/app: 2-7,10-15, shared; 0.1 CPU(s) requested.",
        "  Shares pool shared (CPUs 2-7,10-15) with C/half, shop/pod-A/side.",
        "  The kernel lets it use 0-15, for 3 s; it is being put right.",
        "  The last write failed: Permission denied.",
    ]
    of_pod = [line.split()[1] for line in explain(view, "pod-A") or [] if line.startswith("cpus ")]
    assert of_pod == ["shop/pod-A/db:", "shop/pod-A/side:"]
    kept = "  No container of this name is there now; the CPUs are kept for it."
    assert (explain(view, "shop/pod-B/agent") or [])[-1] == kept


def test_each_container_of_the_table_has_its_own_cpus_or_the_pool_that_it_shares() -> None:
    words = cpus_by_container(node_view(state(), 4 * SECOND, {}))
    kinds = {row.name: row for row in shown().holders}
    assert {name: word.rstrip("?") for name, word in words.items() if kinds[name].kind == "exclusive"} == {
        row.name: row.own for row in kinds.values() if row.kind == "exclusive"
    }
    assert {word.rstrip("?") for name, word in words.items() if kinds[name].kind == "shared"} == {"shared"}


def test_a_reason_is_a_sentence_and_one_of_another_version_is_told_as_it_is() -> None:
    taken = Reason("cpus-static-taken", (3, "3,18-19", 30, 0, 0, 1, 1))
    assert "3 whole CPU(s) of 30 that were free and not isolated: 3,18-19 (1 whole core(s)" in cpu_sentence(taken)
    for other in (Reason("cpus-static-taken", (3, "3")), Reason("cpus-unheard-of", (3, "x"))):
        assert f"{other.code} {' '.join(map(str, other.values))}" in cpu_sentence(other)


FAR = {0: 10, 1: 21}
HERE = replace(
    machine(1, 2),
    isolated=1 << 7,
    memory=(MemoryNode(0, 0x0F0F, 1 << 30, distances=FAR), MemoryNode(2, 0, 1 << 20, distances={2: 10})),
)
"""Two NUMA nodes of four cores: the CPUs 0-3,8-11 and 4-7,12-15; a third node is memory alone."""
CPU0 = Amount(AmountKind.CPUSET, 1)
BALLOONS = BalloonsSettings(balloon_types=(BalloonType("web", ("shop",), max_cpus=4, prefer_new_balloons=True),))


def node(policy: PolicySettings) -> Told:
    engine = told(policy, of=HERE)
    engine(ev.RuntimeConnected("containerd", "2.4"))
    return engine


def told_zones(engine: Told) -> dict[str, Zone]:
    found = zones(engine.state)
    assert found is not None
    return {zone.name: zone for zone in found.zones}


def test_exclusive_and_requested_cpus_are_not_available() -> None:
    engine = node(PolicySettings("static", reserved=CPU0))
    create(engine, "db", 2)
    create(engine, "log", 1, "burstable")
    found = told_zones(engine)
    assert found["socket #0"].cpu == CpuAmount(16000, 15000, 12000)
    near, far = found["node-0"], found["node-1"]
    assert (near.type, near.parent, near.costs) == ("Node", "socket #0", {"node-0": 10, "node-1": 21})
    assert near.cpu is not None
    assert far.cpu is not None
    assert near.cpu.capacity_m == far.cpu.capacity_m == 8000
    assert near.attributes["reserved cpuset"] == "0"
    assert near.attributes["exclusive cpuset"] == "1,9"
    assert near.attributes["memory capacity"] == str(1 << 30)
    assert far.attributes["isolated cpuset"] == "7"
    assert (found["node-2"].cpu, found["node-2"].attributes) == (None, {"memory capacity": str(1 << 20)})
    # the shared request counts on each usable CPU of the pool alike: 5 of them near, 7 far
    assert (near.cpu.available_m, far.cpu.available_m) == (5000 - 417, 8000 - 584)
    assert found["shared"] == Zone(
        "shared",
        "pool",
        CpuAmount(16000, 13000, 12000),
        attributes={"cpuset": "0,2-6,8,10-15", "excess cpus": "12000m"},
    )


def test_a_balloon_is_told_as_nri_plugins_does() -> None:
    engine = node(PolicySettings("balloons", reserved=CPU0, balloons=BALLOONS))
    create(engine, "a", 1, "burstable")
    web = told_zones(engine)["web[0]"]
    assert (web.type, web.cpu) == ("balloon", CpuAmount(16000, 4000, 3000))
    assert web.attributes["excess cpus"] == "0m"


@pytest.mark.parametrize(
    ("engine", "found"),
    [
        pytest.param(told(of=HERE), None, id="no-runtime"),
        pytest.param(told(cpus=CpusSettings(Mode.OFF), of=HERE), NOTHING, id="off"),
        pytest.param(told(PolicySettings("static"), of=HERE), None, id="unfit"),
    ],
)
def test_nothing_is_told_that_is_not_known(engine: Told, found: NodeZones | None) -> None:
    assert zones(engine.state) == found
