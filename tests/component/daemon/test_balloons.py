"""Containers in balloons, by NRI: what the kernel double lets each run on, through a restart and other settings."""

import asyncio
import errno
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.app.host import cpu_watch
from nodeward.app.node import assemble
from nodeward.doubles.cpus import Plan
from nodeward.doubles.runtime import SimContainer, SimCpu, SimPod
from nodeward.doubles.runtime_plugins import RuntimeRefusalError
from nodeward.model.cpuset import parse
from nodeward.model.policy_rule import Amount, AmountKind, CpusSettings, OnLate, PolicySettings
from nodeward.model.pool_rule import BalloonsSettings, BalloonType, Expression, Within
from nodeward.model.settings import Settings
from tests.component.daemon.rig import ROOT, WITHIN_S, Rig, Trouble, play, rig, until

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


async def runs(node: Rig, uid: str, namespace: str, milli: int, **labels: str) -> str:
    """Starts a pod with one container; the container's cgroup."""
    pod = SimPod(uid, uid, namespace, labels=labels, cgroup_parent=f"/kubepods/burstable/pod{uid}")
    sandbox = await node.runtime.run_pod(pod)
    made = await node.runtime.create_container(sandbox, SimContainer("app", cpu=SimCpu(milli * 1024 // 1000)))
    await node.runtime.start(made)
    node.made[uid] = (sandbox, made)
    return node.runtime.cgroup(made)


def test_containers_are_held_to_their_balloons(tmp_path: Path) -> None:
    async def tale(node: Rig) -> None:
        def cpus(cgroup: str) -> str:
            return node.kernel.read(f"{ROOT}{cgroup}/cpuset.cpus", 999).decode().strip()

        batch = await runs(node, "a", "batch", 1000)
        assert cpus(batch) == "1-7"
        web, other = await runs(node, "b", "web", 2000), await runs(node, "c", "web", 1500)
        assert (cpus(web), cpus(other)) == ("1,5", "2,6")
        await until(lambda: cpus(batch) == "3-4,7", "the idle CPUs are taken back")

        await node.stop()
        await node.start()
        assert [cpus(one) for one in (batch, web, other)] == ["3-4,7", "1,5", "2,6"]

        await node.runtime.stop_pod(node.made["b"][0])
        await until(lambda: cpus(batch) == "1,3-5,7", "they are lent again")

        node.settings = by_balloons(node.settings, (replace(TYPES[0], min_cpus=3), TYPES[1]))
        node.source.asked.set()
        await until(lambda: cpus(other) == "1-2,6", "the balloon has grown where it is")

    play(rig(tmp_path, change=by_balloons, machine=Plan(sockets=1, nodes=1)), tale)


def test_a_label_that_newer_settings_name_is_asked_of_pods_that_run(tmp_path: Path) -> None:
    """When settings name a label, the plugin registers anew, and who has it goes to its type; a new pod at once."""
    has = (Expression("pod/labels/tier", "Equals", ("db",)),)
    labelled = BalloonType("l", ("none",), match_expressions=has, min_cpus=3)

    async def tale(node: Rig) -> None:
        def cpus(cgroup: str) -> str:
            return node.kernel.read(f"{ROOT}{cgroup}/cpuset.cpus", 999).decode().strip()

        db = await runs(node, "a", "web", 1000, tier="db", other="x")
        web = await runs(node, "b", "web", 1000)
        before = cpus(db), cpus(web)
        node.settings = by_balloons(node.settings, (labelled, *TYPES))
        node.source.asked.set()
        await until(lambda: parse(cpus(db)).bit_count() == 3, "its label is known")
        assert cpus(web) == before[1]
        assert parse(cpus(db)) & parse(before[0]), "it grew where it was"
        assert cpus(await runs(node, "c", "web", 1000, tier="db")) == cpus(db)

    play(rig(tmp_path, change=by_balloons, machine=Plan(sockets=1, nodes=1)), tale)


def shared(settings: Settings) -> Settings:
    return by_balloons(settings, (BalloonType("near", ("web",), share_idle_cpus_in_same=Within.NUMA),))


def test_containers_that_share_idle_cpus_have_the_same_after_a_restart_whoever_widened_a_set(tmp_path: Path) -> None:
    async def tale(node: Rig) -> None:
        def cpus() -> list[str]:
            return [node.kernel.read(f"{ROOT}{one}/cpuset.cpus", 999).decode().strip() for one in ones]

        ones = [await runs(node, uid, "web", milli) for uid, milli in (("a", 1500), ("b", 2000), ("c", 100))]
        assert cpus() == ["1-7"] * 3
        await node.stop()
        node.kernel.write(f"{ROOT}{ones[1]}/cpuset.cpus", b"0-7")
        await node.start()
        await until(lambda: cpus() == ["1-7"] * 3, "the set that somebody widened is put right")

    play(rig(tmp_path, change=shared, machine=Plan(sockets=1, nodes=1)), tale)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: data[:40] + b"\0" + data[40:], id="torn"),
        pytest.param(lambda data: data.replace(b'"version":1', b'"version":7'), id="of another version"),
        pytest.param(lambda data: data.replace(b'"own":', b'"own":9'), id="of CPUs that the machine lacks"),
        pytest.param(lambda _: b"", id="empty"),
    ],
)
def test_where_the_record_is_void_the_runtimes_own_counts(
    tmp_path: Path, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """And not the kernel's set, which somebody has widened."""

    def static(settings: Settings) -> Settings:
        return replace(settings, policy=PolicySettings("static", reserved=CPU0))

    async def tale(node: Rig) -> None:
        def cpus(cgroup: str) -> str:
            return node.kernel.read(f"{ROOT}{cgroup}/cpuset.cpus", 999).decode().strip()

        first = await exclusive(node, "a", 2)
        alone = await exclusive(node, "b", 2)
        held = cpus(alone)
        await node.runtime.stop_pod(node.made["a"][0])
        await node.stop()
        path = f"{node.settings.run_dir}/cpus.journal"
        node.files.replace(path, damage(node.files.read(path, 1 << 20)))
        node.kernel.write(f"{ROOT}{alone}/cpuset.cpus", b"0-7")
        await node.start()
        await until(lambda: cpus(alone) == held, "it is on its own CPUs again")
        assert first != alone
        assert ("cpus-record-void" in caplog.text) is bool(damage(b"x"))

    play(rig(tmp_path, change=static, machine=Plan(sockets=1, nodes=1)), tale)


@pytest.mark.parametrize("by", ["settings", "topology"])
def test_a_policy_that_begins_at_run_time_lets_no_exclusive_program_begin_beside_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Given a shared container whose set cannot be written, when the policy `static` comes into force: by other
    settings, or since the machine's CPUs are read after the runtime has connected."""
    monkeypatch.setattr(assemble, "START_S", 0.1)
    static = PolicySettings("static", reserved=CPU0)
    late = Trouble(("read",), "/sys/devices/system/cpu")

    def changed(settings: Settings) -> Settings:
        rules = static if by == "topology" else settings.policy
        return replace(settings, policy=rules, cpus=CpusSettings(on_late=OnLate.REFUSE, late_ms=200))

    async def tale(node: Rig) -> None:
        shared = await runs(node, "a", "web", 100)
        stuck = node.files.trouble(Trouble(("write",), f"{shared}/cpuset.cpus", errno.EIO))
        node.settings = replace(node.settings, policy=static)
        late.end()
        node.source.asked.set()
        await until(lambda: stuck.met > 0, "the policy is in force")
        with pytest.raises(RuntimeRefusalError, match=r"cpus\.on_late is refuse"):
            await exclusive(node, "b", 2)
        stuck.end()
        node.files.troubles.clear()
        await until(lambda: node.kernel.read(f"{ROOT}{shared}/cpuset.cpus", 999).strip() != b"", "the set is written")
        await exclusive(node, "c", 2)

    troubles = (late,) if by == "topology" else ()
    play(rig(tmp_path, change=changed, machine=Plan(sockets=1, nodes=1), troubles=troubles), tale)


def refusing(settings: Settings) -> Settings:
    """Exclusive CPUs, and no start beside anybody who may use them."""
    rules = PolicySettings("static", reserved=CPU0)
    return replace(settings, policy=rules, cpus=CpusSettings(on_late=OnLate.REFUSE, late_ms=200))


def test_a_cpuset_controller_that_is_taken_away_comes_back_and_meanwhile_holds_exclusive_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As systemd does to slices for which nobody asked AllowedCPUs: the container may run on any CPU then."""
    monkeypatch.setattr(cpu_watch, "DRIFT_S", 0.1)

    async def tale(node: Rig) -> None:
        alone = await exclusive(node, "a", 2)
        control = f"{ROOT}{alone.rpartition('/')[0]}/cgroup.subtree_control"
        held = node.kernel.read(f"{ROOT}{alone}/cpuset.cpus", 999)
        stuck = node.files.trouble(Trouble(("write",), control, errno.EIO))
        node.kernel.write(control, b"-cpuset")
        await until(lambda: stuck.met > 0, "the loss is found")
        with pytest.raises(RuntimeRefusalError, match=r"cpus\.on_late is refuse"):
            await exclusive(node, "b", 2)
        told = str(await node.ask("/v1/explain?what=web/a"))
        assert "any CPU, as far as is known" in told
        assert "it is being put right" in told
        stuck.end()
        node.files.troubles.clear()
        await until(lambda: _read(node, f"{ROOT}{alone}/cpuset.cpus") == held, "controller and set are back")
        await exclusive(node, "c", 2)
        view = (await node.ask())["cpus"]
        assert isinstance(view, dict)
        assert view["drifts"] == 1

    play(rig(tmp_path, change=refusing, machine=Plan(sockets=1, nodes=1)), tale)


def test_while_a_cgroup_cannot_be_read_no_exclusive_program_begins_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call that reads its set hangs in the kernel: what it says is not known, and that is not what it said last."""
    monkeypatch.setattr(cpu_watch, "DRIFT_S", 0.1)
    monkeypatch.setattr(assemble, "CGROUP_DEADLINE_S", 0.2)

    async def tale(node: Rig) -> None:
        alone = await exclusive(node, "a", 2)
        stuck = node.files.trouble(Trouble(("read",), f"{alone}/cpuset.cpus"))
        async with asyncio.timeout(WITHIN_S):
            while "any CPU, as far as is known" not in str(await node.ask("/v1/explain?what=web/a")):
                await asyncio.sleep(0.02)
        with pytest.raises(RuntimeRefusalError, match=r"cpus\.on_late is refuse"):
            await exclusive(node, "b", 2)
        stuck.end()
        node.files.troubles.clear()
        async with asyncio.timeout(WITHIN_S):
            while "any CPU, as far as is known" in str(await node.ask("/v1/explain?what=web/a")):
                await asyncio.sleep(0.02)
        await exclusive(node, "c", 2)

    play(rig(tmp_path, change=refusing, machine=Plan(sockets=1, nodes=1)), tale)


def _read(node: Rig, path: str) -> bytes:
    """Nothing where the file is not there."""
    try:
        return node.kernel.read(path, 999)
    except FileNotFoundError:
        return b""


async def exclusive(node: Rig, uid: str, cpus: int) -> str:
    """Starts a Guaranteed pod whose container requests so many CPUs; the container's cgroup."""
    sandbox = await node.runtime.run_pod(SimPod(uid, uid, "web", cgroup_parent=f"/kubepods/pod{uid}"))
    made = await node.runtime.create_container(
        sandbox, SimContainer("app", cpu=SimCpu(cpus * 1024, cpus * 100_000, 100_000))
    )
    await node.runtime.start(made)
    node.made[uid] = (sandbox, made)
    return node.runtime.cgroup(made)


def test_a_name_that_a_runtime_gives_draws_nothing_on_a_terminal(tmp_path: Path) -> None:
    """A client of the runtime that is not kubelet may name a pod in any way."""

    async def tale(node: Rig) -> None:
        pod = SimPod("x", "web\x1b[31m\nAll is well", "a\tb", cgroup_parent="/kubepods/burstable/podx")
        await node.runtime.create_container(await node.runtime.run_pod(pod), SimContainer("app\r"))
        told = json.dumps(await node.ask(), ensure_ascii=False)
        assert "web\\\\u001b[31m\\\\u000aAll is well" in told
        assert told.isprintable()

    play(rig(tmp_path, change=by_balloons, machine=Plan(sockets=1, nodes=1)), tale)
