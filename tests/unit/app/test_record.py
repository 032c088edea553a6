"""The record across lives and bad disks: nothing is lost in silence, and what is there replays."""

import errno

from nodeward.aio.lanes import InlineLane
from nodeward.app.record import RecordWriter, size
from nodeward.app.replay import replay
from nodeward.engine.apply import apply
from nodeward.engine.state import State
from nodeward.model.events import ApiLost, Event
from nodeward.sim.faults import FaultyFiles
from nodeward.sim.kernel import SimKernel

PATH = "/var/lib/nodeward/record"


class Life:
    """One daemon's life: events decided and recorded."""

    def __init__(self, files: SimKernel | FaultyFiles, max_bytes: int = 1 << 20) -> None:
        self.lane = InlineLane()
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
    for path in ("/var", "/var/lib", "/var/lib/nodeward"):
        try:
            kernel.mkdir(path)
        except FileExistsError:
            continue
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
