"""The reader of kubelet's checkpoint: told when it changes and only then, with the reason where it cannot be read."""

import asyncio
import contextlib
import dataclasses
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeward.aio.hostfs import OsFiles
from nodeward.aio.lanes import GivenUpError
from nodeward.edges.kubelet import checkpoint
from nodeward.edges.kubelet.checkpoint import CheckpointFile, CheckpointPoll, CheckpointReader
from nodeward.model.events import Event, KeysHeld
from nodeward.model.workload import PodUid
from tests.lanes import InlineLane
from tests.unit.engine.build import ManualClock
from tests.unit.wire import checkpoints

TDX = "devices.kubevirt.io/tdx"


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    (tmp_path / "device-plugins").mkdir()
    return tmp_path / "device-plugins" / "kubelet_internal_checkpoint"


def write(path: Path, *ids: str) -> None:
    registered = {TDX: ["tdx0", "tdx1"], "other/x": ["x"]}
    path.write_bytes(checkpoints.file([checkpoints.entry("a", {"-1": ids}, TDX)], registered))


def reader_of(path: Path) -> CheckpointReader:
    return CheckpointReader(CheckpointFile(OsFiles(), str(path.parent.parent), [TDX]))


def test_what_kubelet_has_handed_out_is_told_when_it_has_changed(path: Path) -> None:
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


def test_a_file_that_is_not_there_yet_or_named_nobody_is_no_fault(path: Path) -> None:
    reader = reader_of(path)
    assert reader.look(1) == KeysHeld(1)
    assert reader.look(2) is None
    path.write_bytes(checkpoints.file([], {TDX: ["tdx0"]}))
    assert reader.look(3) == KeysHeld(3, {}, {TDX: ("tdx0",)})
    path.unlink()
    path.parent.rmdir()
    assert reader.look(4) == KeysHeld(4)


def test_a_file_that_named_pods_and_is_gone_is_a_fault_until_it_is_there_again(path: Path) -> None:
    reader = reader_of(path)
    write(path, "tdx0")
    assert reader.look(1) is not None
    path.unlink()
    assert reader.look(2) == KeysHeld(
        2, fault=f"{path} was there and is gone; kubelet writes it anew at its next change"
    )
    assert reader.look(3) is None
    write(path, "tdx0")
    found = reader.look(4)
    assert found is not None
    assert (found.fault, found.pods) == ("", {PodUid("a"): {TDX: ("tdx0",)}})


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


class Seconds(ManualClock):
    """A clock under which each sleep drains a lane, and the last one ends the sleeper."""

    left = 0
    lane = InlineLane()

    async def sleep(self, seconds: float) -> None:
        self.lane.drain()
        await super().sleep(seconds)
        self.left -= 1
        if not self.left:
            raise asyncio.CancelledError


class Told:
    """A poll whose lane waits to be drained, and whose core only counts."""

    def __init__(self, path: Path, awaits: Callable[[], bool] = lambda: False) -> None:
        self.events: list[KeysHeld] = []
        self.lane, self.clock, self.seq = InlineLane(), Seconds(), 0
        self.clock.lane = self.lane
        self.reader = reader_of(path)
        self.poll = CheckpointPoll(self.lane, self.reader, self.tell, lambda: self.seq, self.clock, awaits)

    def tell(self, event: Event) -> int:
        assert isinstance(event, KeysHeld)
        self.events.append(event)
        self.seq += 1
        return self.seq

    def seconds(self, count: int) -> None:
        self.clock.left = count
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(self.poll.run())

    async def asked(self) -> str:
        self.seq += 1
        asked = asyncio.ensure_future(self.poll.fetch("tdx"))
        for _ in range(5):
            await asyncio.sleep(0)
            self.lane.drain()
        return await asked


def test_a_read_that_hangs_is_told_and_not_doubled_and_its_content_is_told_after_it(path: Path) -> None:
    write(path, "tdx0")
    told = Told(path)
    told.reader.look(0)
    told.reader.reading = True
    for _ in range(2):
        told.poll._landed(0, GivenUpError("checkpoint"))
    told.seconds(3)
    assert [event.fault for event in told.events] == [f"{path}: reading it hangs: its disk does not answer"] * 2
    told.reader.reading = False
    told.seconds(3)
    assert [(event.fault, event.pods) for event in told.events[2:]] == [("", {PodUid("a"): {TDX: ("tdx0",)}})]


@pytest.mark.parametrize(("awaits", "count"), [(False, 1), (True, 5)])
def test_a_view_that_agrees_is_told_every_two_seconds_while_somebody_waits_for_it(
    path: Path, awaits: bool, count: int
) -> None:
    write(path, "tdx0")
    told = Told(path, lambda: awaits)
    told.seconds(10)
    assert len(told.events) == count
    assert len({repr(event.pods) for event in told.events}) == 1
    assert sorted({event.as_of for event in told.events}) == list(range(count))


def test_who_asks_has_told_what_the_file_says_now_whether_or_not_it_is_new(path: Path) -> None:
    write(path, "tdx0")
    told = Told(path)
    assert [asyncio.run(told.asked()), asyncio.run(told.asked())] == ["", ""]
    first, second = told.events
    assert (first.as_of, second.as_of) == (1, 3)
    assert second == dataclasses.replace(first, as_of=3)
    path.write_bytes(b"garbage")
    assert str(path) in asyncio.run(told.asked())
    assert told.events[-1].fault


def test_a_read_that_began_before_the_question_does_not_answer_it(path: Path) -> None:
    """Given a read under way that has seen the old file, then what is told first is followed by the new file."""

    async def story(told: Told) -> None:
        told.poll._begin(anyway=False)
        told.seq += 1
        asked = asyncio.ensure_future(told.poll.fetch("tdx"))
        await asyncio.sleep(0)
        assert told.lane.drain(1) == 1
        await asyncio.sleep(0)
        assert not asked.done()
        write(path, "tdx1")
        assert told.lane.drain() == 1
        assert await asked == ""

    write(path, "tdx0")
    told = Told(path)
    asyncio.run(story(told))
    assert [event.pods[PodUid("a")][TDX] for event in told.events] == [("tdx0",), ("tdx1",)]


def test_a_question_while_a_read_hangs_is_answered_in_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "FRESH_S", 0.02)
    told = Told(path)
    told.reader.reading = True
    assert asyncio.run(told.asked()) == f"{path}: reading it hangs: its disk does not answer"
    assert told.poll._asking == []


def test_what_is_told_says_when_its_read_began(path: Path) -> None:
    write(path, "tdx0")
    told = Told(path)
    told.poll._begin(anyway=True)
    began_ns = told.clock.ns
    told.clock.ns += 20_000_000_000
    assert told.lane.drain() == 1
    assert [event.read_ns for event in told.events] == [began_ns]
