"""The record across lives and bad disks: nothing is lost in silence, and what is there replays."""

import errno
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec
import pytest

from nodeward.aio.lanes import GivenUpError
from nodeward.app.host.record import RecordWriter, size
from nodeward.app.node.assemble import ensure_folder
from nodeward.app.tools.replay import replay
from nodeward.doubles.kernel import SimKernel
from nodeward.engine.apply import apply
from nodeward.engine.state.root import State
from nodeward.model import events as ev
from nodeward.model.events import ApiLost, Event
from nodeward.wire import record
from tests.faults import FaultyFiles
from tests.lanes import InlineLane
from tests.unit.engine.build import container_spec, node, pod_spec, started

T = TypeVar("T")
PATH = "/var/lib/nodeward/record"


class Impatient(InlineLane):
    """Gives up the job that runs when it is told to."""

    give_up: Callable[[], None]

    def submit(
        self,
        name: str,
        job: Callable[[], T],
        done: Callable[[T | BaseException], None],
        ended: Callable[[], None] | None = None,
    ) -> bool:
        over = False

        def once(result: T | BaseException) -> None:
            nonlocal over
            if not over:
                over = True
                done(result)

        def runs() -> T:
            self.give_up = lambda: once(GivenUpError("took longer"))
            return job()

        return super().submit(name, runs, once, ended)


class Life:
    """One daemon's life: events decided and recorded."""

    def __init__(self, files: SimKernel | FaultyFiles, max_bytes: int = 1 << 20) -> None:
        self.lane = Impatient()
        self.writer = RecordWriter(files, self.lane, PATH, max_bytes, size(files, PATH))
        self._state, self._seq = State(), 0

    def decides(self, count: int) -> None:
        for _ in range(count):
            self._seq += 1
            event: Event = ApiLost("away", seq=self._seq, at_ns=self._seq)
            before = self._state
            self._state, decision = apply(before, event)
            self.writer(event, decision, before)
        self.writer.flush()
        self.lane.drain()


def folder() -> SimKernel:
    kernel = SimKernel({})
    ensure_folder(kernel, "/var/lib/nodeward")
    return kernel


def lines(kernel: SimKernel) -> list[bytes]:
    return kernel.read(PATH, 1 << 24).splitlines(keepends=True)


def test_a_restart_keeps_the_record_of_the_life_before() -> None:
    kernel = folder()
    Life(kernel).decides(3)
    kernel.append(PATH, b'["event","ApiLost",{"why', sync=False)  # killed within a write
    Life(kernel).decides(2)

    found = replay(lines(kernel))

    assert (found.segments, found.events, found.torn, found.difference) == (2, 5, 1, "")


def test_a_full_disk_tears_the_segment_and_a_new_one_begins() -> None:
    kernel = folder()
    files = FaultyFiles(kernel, fail_at=3, fail_errno=errno.ENOSPC)
    life = Life(files)
    for _ in range(4):
        life.decides(1)

    found = replay(lines(kernel))

    assert life.writer.dropped == 1
    assert found.torn == 1
    assert found.segments == 2
    assert found.difference == ""


def test_a_record_does_not_outgrow_its_bound_by_more_than_a_batch() -> None:
    kernel = folder()
    life = Life(kernel, max_bytes=65_536)
    for _ in range(400):
        life.decides(20)

    assert kernel.stat(PATH).size < 2 * 65_536
    assert replay(lines(kernel)).difference == ""


class FullDisk(FaultyFiles):
    """Nothing can be written while `full`."""

    full = False

    def _count(self, name: str, path: str) -> None:
        super()._count(name, path)
        if self.full and name in ("append", "replace"):
            raise OSError(errno.ENOSPC, "No space left on device", path)


def test_what_a_full_disk_did_not_take_does_not_count_towards_the_bound() -> None:
    """Given a disk that is full for longer than a record's bound, then what was recorded before is still there."""
    kernel = folder()
    files = FullDisk(kernel)
    life = Life(files, max_bytes=65_536)
    life.decides(3)
    files.full = True
    for _ in range(400):
        life.decides(20)
    files.full = False
    life.decides(2)
    life.decides(2)

    found = replay(lines(kernel))
    assert (found.segments, found.torn, found.difference) == (2, 1, "")
    assert found.events >= 5


class LateDisk(FaultyFiles):
    """The first rotation is given up, and only lands after another one was to be made."""

    life: Life | None = None

    def _count(self, name: str, path: str) -> None:
        super()._count(name, path)
        if self.life is not None and name == "replace":
            life, self.life = self.life, None
            life.lane.give_up()
            life.decides(2)


def test_a_rotation_that_lands_late_replaces_nothing_newer_and_what_is_lost_is_said() -> None:
    kernel = folder()
    files = LateDisk(kernel)
    files.life = life = Life(files, max_bytes=4_096)
    for _ in range(400):
        if files.life is not None:
            life.decides(1)
    life.decides(3)

    found = replay(lines(kernel))
    assert files.life is None
    assert (found.torn, found.difference) == (1, "")


def test_a_full_nodes_head_is_encoded_bit_by_bit_and_not_by_who_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given 300 pods, then the line is what one call would make of it, and the loop's thread makes none of it."""
    told = node()
    for number in range(300):
        told(ev.PodSeen(pod_spec(f"{number}", container_spec("app", 4096))))
        told(started(f"{number}", "app"))
    at_once = msgspec.json.encode(["segment", record.FORMAT, "x", told.state]) + b"\n"
    pieces = list(record.segment_pieces("x", told.state))

    assert b"".join(pieces) == at_once
    assert max(map(len, pieces)) < len(at_once) / 5

    made: list[str] = []
    honest = record.segment_pieces

    def noted(version: str, state: object) -> Iterator[bytes]:
        made.append("head")
        return honest(version, state)

    monkeypatch.setattr(record, "segment_pieces", noted)
    life = Life(folder())
    life.writer(ApiLost("away", seq=1), apply(State(), ApiLost("away", seq=1))[1], State())
    life.writer.flush()
    assert made == []
    life.lane.drain()
    assert made == ["head"]
