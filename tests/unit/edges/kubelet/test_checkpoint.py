"""The reader of kubelet's checkpoint: told when it changes and only then, with the reason where it cannot be read."""

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from nodeward.aio.hostfs import OsFiles
from nodeward.aio.lanes import GivenUpError
from nodeward.edges.kubelet.checkpoint import CheckpointReader, run
from nodeward.model.events import Event, KeysHeld
from nodeward.model.workload import PodUid
from tests.unit.wire import checkpoints

TDX = "devices.kubevirt.io/tdx"
T = TypeVar("T")


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    (tmp_path / "device-plugins").mkdir()
    return tmp_path / "device-plugins" / "kubelet_internal_checkpoint"


def write(path: Path, *ids: str) -> None:
    registered = {TDX: ["tdx0", "tdx1"], "other/x": ["x"]}
    path.write_bytes(checkpoints.file([checkpoints.entry("a", {"-1": ids}, TDX)], registered))


def reader_of(path: Path) -> CheckpointReader:
    return CheckpointReader(OsFiles(), str(path.parent.parent), [TDX])


def test_what_kubelet_has_handed_out_is_told_when_it_has_changed(path: Path) -> None:
    """Given new content that is written over the old inode within the same tick of the clock."""
    write(path, "tdx0")
    before = path.stat()
    reader = reader_of(path)
    registered = {TDX: ("tdx0", "tdx1")}
    assert reader.look(7) == KeysHeld(7, {PodUid("a"): {TDX: ("tdx0",)}}, registered)
    assert reader.look(8) is None
    write(path, "tdx1")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_ino == before.st_ino
    assert reader.look(9) == KeysHeld(9, {PodUid("a"): {TDX: ("tdx1",)}}, registered)


def test_an_absent_file_is_no_fault_and_empties_what_was_told(path: Path) -> None:
    reader = reader_of(path)
    assert reader.look(1) == KeysHeld(1)
    assert reader.look(2) is None
    write(path, "tdx0")
    assert reader.look(3) is not None
    path.unlink()
    path.parent.rmdir()
    assert reader.look(4) == KeysHeld(4)


def test_what_cannot_be_read_is_told_once_with_the_reason(path: Path) -> None:
    path.write_text('{"Data": tdx')
    reader = reader_of(path)
    found = reader.look(1)
    assert found is not None
    assert str(path) in found.fault
    assert (found.pods, reader.look(2)) == ({}, None)
    path.unlink()
    path.mkdir()
    assert reader.look(3) == KeysHeld(3, fault=f"{path} cannot be read: {os.strerror(errno.EISDIR)}")
    path.rmdir()
    write(path, "tdx0")
    assert (found := reader.look(4)) is not None
    assert not found.fault


class HangingLane:
    """Gives a job up at once; it comes back when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def submit(
        self,
        name: str,
        job: Callable[[], T],
        done: Callable[[T | BaseException], None],
        ended: Callable[[], None] | None = None,
    ) -> bool:
        assert ended is not None
        self.jobs.append(ended)
        done(GivenUpError(name))
        return True


class Turns:
    """A clock whose sleeps only let the loop turn; it stops the component after so many."""

    def __init__(self, lane: HangingLane) -> None:
        self.lane, self.slept = lane, list[int]()

    def now_ns(self) -> int:
        return 0

    def wall_ns(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        assert seconds == 1.0
        self.slept.append(len(self.lane.jobs))
        if len(self.slept) == 3:
            self.lane.jobs[0]()  # the read comes back
        if len(self.slept) == 5:
            raise asyncio.CancelledError


def test_a_read_that_hangs_is_told_and_not_doubled_until_it_comes_back(path: Path) -> None:
    told: list[Event] = []
    lane = HangingLane()
    clock = Turns(lane)

    def tell(event: Event) -> int:
        told.append(event)
        return 1

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run(lane, reader_of(path), tell, lambda: 5, clock))

    assert clock.slept == [1, 1, 1, 2, 2]
    assert told == [KeysHeld(5, fault=f"{path}: reading it hangs: its disk does not answer")]
