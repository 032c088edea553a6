"""Calls that do not come back or fail, full disks, clocks that jump, lost containers: the daemon starts, goes on
with all others, and ends."""

import asyncio
import contextlib
import errno
import json
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.core.modes import Mode
from nodeward.features.settings import CgroupsSection, HookSection, RecordSection
from nodeward.host import undo
from nodeward.host.state_file import OneWriter
from nodeward.programs.node import assemble
from nodeward.settings import last_good, reload
from nodeward_sim.doubles.runtime import SimPod, SimRuntime
from tests.component.daemon.rig import EPC, ROOT, STATE, WITHIN_S, Trouble, TroubledFiles, changed, rig
from tests.component.daemon.test_keys import VM, counting, until_keys
from tests.component.daemon.test_service import service
from tests.component.kubernetes.support import until


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(assemble, "CGROUP_DEADLINE_S", 0.3)


def lane_threads() -> int:
    return sum(thread.name == "nodeward-cgroup" for thread in threading.enumerate())


async def test_a_write_that_hangs_sets_one_cgroup_apart_until_it_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with rig(tmp_path) as node:
        hang = node.files.trouble(Trouble(("write",), "/podbad/misc.max"))
        bad = await node.pod("bad")
        await node.until_health("goals_quarantined", 1)
        assert f"goal=quarantined target=misc.max:sgx_epc:{bad}" in caplog.text
        assert "lane=cgroup stuck job=goals" in caplog.text

        good = await node.pod("good")  # the runtime is answered, and the lane serves others
        await node.until_state(good, "enforced")
        assert (await node.health())["lane_cgroup_hung"] == 1
        assert "hangs" in str((await node.row(bad))["last_error"])
        assert hang.met == 1  # nobody runs into it a second time

        hang.end()
        await node.until_state(bad, "enforced")
        await node.until_health("lane_cgroup_hung", 0)
        assert f"goal=released target=misc.max:sgx_epc:{bad}" in caplog.text
        assert lane_threads() == 1


async def test_a_sample_that_hangs_makes_one_cgroup_stale_and_the_others_stay_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with rig(tmp_path) as node:
        good, bad = await node.pod("good"), await node.pod("bad")
        await node.until_state(bad, "enforced")
        hang = node.files.trouble(Trouble(("pread",), "/podbad/misc.current"))

        await node.until_state(bad, "stale")
        await node.until_state(good, "enforced")
        assert f"cgroup=quarantined path={bad}" in caplog.text
        assert hang.met == 1

        hang.end()
        await node.until_state(bad, "enforced")
        await node.until_health("lane_cgroup_hung", 0)


async def test_a_lane_whose_replacement_hangs_too_makes_no_more_threads_and_recovers(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        held = [node.files.trouble(Trouble(("write",), f"/pod{name}/misc.max")) for name in ("a", "b")]
        a = await node.pod("a")
        await node.until_health("lane_cgroup_hung", 1)
        b = await node.pod("b")
        await node.until_health("lane_cgroup_hung", 2)

        c = await node.pod("c")  # nothing can be written, and still the runtime is answered and status shown
        assert (await node.health())["lane_cgroup_waiting"] == 0
        assert lane_threads() == 2
        assert node.limit(c) == "sgx_epc max"

        held[1].end()  # the second one comes back and serves
        await node.until_state(c, "enforced")
        await node.until_state(b, "enforced")
        assert node.limit(a) == "sgx_epc max"
        held[0].end()
        await node.until_state(a, "enforced")
        assert lane_threads() == 1


async def test_keys_are_counted_though_the_lane_of_the_limits_can_do_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path, change=counting) as node:
        held = [node.files.trouble(Trouble(("write",), f"/pod{name}/misc.max")) for name in ("a", "b")]
        await node.pod("a")
        await node.until_health("lane_cgroup_hung", 1)
        await node.pod("b")
        await node.until_health("lane_cgroup_hung", 2)
        node.kernel.make_cgroup(f"{ROOT}{VM}")
        node.kernel.write(f"{ROOT}/machine.slice/cgroup.subtree_control", b"+misc")
        node.kernel.charge(f"{ROOT}{VM}", EPC, 7)
        await until_keys(node, "outside 7")
        health = await node.health()
        assert (health["lane_cgroup_hung"], health["lane_keys_hung"]) == (2, 0)
        for one in held:
            one.end()


async def test_a_disk_that_hangs_at_the_undo_list_holds_up_no_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assemble, "UNDO_S", 0.1)

    async with rig(tmp_path, runtime_hands_down=False) as node:
        hang = node.files.trouble(Trouble(("append",), "undo.jsonl"))
        found = await node.pod("a")
        await node.until_state(found, "enforced")
        await node.until_health("goals_unreached", 0)
        health = await node.health()
        assert (health["lane_cgroup_hung"], health["goals_quarantined"]) == (0, 0)
        assert health["not_restorable"] == 3, "the root, the folder of all pods, and limits below it"
        assert hang.met == 1

        hang.end()
        await node.until_health("not_restorable", 0)
        listed = [change.target for change in undo.read(node.kernel, STATE)]
        assert sorted(listed) == ["limits:/kubepods", "subtree:/", "subtree:/kubepods"]


