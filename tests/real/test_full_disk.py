"""A disk that is really full, below the daemon's state folder and its record: a small tmpfs of the test's own.

The daemon is the production code on the operating system's own files there, beside the doubles of kernel and runtime. A
real disk fills otherwise than an error that is made up: the last write that fits is short, and leaves half a line.
"""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.features.settings import RecordSection, Settings
from nodeward.host.hostfs import OsFiles
from nodeward.programs.once.replay import replay
from tests.component.daemon.rig import STATE, WITHIN_S, Rig, rig
from tests.component.kubernetes.support import until
from tests.peers.find import absent

RECORD = f"{STATE}/node.record"
SIZE = 1 << 20
PAGE = 4096


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """An empty file system with room for SIZE bytes, with the state folder in it."""
    if os.geteuid() != 0:
        absent("a file system of its own needs root: run the tests as root")
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "nodeward-test", place], check=True, timeout=WITHIN_S)
    try:
        (place / STATE.lstrip("/")).mkdir(parents=True)
        yield place
    finally:
        subprocess.run(["umount", place], check=True, timeout=WITHIN_S)


def fill(disk: Path, but: int = 0) -> None:
    """Leaves so many bytes, rounded down to a page."""
    with (disk / "filler").open("wb", buffering=0) as filler:
        there = os.statvfs(disk)
        os.posix_fallocate(filler.fileno(), 0, there.f_bavail * there.f_bsize - but)


def recorded(settings: Settings) -> Settings:
    return replace(settings, record=RecordSection(path=RECORD))


async def until_more(node: Rig, name: str) -> int:
    async with asyncio.timeout(WITHIN_S):
        while not (found := (await node.health()).get(name, 0)):
            await asyncio.sleep(0.02)
    return found


@pytest.mark.parametrize("but", [2 * PAGE, 3 * PAGE])
async def test_a_disk_that_fills_within_a_line_leaves_a_record_that_replays(
    tmp_path: Path, disk: Path, but: int, caplog: pytest.LogCaptureFixture
) -> None:
    files = OsFiles(str(disk))

    async with rig(tmp_path, runtime_hands_down=False, change=recorded, disk=files) as node:
        await node.until_state(await node.pod("a"), "enforced")
        fill(disk, but)
        for uid in ("b", "c"):
            await node.until_state(await node.pod(uid), "enforced")
        await until_more(node, "record_dropped")
        assert os.statvfs(disk).f_bavail == 0
        (lost, *_) = (text for text in caplog.messages if text.startswith("record=lost"))
        assert " bytes were written" in lost, "a short write, as no made-up error is"
        (disk / "filler").unlink()
        await node.until_state(await node.pod("good"), "enforced")
        new = b'["segment"'
        await until(lambda: new in files.read(RECORD, SIZE).partition(b'["torn"')[2], "the record goes on")
    found = replay(files.read(RECORD, SIZE).splitlines(keepends=True))
    assert (found.difference, found.torn >= 1, found.segments >= 2) == ("", True, True)
