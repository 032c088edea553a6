"""A call into the kernel that does not come back: one cgroup waits, the daemon and every other cgroup go on."""

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.aio.state_file import OneWriter
from nodeward.app.host import undo
from nodeward.app.node import assemble
from nodeward.app.settings import reload
from nodeward.model.settings import HookSection, Mode, Settings
from tests.component.daemon.rig import EPC, ROOT, STATE, WITHIN_S, Rig, Trouble, play, rig, until
from tests.component.daemon.test_keys import VM, counting, until_keys


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes that lose their patience soon."""
    monkeypatch.setattr(assemble, "CGROUP_DEADLINE_S", 0.3)


def lane_threads() -> int:
    return sum(thread.name == "nodeward-cgroup" for thread in threading.enumerate())


def test_a_write_that_hangs_sets_one_cgroup_apart_until_it_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def tale(node: Rig) -> None:
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

    play(rig(tmp_path), tale)


def test_a_sample_that_hangs_makes_one_cgroup_stale_and_the_others_stay_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def tale(node: Rig) -> None:
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

    play(rig(tmp_path), tale)


def test_a_lane_whose_replacement_hangs_too_makes_no_more_threads_and_recovers(tmp_path: Path) -> None:
    async def tale(node: Rig) -> None:
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

    play(rig(tmp_path), tale)


def test_keys_are_counted_though_the_lane_of_the_limits_can_do_nothing(tmp_path: Path) -> None:
    async def tale(node: Rig) -> None:
        held = [node.files.trouble(Trouble(("write",), f"/pod{name}/misc.max")) for name in ("a", "b")]
        await node.pod("a")
        await node.until_health("lane_cgroup_hung", 1)
        await node.pod("b")
        await node.until_health("lane_cgroup_hung", 2)
        with node.files.lock:
            node.kernel.make_cgroup(f"{ROOT}{VM}")
            node.kernel.write(f"{ROOT}/machine.slice/cgroup.subtree_control", b"+misc")
            node.kernel.charge(f"{ROOT}{VM}", EPC, 7)
        await until_keys(node, "7 in foreign use")
        health = await node.health()
        assert (health["lane_cgroup_hung"], health["lane_keys_hung"]) == (2, 0)
        for one in held:
            one.end()

    play(rig(tmp_path, change=counting), tale)


def test_a_disk_that_hangs_at_the_undo_list_holds_up_no_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a disk that stands, then limits are in the kernel; what changed is not restorable until it goes on."""
    monkeypatch.setattr(assemble, "UNDO_S", 0.1)

    async def tale(node: Rig) -> None:
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
        with node.files.lock:
            listed = [change.target for change in undo.read(node.kernel, STATE)]
        assert sorted(listed) == ["limits:/kubepods", "subtree:/", "subtree:/kubepods"]

    play(rig(tmp_path, runtime_hands_down=False), tale)


@pytest.mark.parametrize("file", ["settings.json", "hook.json"])
def test_a_write_that_comes_back_late_replaces_no_newer_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """Neither the last good ones, nor those that the OCI hook goes by."""
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

    def hooked(settings: Settings) -> Settings:
        return replace(settings, hook=HookSection(True, STATE))

    async def tale(node: Rig) -> None:
        await until(lambda: hang.met == 1, "the first write hangs")
        node.change_limits(replace(node.settings.limits, mode=Mode.OBSERVE))
        async with asyncio.timeout(WITHIN_S):
            while (await node.health())["lane_disk_hung"] != 1:
                await asyncio.sleep(0.02)
        await until(lambda: bool(refused), "the newer settings are to be written")
        go.set()

        def newest() -> bool:
            found = json.loads(node.files.read(f"{STATE}/{file}", 1 << 20))
            return "observe" in json.dumps(found)

        await node.until_health("lane_disk_hung", 0)
        await until(newest, "the newer settings are there")

    play(rig(tmp_path, change=hooked, troubles=(hang,)), tale)
