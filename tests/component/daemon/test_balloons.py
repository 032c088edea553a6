"""Containers on CPUs by NRI, through restarts and other settings; a plan; and a policy that an agent pushes."""

import asyncio
import errno
import json
import subprocess
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from nodeward.core.cpuset import parse
from nodeward.features.cpus.effects import watch
from nodeward.features.cpus.pool_settings import BalloonsSettings, BalloonType, Expression, Within
from nodeward.features.cpus.settings import Amount, AmountKind, CpusSettings, OnLate, PolicySettings
from nodeward.features.settings import RecordSection, Settings
from nodeward.programs.node import assemble
from nodeward_sim.doubles.cpus import Plan
from nodeward_sim.doubles.processes import Processes
from nodeward_sim.doubles.runtime import SimContainer, SimCpu, SimPod
from nodeward_sim.doubles.runtime_plugins import RuntimeRefusalError
from tests.component.daemon.rig import ROOT, STATE, WITHIN_S, Rig, Trouble, changed, rig
from tests.component.kubernetes.support import until
from tests.patience import scaled
from tests.peers.daemon import NODEWARD

CPU0 = Amount(AmountKind.CPUSET, 1)
TYPES = (
    BalloonType("web", ("web",), max_cpus=4, prefer_new_balloons=True),
    BalloonType("batch", ("batch",), share_idle_cpus_in_same=Within.SYSTEM),
)


def by_balloons(settings: Settings, types: tuple[BalloonType, ...] = TYPES) -> Settings:
    rules = PolicySettings(
        "balloons", reserved=Amount(AmountKind.CPUSET, 1), balloons=BalloonsSettings(True, (), False, False, (), types)
    )
    return replace(settings, policy=rules)


def on(
    folder: Path, change: Callable[[Settings], Settings], troubles: tuple[Trouble, ...] = ()
) -> AbstractAsyncContextManager[Rig]:
    return rig(folder, change=change, machine=Plan(sockets=1, nodes=1), troubles=troubles)


async def begun(node: Rig, pod: SimPod, cpu: SimCpu) -> str:
    sandbox = await node.runtime.run_pod(pod)
    made = await node.runtime.create_container(sandbox, SimContainer("app", cpu=cpu))
    await node.runtime.start(made)
    node.made[pod.uid] = (sandbox, made)
    return node.runtime.cgroup(made)