@pytest.mark.parametrize("file", ["settings.json", "hook.json"])
async def test_a_write_that_comes_back_late_replaces_no_newer_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.setattr(assemble, "DISK_DEADLINE_S", 0.3)
    monkeypatch.setattr(reload, "EVERY_S", 0.1)
    go, refused, writes = threading.Event(), list[str](), OneWriter.writes

    def hangs() -> None:
        assert go.wait(4 * WITHIN_S)

    @contextmanager
    def noted(self: OneWriter, path: str) -> Iterator[None]:
        with ExitStack() as stack:
            try:
                stack.enter_context(writes(self, path))
            except OSError:
                refused.append(path)
                raise
            yield

    monkeypatch.setattr(OneWriter, "writes", noted)
    hang = Trouble(("replace",), file, first=hangs)

    async with rig(tmp_path, change=changed(hook=HookSection(True, STATE)), troubles=(hang,)) as node:
        await until(lambda: hang.met == 1, "the first write hangs")
        node.change_limits(replace(node.settings.limits, mode=Mode.OBSERVE))
        await node.until_health("lane_disk_hung", 1)
        await until(lambda: bool(refused), "the newer settings are to be written")
        go.set()

        def newest() -> bool:
            found = json.loads(node.files.read(f"{STATE}/{file}", 1 << 20))
            return "observe" in json.dumps(found)

        await node.until_health("lane_disk_hung", 0)
        await until(newest, "the newer settings are there")


recorded = changed(record=RecordSection(path=f"{STATE}/node.record"))


