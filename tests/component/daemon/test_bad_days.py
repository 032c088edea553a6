"""A cgroup tree that cannot be written, a full disk, clocks that jump: said aloud, and everything else goes on."""

import asyncio
import errno
import logging
import time
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.aio.clock import SystemClock
from nodeward.app.host import undo
from nodeward.app.settings import last_good, reload
from nodeward.app.tools.replay import replay
from nodeward.doubles.runtime import SimPod
from nodeward.model.settings import RecordSection, Settings
from tests.component.daemon.rig import ROOT, STATE, WITHIN_S, Rig, Trouble, play, rig, until

RECORD = f"{STATE}/node.record"
YEARS_NS = 10 * 365 * 86400 * 1_000_000_000
TO_1970_NS = -time.time_ns()


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_cgroup_tree_that_cannot_be_written_is_said_and_pods_start_all_the_same(
    number: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    text = {errno.EROFS: "Read-only file system", errno.EACCES: "Permission denied"}[number]

    async def tale(node: Rig) -> None:
        path = await node.pod("a")
        await node.until_state(path, "controller-off")
        await node.until_error(path, text)
        view = await node.ask()
        assert view["ready"] is True
        explained = str(await node.ask("/v1/explain?what=default/pod-a"))
        assert f"The last write failed: {text}" in explained
        assert f"goal=missed target=subtree:{path} error=" in caplog.text

        sealed.end()  # remounted by somebody: mended without a restart
        await node.until_state(path, "enforced")
        assert (await node.row(path))["last_error"] == ""

    sealed = Trouble(("write",), ROOT, number)
    play(rig(tmp_path, runtime_hands_down=False, troubles=(sealed,)), tale)


def test_one_limit_that_cannot_be_written_is_drift_with_its_error_and_others_are_enforced(tmp_path: Path) -> None:
    async def tale(node: Rig) -> None:
        sealed = node.files.trouble(Trouble(("write",), "/podbad/misc.max", errno.EROFS))
        bad, good = await node.pod("bad"), await node.pod("good")
        await node.until_state(good, "enforced")
        await node.until_state(bad, "drift")
        await node.until_error(bad, "Read-only file system")
        sealed.end()
        await node.until_state(bad, "enforced")

    play(rig(tmp_path), tale)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_state_folder_that_cannot_be_written_stops_no_limit_and_is_said(
    number: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def tale(node: Rig) -> None:
        path = await node.pod("a")
        await node.until_state(path, "enforced")
        await node.until_health("not_restorable", 3)
        assert "undo=not-restorable target=subtree:/ " in caplog.text
        assert "last-good=not-kept" in caplog.text

    full = Trouble(("append", "replace"), STATE, number)
    play(rig(tmp_path, runtime_hands_down=False, troubles=(full,)), tale)


def test_what_a_full_disk_did_not_take_is_written_once_there_is_room_though_nothing_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (undo, reload):
        monkeypatch.setattr(module, "EVERY_S", 0.1)

    async def tale(node: Rig) -> None:
        await node.until_state(await node.pod("a"), "enforced")
        await node.until_health("not_restorable", 3)
        node.files.troubles[0].end()
        await node.until_health("not_restorable", 0)
        with node.files.lock:
            listed = [change.target for change in undo.read(node.kernel, STATE)]
        assert listed == ["subtree:/", "subtree:/kubepods", "limits:/kubepods"]
        await until(lambda: last_good.read(node.files, STATE, {}) == node.settings, "the settings are kept")

    full = Trouble(("append", "replace"), STATE, errno.ENOSPC)
    play(rig(tmp_path, runtime_hands_down=False, troubles=(full,)), tale)


def written(node: Rig) -> bytes:
    try:
        return node.files.read(RECORD, 1 << 24)
    except FileNotFoundError:
        return b""


def test_a_full_disk_tears_the_record_and_a_new_segment_begins(tmp_path: Path) -> None:
    records: list[bytes] = []

    async def tale(node: Rig) -> None:
        await node.pod("a")
        await until(lambda: b"SandboxStarted" in written(node), "the record is written")
        full = node.files.trouble(Trouble(("append", "replace"), RECORD, errno.ENOSPC))
        path = await node.pod("b")
        await node.until_state(path, "enforced")
        async with asyncio.timeout(WITHIN_S):
            while not (await node.health())["record_dropped"]:
                await asyncio.sleep(0.02)
        full.end()
        await node.pod("c")
        await until(lambda: b'["segment"' in node.files.read(RECORD, 1 << 24).partition(b'["torn"')[2], "it goes on")
        records.append(node.files.read(RECORD, 1 << 24))

    def recorded(settings: Settings) -> Settings:
        return replace(settings, record=RecordSection(path=RECORD))

    play(rig(tmp_path, change=recorded), tale)
    found = replay(records[0].splitlines(keepends=True))
    assert found.segments >= 2
    assert found.torn >= 1
    assert found.difference == ""


class JumpingClock(SystemClock):
    """The machine's clocks, set anew by a test."""

    def __init__(self) -> None:
        self.wall_offset_ns = self.slept_ns = 0

    def now_ns(self) -> int:
        return super().now_ns() + self.slept_ns

    def wall_ns(self) -> int:
        return super().wall_ns() + self.wall_offset_ns


@pytest.mark.parametrize("jump_ns", [pytest.param(YEARS_NS, id="ten years on"), pytest.param(TO_1970_NS, id="to 1970")])
def test_a_wall_clock_that_jumps_changes_no_state(jump_ns: int, tmp_path: Path) -> None:
    clock = JumpingClock()

    async def tale(node: Rig) -> None:
        path = await node.pod("a")
        await node.until_state(path, "enforced")
        clock.wall_offset_ns = jump_ns
        before = await node.ask()
        for _ in range(5):
            await asyncio.sleep(0.1)  # a few samples
            assert (await node.row(path))["state"] == "enforced"
        after = await node.ask()
        assert (after["ready"], (await node.row(path))["repairs"]) == (True, 0)
        assert (await node.health())["goals_unreached"] == 0
        assert after["mode"] == before["mode"]
        await node.until_state(await node.pod("b"), "enforced")

    play(rig(tmp_path, clock=clock), tale)


def test_a_machine_that_slept_for_an_hour_reads_everything_again(tmp_path: Path) -> None:
    clock = JumpingClock()

    async def tale(node: Rig) -> None:
        path = await node.pod("a")
        await node.until_state(path, "enforced")
        clock.slept_ns = 3600 * 1_000_000_000
        await node.until_state(path, "enforced")
        assert (await node.ask())["ready"] is True
        await node.until_state(await node.pod("b"), "enforced")

    play(rig(tmp_path, clock=clock), tale)


def test_a_cgroup_that_vanishes_between_read_and_write_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Given a pod whose limit is about to be written, when its cgroup is removed in that very moment, then the write
    fails in the kernel, nobody is alarmed, other pods get their limits, and the goal ends with the pod."""
    caplog.set_level(logging.WARNING)
    path = "/kubepods/podbad"

    async def tale(node: Rig) -> None:
        def vanishes() -> None:
            for name in node.files.listdir(ROOT + path):
                if node.files.stat(f"{ROOT}{path}/{name}").is_dir:
                    node.files.rmdir(f"{ROOT}{path}/{name}")
            node.files.rmdir(ROOT + path)

        moment = node.files.trouble(Trouble(("write",), "/podbad/misc.max", first=vanishes))
        sandbox = await node.runtime.run_pod(SimPod("bad", "pod-bad"))
        await node.until_error(path, "No such")
        assert moment.met == 1
        await node.until_state(await node.pod("good"), "enforced")
        assert (await node.health())["component_restarts"] == 0
        assert "goal=missed" not in caplog.text
        await node.runtime.remove_pod(sandbox)
        async with asyncio.timeout(WITHIN_S):
            while await node.row(path):
                await asyncio.sleep(0.02)
        assert (await node.health())["goals_unreached"] == 0

    play(rig(tmp_path), tale)
