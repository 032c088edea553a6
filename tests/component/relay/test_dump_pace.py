"""How much of the machine the relay's dump has: little while its writer is let run, and a share where it is not."""

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from nodeward.aio import leftover_time
from nodeward.app.dump import feed as dump_feed
from nodeward.app.dump.feed import Feed, Writer
from nodeward.model.settings import DumpSection
from tests.component.relay.dump_rig import CLOSE_S, dumped, feed, run_pod
from tests.component.relay.rig import wait_for


def test_a_writer_runs_when_nothing_else_wants_to_and_one_that_is_behind_has_a_share_until_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a writer that is stopped, then it is found behind and gets its share; once it has written what waits, it
    gets what others leave again."""
    if not leftover_time.can_return(dump_feed.NICENESS):
        pytest.skip("needs CAP_SYS_NICE, or an RLIMIT_NICE of 10")
    monkeypatch.setattr(dump_feed, "BEHIND_S", 0.01)
    monkeypatch.setattr(dump_feed, "HURRIED_S", 0.01)
    path = tmp_path / "cri.dump"

    async def tale(to: Feed, writers: list[Writer]) -> None:
        process = writers[0]._process
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == dump_feed.NICENESS
        assert os.sched_getscheduler(process.pid) == os.SCHED_IDLE
        process.send_signal(signal.SIGSTOP)
        run_pod(to, 1, "web", "aaaa1111")
        while os.sched_getscheduler(process.pid) != os.SCHED_OTHER:
            await asyncio.sleep(0.001)
        process.send_signal(signal.SIGCONT)
        while writers[0].tally.done < to.told or os.sched_getscheduler(process.pid) != os.SCHED_IDLE:
            await asyncio.sleep(0.001)

    to, _ = dumped(path, tale)
    assert (to.lost, to.hurries > 0) == (0, True)
    assert "name: web" in path.read_text()


def test_who_wants_to_run_and_is_not_let_is_starved_and_who_waits_for_something_is_not() -> None:
    """Given one processor for three, one of which leaves nothing to the others."""
    one = str(min(os.sched_getaffinity(0)))
    pinned = ["taskset", "-c", one, sys.executable, "-c"]
    spin = [*pinned, "while True: pass"]
    with (
        subprocess.Popen(spin) as busy,
        subprocess.Popen(spin) as starved,
        subprocess.Popen([*pinned, "input()"], stdin=subprocess.PIPE) as waits,
    ):
        try:
            leftover_time.leave_it(starved.pid)
            wait_for(lambda: leftover_time.starved_s(starved.pid) > 1.0, "process that is not let")
            before = leftover_time.starved_s(waits.pid)
            known = leftover_time.starved_s(starved.pid)
            wait_for(lambda: leftover_time.starved_s(starved.pid) > known + 0.2, "more of it")
            assert leftover_time.starved_s(waits.pid) == before
        finally:
            for process in (busy, starved, waits):
                process.kill()


def test_a_writer_that_is_let_run_takes_its_time_and_one_that_is_not_has_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given more than a writer has done when it is looked, then it is left alone while it gets on, and be all memory
    full of what waits for it; it is behind where it was kept from running."""
    monkeypatch.setattr(dump_feed, "BEHIND_S", 0.01)
    monkeypatch.setattr(dump_feed, "HURRIED_S", 0.01)

    class Slow:
        """A writer that has done one message more each time it is looked."""

        def __init__(self) -> None:
            self.kept_s, self.hurried, self._done = 0.0, list[bool](), itertools.count()
            self.ring = SimpleNamespace(used=0, put=len, tell=lambda: False)

        @property
        def tally(self) -> SimpleNamespace:
            return SimpleNamespace(done=next(self._done), lost=0, missing=0, marked=0)

        def starved_s(self) -> float:
            return self.kept_s

        def hurry(self, hurried: bool) -> bool:
            self.hurried.append(hurried)
            return True

        def close(self, *_: object) -> None:
            """Nothing is left of it."""

    async def story() -> list[list[bool]]:
        writer = Slow()
        to = feed(DumpSection(), lambda _: cast(Writer, writer))
        to.open()
        for number in range(500):
            run_pod(to, number, "web", "aaaa1111")
        said = []
        for kept_s, used in ((0.0, 0), (0.01, 0), (0.0, dump_feed.MAX_WAITING)):
            writer.kept_s, writer.ring.used = kept_s, used
            writer.hurried.clear()
            while len(writer.hurried) < 3:
                await asyncio.sleep(0.001)
            said.append(writer.hurried[:3])
        to.close(CLOSE_S)
        return said

    assert asyncio.run(story()) == [[False] * 3, [True] * 3, [False] * 3]


def test_without_the_right_to_give_it_a_share_again_a_writer_keeps_its_own_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(leftover_time, "can_return", lambda niceness: False)
    caplog.set_level("INFO")
    writer = Writer(DumpSection(file=str(tmp_path / "cri.dump")))
    assert os.sched_getscheduler(writer._process.pid) == os.SCHED_OTHER
    assert os.getpriority(os.PRIO_PROCESS, writer._process.pid) == dump_feed.NICENESS
    assert [line.partition(" ")[0] for line in caplog.messages] == ["dump=shares-processor"]
    writer.close(CLOSE_S, 1.0, (0, 0))
