"""The peers themselves: they are what their names say, so that a test which passes on one means something."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from nodeward.model.events import Created, Creating, Listed, Removed, RuntimeConnected, Started, Stopped
from tests.patience import scaled
from tests.peers.cpuoracle import Place, allocate, cpu_oracle, machine, remove
from tests.peers.find import require
from tests.peers.nriside import EACH, member, nriside, text
from tests.peers.plugin import nodeward_plugin

THREADS = [Place(cpu=cpu, core=cpu % 4) for cpu in range(8)]
"""Four cores with two threads each."""


def test_cpu_oracle_gives_both_threads_of_a_core() -> None:
    """Given four cores with two threads, when containers come and go, then the kubelet's known answers come."""
    with cpu_oracle() as oracle:
        assert oracle.verdict(machine(THREADS, reserved=[0])).shared == "0-7"
        assert oracle.verdict(allocate("first", "app", 2000)).cpus == "1,5"
        assert oracle.verdict(allocate("second", "app", 3000)).shared == "0,3,7"
        assert oracle.verdict(remove("first", "app")).shared == "0-1,3,5,7"
        assert "not enough cpus" in oracle.verdict(allocate("third", "app", 30_000)).error


def test_cpu_oracle_knows_alpha_options_roles_and_hints() -> None:
    """Given two NUMA nodes, then it reads alpha options, gives an init container's CPUs again and follows a hint."""
    places = [Place(cpu=cpu, core=cpu % 4, numa=cpu % 4 // 2) for cpu in range(8)]
    with cpu_oracle() as oracle:
        assert oracle.verdict(machine(places, options={"distribute-cpus-across-cores": "true"}, keep=1)).error == ""
        assert oracle.verdict(machine(places, keep=1)).error == ""
        assert oracle.verdict(allocate("pod", "first", 2000, "init")).cpus == "1,5"
        assert oracle.verdict(allocate("pod", "app", 2000)).cpus == "1,5"
        assert oracle.verdict(allocate("other", "app", 2000, affinity=[1])).cpus == "2,6"


@pytest.mark.parametrize("release", EACH)
def test_bench_measures_calls_that_reach_the_plugin(release: str) -> None:
    """Given our session, when the bench creates containers, then each was asked about and none failed."""

    async def story(folder: Path) -> None:
        async with asyncio.timeout(scaled(60)), nriside(require(f"nriside-{release}"), folder / "s") as side:
            await side.command("populate", pods=300, per_pod=2, filler=2000)
            assert text(await side.command("listen"), "error") == ""
            async with nodeward_plugin(side.socket) as ports:
                synchronized = await side.event("synchronized")
                await side.has("10-nodeward")
                answer = await side.command("bench", calls=500, filler=2000)
                assert text(answer, "error") == ""
                assert (member(answer, "bench", "calls"), member(answer, "bench", "failed")) == (500, 0)
                assert len(ports.of(Creating)) == 500
                p50, p99 = member(answer, "bench", "p50_ns"), member(answer, "bench", "p99_ns")
                print(f"nri {release}: create p50 {p50} ns, p99 {p99} ns; synchronize {synchronized['ns']} ns")

    with tempfile.TemporaryDirectory(prefix="nri") as folder:
        asyncio.run(story(Path(folder)))


@pytest.mark.parametrize("release", EACH)
def test_bench_plays_whole_lives(release: str) -> None:
    """Given populated pods, when the bench creates containers with lives, then each is told of to its end, in them."""

    async def story(folder: Path) -> None:
        async with asyncio.timeout(scaled(60)), nriside(require(f"nriside-{release}"), folder / "s") as side:
            await side.command("populate", pods=3, per_pod=1)
            await side.command("listen")
            async with nodeward_plugin(side.socket) as ports:
                await side.has("10-nodeward")
                answer = await side.command("bench", calls=20, lives=True)
                assert text(answer, "error") == ""
                lives = [type(event) for event in ports.events if not isinstance(event, RuntimeConnected | Listed)]
                assert lives == [Creating, Created, Started, Stopped, Removed] * 20
                assert {question.sandbox.name for question in ports.of(Creating)} == {"pod-0", "pod-1", "pod-2"}
                assert len({question.container.id for question in ports.of(Creating)}) == 20

    with tempfile.TemporaryDirectory(prefix="nri") as folder:
        asyncio.run(story(Path(folder)))