async def runs(node: Rig, uid: str, namespace: str, milli: int, **labels: str) -> str:
    pod = SimPod(uid, uid, namespace, labels=labels, cgroup_parent=f"/kubepods/burstable/pod{uid}")
    return await begun(node, pod, SimCpu(milli * 1024 // 1000))


async def exclusive(node: Rig, uid: str, cpus: int) -> str:
    pod = SimPod(uid, uid, "web", cgroup_parent=f"/kubepods/pod{uid}")
    return await begun(node, pod, SimCpu(cpus * 1024, cpus * 100_000, 100_000))


async def none_starts_before_the_end_of(stuck: Trouble, node: Rig) -> None:
    """A pod with CPUs of its own may not start while it lasts. After that it is tried until it is let, as kubelet does;
    on a busy machine it may be late once."""
    with pytest.raises(RuntimeRefusalError, match=r"cpus\.on_late is refuse"):
        await exclusive(node, "b", 2)
    stuck.end()
    node.files.troubles.clear()
    async with asyncio.timeout(WITHIN_S):
        for number in count():
            with suppress(RuntimeRefusalError):
                await exclusive(node, f"c{number}", 2)
                return


def cpus(node: Rig, cgroup: str) -> str:
    with suppress(FileNotFoundError):
        return node.kernel.read(f"{ROOT}{cgroup}/cpuset.cpus", 999).decode().strip()
    return ""


async def test_a_label_that_newer_settings_name_is_asked_of_pods_that_run(tmp_path: Path) -> None:
    has = (Expression("pod/labels/tier", "Equals", ("db",)),)
    labelled = BalloonType("l", ("none",), match_expressions=has, min_cpus=3)

    async with on(tmp_path, by_balloons) as node:
        db = await runs(node, "a", "web", 1000, tier="db", other="x")
        web = await runs(node, "b", "web", 1000)
        before = cpus(node, db), cpus(node, web)
        node.settings = by_balloons(node.settings, (labelled, *TYPES))
        node.source.asked.set()
        await until(lambda: parse(cpus(node, db)).bit_count() == 3, "its label is known")
        assert cpus(node, web) == before[1]
        assert parse(cpus(node, db)) & parse(before[0]), "it grew where it was"
        assert cpus(node, await runs(node, "c", "web", 1000, tier="db")) == cpus(node, db)


@pytest.mark.parametrize("by", ["settings", "topology"])
async def test_a_policy_that_begins_at_run_time_lets_no_exclusive_program_begin_beside_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setattr(assemble, "START_S", 0.1)
    static = PolicySettings("static", reserved=CPU0)
    late = Trouble(("read",), "/sys/devices/system/cpu")

    began = changed(cpus=WAITING, **({"policy": static} if by == "topology" else {}))
    troubles = (late,) if by == "topology" else ()
    async with on(tmp_path, began, troubles=troubles) as node:
        shared = await runs(node, "a", "web", 100)
        stuck = node.files.trouble(Trouble(("write",), f"{shared}/cpuset.cpus", errno.EIO))
        node.settings = replace(node.settings, policy=static)
        late.end()
        node.source.asked.set()
        await until(lambda: stuck.met > 0, "the policy is in force")
        await none_starts_before_the_end_of(stuck, node)
        assert cpus(node, shared) != "", "the set is written"


WAITING = CpusSettings(on_late=OnLate.REFUSE, late_ms=200)
refusing = changed(policy=PolicySettings("static", reserved=CPU0), cpus=WAITING)
"""Exclusive CPUs, and no start beside anybody who may use them."""


async def test_a_cpuset_controller_that_is_taken_away_comes_back_and_meanwhile_holds_exclusive_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As systemd does to slices for which nobody asked AllowedCPUs: the container may run on any CPU then."""
    monkeypatch.setattr(watch, "DRIFT_S", 0.1)

    async with on(tmp_path, refusing) as node:
        alone = await exclusive(node, "a", 2)
        control = f"{ROOT}{alone.rpartition('/')[0]}/cgroup.subtree_control"
        held = cpus(node, alone)
        stuck = node.files.trouble(Trouble(("write",), control, errno.EIO))
        node.kernel.write(control, b"-cpuset")
        await until(lambda: stuck.met > 0, "the loss is found")
        told = str(await node.ask("/v1/explain?what=web/a"))
        assert "any CPU, as far as is known" in told
        assert "it is being put right" in told
        await none_starts_before_the_end_of(stuck, node)
        await until(lambda: cpus(node, alone) == held, "controller and set are back")
        view = (await node.ask())["cpus"]
        assert view["drifts"] == 1


async def test_a_name_that_a_runtime_gives_draws_nothing_on_a_terminal(tmp_path: Path) -> None:
    """A client of the runtime that is not kubelet may name a pod in any way."""
    async with on(tmp_path, by_balloons) as node:
        pod = SimPod("x", "web\x1b[31m\nAll is well", "a\tb", cgroup_parent="/kubepods/burstable/podx")
        await node.runtime.create_container(await node.runtime.run_pod(pod), SimContainer("app\r"))
        told = json.dumps(await node.ask(), ensure_ascii=False)
        assert "web\\\\u001b[31m\\\\u000aAll is well" in told
        assert told.isprintable()


async def test_where_the_record_is_void_the_runtimes_own_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And not the kernel's set, which somebody has widened."""
    async with on(tmp_path, changed(policy=PolicySettings("static", reserved=CPU0))) as node:
        first = await exclusive(node, "a", 2)
        alone = await exclusive(node, "b", 2)
        held = cpus(node, alone)
        await node.runtime.stop_pod(node.made["a"][0])
        assert first != alone
        for what, damaged in (("torn", b"\0"), ("empty", b"")):
            await node.stop()
            node.files.replace(f"{node.settings.run_dir}/cpus.journal", damaged)
            node.kernel.write(f"{ROOT}{alone}/cpuset.cpus", b"0-7")
            caplog.clear()
            await node.start()
            await until(lambda: cpus(node, alone) == held, f"it is on its own CPUs again, after one {what}")
            assert ("cpus-record-void" in caplog.text) is (what != "empty"), what


async def test_while_a_cgroup_cannot_be_read_no_exclusive_program_begins_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call that reads its set hangs in the kernel: what it says is not known, and that is not what it said last."""
    monkeypatch.setattr(watch, "DRIFT_S", 0.1)
    monkeypatch.setattr(assemble, "CGROUP_DEADLINE_S", 0.2)

    async with on(tmp_path, refusing) as node:
        alone = await exclusive(node, "a", 2)
        stuck = node.files.trouble(Trouble(("read",), f"{alone}/cpuset.cpus"))
        of_a = "/v1/explain?what=web/a"
        await node.until(lambda told: "any CPU, as far as is known" in str(told), of_a)
        await none_starts_before_the_end_of(stuck, node)
        await node.until(lambda told: "any CPU, as far as is known" not in str(told), of_a)


async def test_nodeward_cpus_shows_what_is_in_use_on_a_node_beside_what_is_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "MEMORY_S", 0.1)
    by_nodes = changed(policy=PolicySettings("topology-aware", reserved=CPU0))
    line = [NODEWARD, "cpus", "--socket", str(tmp_path / "run" / "nodeward.sock")]

    async def memory() -> list[str]:
        run = subprocess.run
        done = await asyncio.to_thread(run, line, capture_output=True, text=True, timeout=scaled(60), check=True)
        return [row for row in done.stdout.splitlines() if row.startswith("memory of")]

    async def until_shown(text: str) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not any(text in row for row in await memory()):
                pass

    async with rig(tmp_path, change=by_nodes, machine=Plan(sockets=1, nodes=2, node_bytes=1 << 30)) as node:
        cgroup = await exclusive(node, "a", 2)
        (row,) = await memory()
        assert row.endswith("promised, 1 container(s); in use: not known")
        for above in ("", "/kubepods", "/kubepods/poda"):
            node.kernel.write(f"{ROOT}{above}/cgroup.subtree_control", b"+memory")
        processes = Processes(node.kernel)
        processes.take(processes.start(cgroup, ("app",)), 300 << 20)
        await until_shown("; 300Mi in use by 1 container(s)")
        node.files.trouble(Trouble(("read",), "memory.numa_stat", errno.EIO))
        await until_shown("; in use: not known")


RECORD = f"{STATE}/node.record"
OBJECT = """apiVersion: config.nri/v1alpha1
kind: BalloonsPolicy
metadata: {{name: default}}
spec:
  reservedResources: {{cpu: "cpuset:{reserved}"}}
  balloonTypes: [{{name: batch, namespaces: [batch], minCPUs: 3}}]
"""


async def test_a_plan_names_who_moves_and_changes_nothing(tmp_path: Path) -> None:
    def recorded(settings: Settings) -> Settings:
        return replace(by_balloons(settings), record=RecordSection(RECORD))

    async def nodeward(node: Rig, reserved: str, *more: str) -> tuple[int, str]:
        (tmp_path / "p.yaml").write_text(OBJECT.format(reserved=reserved))
        line = [NODEWARD, "cpus", "policies", "plan", str(tmp_path / "p.yaml"), *more]
        run = subprocess.run
        done = await asyncio.to_thread(run, line, capture_output=True, text=True, timeout=scaled(60), check=False)
        return done.returncode, done.stdout + done.stderr

    async with on(tmp_path, recorded) as node:
        batch, web = await runs(node, "a", "batch", 1000), await runs(node, "b", "web", 2000)
        held = [node.kernel.read(f"{ROOT}{one}/cpuset.cpus", 999) for one in (batch, web)]
        socket = ("--socket", str(tmp_path / "run" / "nodeward.sock"))

        code, told = await nodeward(node, "0", *socket)
        assert code == 0
        assert told.splitlines()[0] == "1 container(s) would have other CPUs, 1 the same:"
        assert told.splitlines()[1].startswith("  batch/a/app: ")

        code, told = await nodeward(node, "0,99", *socket)
        assert (code, told.startswith("this node would refuse it, and keep what is in force:")) == (1, True)
        assert [node.kernel.read(f"{ROOT}{one}/cpuset.cpus", 999) for one in (batch, web)] == held

        await node.stop()
        (tmp_path / "node.record").write_bytes(node.files.read(RECORD, 1 << 24))
        code, told = await nodeward(node, "0", "--record", str(tmp_path / "node.record"))
        assert code == 1
        assert "batch/a/app: " in told.partition("would have other CPUs")[2]
        await node.start()
