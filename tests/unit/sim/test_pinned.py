"""What must never be of CPUs on the simulated node, each broken once; the kernel double says what is so."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from nodeward.doubles.cpus import Plan
from nodeward.doubles.kernel import CGROUP_MOUNT, SimKernel
from nodeward.doubles.runtime import SimContainer, SimPod, SimRuntime
from nodeward.doubles.runtime_plugins import Plugin
from nodeward.sim.invariants import Judge
from nodeward.sim.pinned import EMPTY, MOVED, NEEDLESS, OVERLAP, WRONG, Pinned
from nodeward.transport import ttrpc_unix
from nodeward.transport.ttrpc_unix import TtrpcPeer


@dataclass(slots=True)
class Node:
    """A node with a container that has CPUs 2 and 3 for its own, and one that shares all others."""

    kernel: SimKernel
    pinned: Pinned
    judge: Judge
    own: str
    shared: str

    def write(self, cgroup: str, cpus: str) -> None:
        self.kernel.write(f"{CGROUP_MOUNT}{cgroup}/cpuset.cpus", cpus.encode())

    def told(self, cgroup: str, cpus: str) -> None:
        self.pinned.written(f"{CGROUP_MOUNT}{cgroup}/cpuset.cpus", cpus.encode())


async def node(folder: Path, own: str = "2-3", shared: str = "0-1,4-31") -> Node:
    kernel, judge = SimKernel({}, machine=Plan()), Judge(6.0)
    runtime = SimRuntime(folder / "nri", kernel)
    pinned = Pinned(kernel, runtime, judge, lambda: 100.0, Random(1))
    runtime.nri.plugins.append(Plugin(TtrpcPeer(ttrpc_unix.unimplemented, serves=1, calls=2)))  # asks for nothing
    cgroups = []
    for name, count, cpus in (("shares", 0, shared), ("app", 2, own)):
        container_id = await runtime.create_container(await runtime.run_pod(SimPod(name, name)), SimContainer(name))
        runtime.containers()[-1].linux.resources.cpu.cpus = cpus  # as a plugin would have answered
        await pinned.created(container_id, count)
        await runtime.start(container_id)
        cgroups.append(runtime.cgroup(container_id))
    return Node(kernel, pinned, judge, own=cgroups[1], shared=cgroups[0])


Break = Callable[[Node], None]


@pytest.mark.parametrize(
    ("breaks", "invariant"),
    [
        pytest.param(lambda node: None, "", id="nothing"),
        pytest.param(lambda node: node.write(node.shared, "0-31"), OVERLAP, id="another comes onto own CPUs"),
        pytest.param(lambda node: node.write(node.own, "2,4"), MOVED, id="own CPUs become others"),
        pytest.param(lambda node: node.write(node.own, "2"), WRONG, id="own CPUs become fewer"),
        pytest.param(lambda node: node.write(node.shared, "\n"), EMPTY, id="a set is taken away"),
        pytest.param(lambda node: node.told(node.shared, ""), EMPTY, id="the daemon writes an empty set"),
        pytest.param(lambda node: node.told(node.own, "2-3"), NEEDLESS, id="the daemon writes what is there"),
        pytest.param(lambda node: node.told(node.own, "4-5"), "", id="the daemon writes another set"),
    ],
)
def test_what_must_never_be_of_cpus_is_told(breaks: Break, invariant: str, tmp_path: Path) -> None:
    there = asyncio.run(node(tmp_path))
    breaks(there)
    there.pinned.look()

    assert ([one.partition(":")[0] for one in there.judge.violations] or [""])[0] == invariant
