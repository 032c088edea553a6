"""What a NodeResourceTopology object tells: amounts of packages, NUMA nodes and pools, by hand for small machines."""

from dataclasses import replace

import pytest

from nodeward.engine.show.zones import NOTHING, zones
from nodeward.model import events as ev
from nodeward.model.policy_rule import Amount, AmountKind, CpusSettings, PolicySettings
from nodeward.model.pool_rule import BalloonsSettings, BalloonType
from nodeward.model.settings import Mode
from nodeward.model.topology import MemoryNode
from nodeward.model.zones import CpuAmount, NodeZones, Zone
from tests.unit.engine.build import Told
from tests.unit.engine.cpus.build import create, told
from tests.unit.engine.cpus.machines import machine

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


def shown(engine: Told) -> dict[str, Zone]:
    found = zones(engine.state)
    assert found is not None
    return {zone.name: zone for zone in found.zones}


def test_exclusive_and_requested_cpus_are_not_available() -> None:
    engine = node(PolicySettings("static", reserved=CPU0))
    create(engine, "db", 2)
    create(engine, "log", 1, "burstable")
    found = shown(engine)
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
    web = shown(engine)["web[0]"]
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
