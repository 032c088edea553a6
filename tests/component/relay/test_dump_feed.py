"""The relay's dump with its real writer process: killed, stopped, slow or away, and how much of the machine it has."""

import asyncio
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from nodeward.features.settings import DumpSection
from nodeward.host import leftover_time
from nodeward.host.backoff import Backoff
from nodeward.host.clock import SystemClock
from nodeward.neighbours.cri import dump_rules
from nodeward.neighbours.cri.calls import Call, Interest
from nodeward.programs.dump import feed as dump_feed
from nodeward.programs.dump import ring as dump_ring
from nodeward.programs.dump.feed import Feed, Writer
from tests.component.relay.dump_rig import CLOSE_S, drained, dump, dumped, feed, message, run_pod
from tests.component.relay.rig import WAIT_S, wait_for


class Leaping(SystemClock):
    """A clock by which each look takes a fifth of what a dump has at its end before it only marks what is missing."""

    def __init__(self) -> None:
        self._looks = count(1)

    def now_ns(self) -> int:
        return int(next(self._looks) * CLOSE_S * (1 - dump_feed.MARK_SHARE) / 5 * 1e9)


def test_a_writer_that_is_killed_is_started_again_and_the_loss_is_told(tmp_path: Path) -> None:
    path = tmp_path / "cri.dump"

    async def tale(to: Feed, writers: list[Writer]) -> None:
        run_pod(to, 1, "before", "aaaa1111")
        await drained(to)
        writers[0]._process.send_signal(signal.SIGKILL)
        writers[0]._process.wait()
        number = 1
        while len(writers) < 2:
            number += 1
            run_pod(to, number, "lost", "cccc3333")
            await asyncio.sleep(0.01)
        run_pod(to, number + 1, "after", "dddd4444")
        await drained(to)
        assert to.told == 2 * (number + 1)

    to, _ = dumped(path, tale)
    text = path.read_text()
    assert to.lost > 0
    assert "messages are missing here" in text
    assert "name: before" in text
    assert "name: after" in text
    assert len(re.findall(r"\) (?:REQUEST|REPLY)", text)) == to.told - to.lost
    assert not (tmp_path / "cri.dump.1").exists()