@pytest.mark.parametrize(
    "hanging",
    [
        pytest.param(Trouble(("stat",), "/var"), id="the way to the folder"),
        pytest.param(Trouble(("read",), "pods.json"), id="the pods as last known"),
        pytest.param(Trouble(("stat", "read", "append", "replace"), STATE), id="all of it, for good"),
    ],
)
async def test_a_disk_that_hangs_at_the_start_holds_up_neither_start_nor_end(
    hanging: Trouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(assemble, "START_S", 0.2)
    monkeypatch.setattr(assemble, "UNDO_S", 0.1)
    hang = Trouble(hanging.calls, hanging.path)

    async with rig(tmp_path, runtime_hands_down=False, change=recorded, troubles=(hang,)) as node:
        await node.until_health("state_unread", 1)
        await node.until_ready()
        assert f"state=unread folder={STATE}" in caplog.text
        assert hang.met >= 1
        await node.pod("a")  # the runtime is answered
        assert node.daemon is not None
        node.daemon.cancel()
        await asyncio.gather(node.daemon, return_exceptions=True)
        assert not hang.over.is_set(), "it hangs still"


@pytest.mark.parametrize(
    "hanging",
    [
        pytest.param(("read",), id="what the node has"),
        pytest.param(("stat", "read", "open", "listdir"), id="everything"),
    ],
)
async def test_a_cgroup_tree_that_hangs_at_the_start_is_said_and_is_used_once_it_answers(
    hanging: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(assemble, "START_S", 0.2)
    hang = Trouble(hanging, "/sys/fs/cgroup")

    async with rig(tmp_path, runtime_hands_down=False, troubles=(hang,)) as node:
        assert "cgroups=unread root=/sys/fs/cgroup" in caplog.text
        assert "no misc controller" not in caplog.text
        if "read" in hanging:  # else the sampler has read meanwhile what the node has
            status = await node.ask()
            assert "/sys/fs/cgroup was not read within 0.2 s: a call hangs in the kernel" in str(status["tree"])
            assert status["ready"] is False
        pod = await node.pod("a")  # the runtime is answered
        assert not hang.over.is_set(), "it hangs still"

        hang.end()
        await node.until_state(pod, "enforced")
        await node.until_ready()


async def test_no_file_of_the_host_is_touched_on_the_loops_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here: list[tuple[str, str]] = []
    loops = threading.get_ident()

    def met(files: TroubledFiles, call: str, path: str) -> None:
        if threading.get_ident() == loops:
            here.append((call, path))

    monkeypatch.setattr(TroubledFiles, "_meet", met)

    async with rig(tmp_path, runtime_hands_down=False, change=recorded) as node:
        await node.until_state(await node.pod("a"), "enforced")
        await node.runtime.remove_pod(node.made["a"][0])
        await node.stop()
        await node.start()
        await node.until_state(await node.pod("b"), "enforced")
    assert here == []


async def test_a_fifo_in_the_state_folder_blocks_nothing(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    for name in ("undo.jsonl", "pods.json"):
        os.mkfifo(tmp_path / "state" / name)
    runtime = SimRuntime(tmp_path / "nri.sock")
    await runtime.serve()
    async with service(tmp_path) as daemon:
        await daemon.manager.until("READY=1")
        health = (await daemon.status())["health"]
        assert isinstance(health, dict)
        assert (health["state_unread"], health["lane_disk_hung"]) == (1, 0)
        said = (tmp_path / "log").read_text()
        assert "undo=unreadable" in said
        assert "last-known=ignored" in said
        await daemon.end()
        asked = await daemon.nodeward("uninstall", "--config", str(daemon.config))
        assert (asked.returncode, "cannot be read" in asked.stderr) == (1, True)
    await runtime.close()


@pytest.mark.parametrize(
    "asks",
    [
        pytest.param("kube: {url: 'https://nobody:1'}", id="for the API server"),
        pytest.param("kube: {enabled: false}\nmetrics: {enabled: true, listen: 'nobody:1'}", id="for its own address"),
    ],
)
async def test_a_resolver_that_hangs_does_not_hold_up_the_end(
    asks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a table of aliases that glibc reads for each name, and that never ends."""
    aliases = tmp_path / "aliases"
    os.mkfifo(aliases)
    monkeypatch.setenv("HOSTALIASES", str(aliases))
    (tmp_path / "nodeward.yaml").write_text(
        f"state_dir: {tmp_path}/state\nrun_dir: {tmp_path}/run\nnri: {{socket: {tmp_path}/nri.sock}}\n"
        f"cgroups: {{root: {tmp_path}/cgroup}}\n{asks}\n"
    )

    async with service(tmp_path) as daemon:
        held = await asyncio.to_thread(os.open, aliases, os.O_WRONLY)  # waits until the resolver is there
        try:
            await daemon.end()
        finally:
            os.close(held)


async def test_a_cgroup_tree_that_cannot_be_written_is_said_and_pods_start_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sealed, number = Trouble(("write",), ROOT, errno.EROFS), errno.EROFS
    async with rig(tmp_path, runtime_hands_down=False, troubles=(sealed,)) as node:
        path = await node.pod("a")
        await node.until_state(path, "controller-off")
        await node.until_error(path, os.strerror(number))
        assert (await node.ask())["ready"] is True
        explained = str(await node.ask("/v1/explain?what=default/pod-a"))
        assert f"The last write failed: {os.strerror(number)}" in explained
        assert f"goal=missed target=subtree:{path} error=" in caplog.text

        sealed.end()  # remounted by somebody: mended without a restart
        await node.until_state(path, "enforced")
        assert (await node.row(path))["last_error"] == ""


async def test_a_state_folder_that_cannot_be_written_stops_no_limit_and_is_made_up_for_though_nothing_happens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (undo, reload):
        monkeypatch.setattr(module, "EVERY_S", 0.1)
    full = Trouble(("append", "replace"), STATE, errno.ENOSPC)
    async with rig(tmp_path, runtime_hands_down=False, troubles=(full,)) as node:
        await node.until_state(await node.pod("a"), "enforced")
        await node.until_health("not_restorable", 3)
        assert "undo=not-restorable target=subtree:/ " in caplog.text
        assert "last-good=not-kept" in caplog.text
        node.change_limits(replace(node.settings.limits, mode=Mode.OBSERVE))
        await node.until(lambda view: view.get("mode") == "observe")

        full.end()
        await node.until_health("not_restorable", 0)
        listed = [change.target for change in undo.read(node.kernel, STATE)]
        assert listed == ["subtree:/", "subtree:/kubepods", "limits:/kubepods"]
        await until(lambda: last_good.read(node.files, STATE, {}) == node.settings, "the settings are kept")


async def test_a_cgroup_that_vanishes_between_read_and_write_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = "/kubepods/podbad"

    async with rig(tmp_path) as node:

        def vanishes() -> None:
            for name in node.files.listdir(ROOT + path):
                if node.files.stat(f"{ROOT}{path}/{name}").is_dir:
                    node.files.rmdir(f"{ROOT}{path}/{name}")
            node.files.rmdir(ROOT + path)

        moment = node.files.trouble(Trouble(("write",), "/podbad/misc.max", first=vanishes))
        sandbox = await node.runtime.run_pod(SimPod("bad", "pod-bad"))
        await until(lambda: moment.met == 1, "its cgroup goes as its limit is written")
        await node.until_state(await node.pod("good"), "enforced")
        assert (await node.health())["component_restarts"] == 0
        assert "goal=missed" not in caplog.text
        await node.runtime.remove_pod(sandbox)
        while await node.row(path):
            await asyncio.sleep(0.02)
        await node.until_health("goals_unreached", 0)


async def test_a_refusal_is_shown_before_the_next_pass(tmp_path: Path) -> None:
    async with rig(
        tmp_path, change=lambda settings: replace(settings, cgroups=CgroupsSection(period_s=3600.0))
    ) as node:
        pod = await node.pod("a")
        container = f"{pod}/{node.made['a'][1]}"
        while not await node.row(container):
            await asyncio.sleep(0.02)

        async def shown(place: str) -> object:
            resources = (await node.row(place)).get("resources")
            return resources[0]["refusals"] if isinstance(resources, list) and resources else None

        while not (await shown(pod) and await shown(container)):  # a cgroup is watched soon after it is known
            with contextlib.suppress(OSError):
                node.kernel.charge(ROOT + container, EPC, 4097)
            await asyncio.sleep(0.05)