def test_a_writer_that_is_killed_with_its_memory_full_is_started_again(tmp_path: Path) -> None:
    path = tmp_path / "cri.dump"

    async def tale(to: Feed, writers: list[Writer]) -> None:
        writers[0]._process.send_signal(signal.SIGSTOP)
        call, long = Call(1, 1, "/runtime.v1.RuntimeService/Tomorrow", 1), message(bytes(dump_ring.BYTES // 2))
        for _ in range(3):
            to.request(call, long)
        while writers[0].ring.used < dump_ring.BYTES or writers[0].ring._untold:
            await asyncio.sleep(0.001)
        writers[0]._process.send_signal(signal.SIGKILL)
        while len(writers) < 2:
            await asyncio.sleep(0.001)
        run_pod(to, 2, "after", "dddd4444")
        await drained(to)

    to, _ = dumped(path, tale)
    assert (to.lost, to.told) == (3, 5)
    assert "3 messages are missing here" in path.read_text()
    assert "name: after" in path.read_text()


def test_a_dump_that_has_grown_to_its_bound_is_kept_beside_the_next_one(tmp_path: Path) -> None:
    path, kept, most = tmp_path / "cri.dump", tmp_path / "cri.dump.1", 1 << 20

    async def tale(to: Feed, _: list[Writer]) -> None:
        for number in range(1, 17):
            run_pod(to, number, "x" * (150 << 10), "aaaa1111")
        await drained(to)

    dumped(path, tale, most=most)
    numbers = [[int(one) for one in re.findall(r"#(\d+) \S+ <= ", file.read_text())] for file in (kept, path)]
    assert numbers[0][0] > 3, "there was a file before these two"
    assert numbers[0] + numbers[1] == list(range(numbers[0][0], 17))
    assert max(kept.stat().st_size, path.stat().st_size) <= most
    assert (kept.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o600, 0o600)


async def test_a_writer_that_never_writes_is_started_again_less_and_less_often(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Given one whose folder is gone, as it ends before it has taken anything."""
    section, number = DumpSection(file=str(tmp_path / "gone" / "cri.dump")), 0
    pauses = Backoff(0.01, 1.0, lambda: 0.0)
    to = Feed(dump_rules.parse(section.rules), partial(Writer, section), SystemClock(), pauses)
    to.open()
    while sum("again_in_s" in line for line in caplog.messages) < 3:
        run_pod(to, number := number + 1, "lost", "cccc3333")
        await asyncio.sleep(0.01)
    to.close(CLOSE_S)
    assert re.findall(r"again_in_s=(\S+)", caplog.text)[:3] == ["0.005", "0.01", "0.02"]


async def test_beyond_the_bound_messages_are_left_out_and_counted_and_nothing_waits(tmp_path: Path) -> None:
    path = tmp_path / "cri.dump"
    most = dump_feed.MAX_WAITING
    to = feed(DumpSection(file=str(path)))
    call = Call(1, 1, "/runtime.v1.RuntimeService/Tomorrow", 1)
    for _ in range(5):  # before the writer is there
        to.request(call, message(bytes(most // 4)))
    assert to.lost == 2
    to.open()
    while to._bytes > most // 2:
        to._flush()
        await asyncio.sleep(0.001)
    to.request(call, message(b"x"))
    for _ in range(5):
        to.request(call, message(bytes(most // 4)))  # the last find no room, and the mark of that comes at the end
    await drained(to)
    to.close(CLOSE_S)
    assert to.lost > 2
    told = dump(path, "--method", "None of these", "-o", "json")
    assert (told.exit_code, told.stderr) == (
        1,
        f"nodeward: {path}: {to.lost} message(s) are missing in it, by its own word\n",
    )
    marks = [json.loads(line) for line in told.stdout.splitlines()]
    shown = [line for line in dump(path, "--method", "None of these").stdout.splitlines() if "missing" in line]
    assert sum(one["missing"] for one in marks) == to.lost
    assert [line.partition(" # ")[2] for line in shown] == [one["remark"] for one in marks]
    lines = path.read_text().splitlines()
    missing = [int(found[1]) for line in lines if (found := re.search(r"# (\d+) messages are missing here", line))]
    assert missing[0] == 2
    assert sum(missing) == to.lost
    assert sum(f"{most // 4} bytes of a message" in line for line in lines) == 10 - sum(missing)


def test_a_slow_disk_holds_the_end_up_no_longer_than_it_may_and_what_is_missing_is_marked(tmp_path: Path) -> None:
    """Given a writer that is looked after five times before its time is up, and then cannot have had room for all, the
    end waits for it in all as long as it may, not so long for each bit."""
    path = tmp_path / "cri.dump"

    async def tale(to: Feed, writers: list[Writer]) -> None:
        call = Call(1, 1, "/runtime.v1.RuntimeService/Tomorrow", 1)
        to.request(call, message(bytes(1 << 20)))
        await drained(to)
        for _ in range(59):
            to.request(call, message(bytes(1 << 20)))

    to, writers = dumped(path, tale, Leaping())
    assert writers[0]._process.wait(WAIT_S) == 0, "the mark may come after the end"
    lines = path.read_text().splitlines()
    missing = [int(found[1]) for line in lines if (found := re.search(r"# (\d+) messages are missing here", line))]
    assert 0 < to.lost < to.told
    shown = sum(" of a message" in line for line in lines)
    assert (to.told, sum(missing), shown) == (60, to.lost, to.told - to.lost)


def test_a_writer_whose_disk_hangs_beyond_the_end_marks_what_is_missing_once_the_disk_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dump_feed, "MARK_SHARE", 0.01)
    path = tmp_path / "cri.dump"

    async def tale(to: Feed, writers: list[Writer]) -> None:
        run_pod(to, 1, "before", "aaaa1111")
        await drained(to)
        writers[0]._process.send_signal(signal.SIGSTOP)
        run_pod(to, 2, "lost", "cccc3333")
        to.close(1.0)

    to, writers = dumped(path, tale)
    assert (to.told, to.lost) == (4, 2)
    assert "missing" not in path.read_text()
    assert caplog.messages[-1].startswith(f"dump=unfinished pid={writers[0]._process.pid} why=")

    writers[0]._process.send_signal(signal.SIGCONT)

    assert writers[0]._process.wait(WAIT_S) == 0
    assert path.read_text().endswith("# 2 messages are missing here: they could not be written\n")
    assert "name: lost" not in path.read_text()


def test_a_writer_that_closed_its_socket_and_does_not_end_is_killed_and_no_disk_is_blamed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = Writer(DumpSection(file=str(tmp_path / "cri.dump")))
    writer._process.send_signal(signal.SIGSTOP)  # it cannot end by itself
    caplog.clear()

    writer.close(0.0, 0.0, (0, 0))

    assert writer._process.wait(WAIT_S) == -signal.SIGKILL
    assert caplog.messages == []


def test_what_the_rules_leave_out_is_not_even_copied() -> None:
    to, of = feed(DumpSection(rules="full:.*,short:Version,off:.*List.*")), "/runtime.v1.RuntimeService"
    wanted = [to.interest(f"{of}/{name}") for name in ("RunPodSandbox", "Version", "ListContainers")]
    assert wanted == [Interest.ALL, Interest.CALL, Interest.NONE]


def test_a_writer_runs_when_nothing_else_wants_to_and_one_that_is_behind_has_a_share_until_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def test_a_writer_that_is_let_run_takes_its_time_and_one_that_is_not_has_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dump_feed, "BEHIND_S", 0.01)
    monkeypatch.setattr(dump_feed, "HURRIED_S", 0.01)

    class Slow:
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

    writer = Slow()
    to = feed(DumpSection(), lambda _: cast(Writer, writer))
    to.open()
    for number in range(500):
        run_pod(to, number, "web", "aaaa1111")
    for kept_s, used, hurries in ((0.0, 0, False), (0.01, 0, True), (0.0, dump_feed.MAX_WAITING, False)):
        writer.kept_s, writer.ring.used = kept_s, used
        writer.hurried.clear()
        while len(writer.hurried) < 3:
            await asyncio.sleep(0.001)
        assert writer.hurried[:3] == [hurries] * 3, (kept_s, used)
    to.close(CLOSE_S)


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
