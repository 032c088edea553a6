"""The relay's dump with its real writer process: killed, stopped, slow or away, and what is then missing is told."""

import asyncio
import json
import re
import signal
from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from nodeward.aio.backoff import Backoff
from nodeward.aio.clock import SystemClock
from nodeward.app.dump import feed as dump_feed
from nodeward.app.dump import ring as dump_ring
from nodeward.app.dump.feed import Feed, Writer
from nodeward.model.relayed import Call, Message
from nodeward.model.settings import DumpSection
from nodeward.proto import cri_pb2 as cri
from nodeward.wire import dump_rules
from tests.component.relay.dump_rig import CLOSE_S, drained, dump, dumped, feed, message, run_pod
from tests.component.relay.rig import WAIT_S


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
    """Given one that took nothing any more, so that nothing new can be put there which would wake it."""
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


def test_a_writer_that_never_writes_is_started_again_less_and_less_often(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Given one whose folder is gone, as it ends before it has taken anything."""
    section = DumpSection(file=str(tmp_path / "gone" / "cri.dump"))

    async def story() -> None:
        pauses = Backoff(0.01, 1.0, lambda: 0.0)
        to = Feed(dump_rules.parse(section.rules), partial(Writer, section), SystemClock(), pauses)
        to.open()
        number = 0
        while sum("again_in_s" in line for line in caplog.messages) < 3:
            run_pod(to, number := number + 1, "lost", "cccc3333")
            await asyncio.sleep(0.01)
        to.close(CLOSE_S)

    asyncio.run(story())
    assert re.findall(r"again_in_s=(\S+)", caplog.text)[:3] == ["0.005", "0.01", "0.02"]


def test_beyond_the_bound_messages_are_left_out_and_counted_and_nothing_waits(tmp_path: Path) -> None:
    path = tmp_path / "cri.dump"
    most = dump_feed.MAX_WAITING
    said: list[int] = []

    async def story() -> None:
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
        said.append(to.lost)

    asyncio.run(story())
    told = dump(path, "--method", "None of these", "-o", "json")
    assert (told.returncode, told.stderr) == (
        1,
        f"nodeward: {path}: {said[0]} message(s) are missing in it, by its own word\n",
    )
    marks = [json.loads(line) for line in told.stdout.splitlines()]
    shown = [line for line in dump(path, "--method", "None of these").stdout.splitlines() if "missing" in line]
    assert sum(one["missing"] for one in marks) == said[0]
    assert [line.partition(" # ")[2] for line in shown] == [one["remark"] for one in marks]
    lines = path.read_text().splitlines()
    missing = [int(found[1]) for line in lines if (found := re.search(r"# (\d+) messages are missing here", line))]
    assert missing[0] == 2
    assert [sum(missing)] == said
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
    """Given a writer that is stopped, as a hung disk would stop it, then the end waits for it no longer than it may,
    and leaves it; when it goes on, the file says what is missing, and the writer is gone."""
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


def test_long_messages_reach_a_writer_that_was_held_up_whole_and_in_their_order(tmp_path: Path) -> None:
    """Given more of them than the shared memory has room for, then what lay there and what waited for room stand
    in the file one after the other, and the memory is free again."""
    path = tmp_path / "cri.dump"
    texts = [f"{number}-" + "v" * (dump_feed.COPIED_BYTES + 1000 * number) for number in range(200)]

    async def tale(to: Feed, writers: list[Writer]) -> None:
        writers[0]._process.send_signal(signal.SIGSTOP)
        for number, text in enumerate(texts):
            asked = cri.VersionRequest(version=text).SerializeToString()
            to.request(Call(number, 1, "/runtime.v1.RuntimeService/Version", 1), message(asked))
        await asyncio.sleep(2 * dump_feed.LATER_S)
        assert writers[0].ring.used > dump_ring.BYTES // 2
        assert to.waiting_bytes > dump_ring.BYTES
        writers[0]._process.send_signal(signal.SIGCONT)
        await drained(to)
        assert writers[0].ring.used == 0

    assert dumped(path, tale)[0].lost == 0
    assert re.findall(r'version: "?([^"\s]+)', path.read_text()) == texts


def test_a_message_in_very_many_pieces_is_written_as_the_same_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And put in few: who sends it byte by byte takes no time from others."""
    path, puts = tmp_path / "cri.dump", list[int]()
    asked = cri.VersionRequest(version="v" * 100_000).SerializeToString()
    put_all = dump_ring.Giver.put_all

    def counted(ring: dump_ring.Giver, pieces: Sequence[bytes | memoryview], size: int) -> bool:
        puts.extend(map(len, pieces))
        return put_all(ring, pieces, size)

    monkeypatch.setattr(dump_ring.Giver, "put_all", counted)

    async def tale(to: Feed, _: list[Writer]) -> None:
        whole = Message(tuple(bytes((one,)) for one in asked), len(asked), False, 1)
        to.request(Call(1, 1, "/runtime.v1.RuntimeService/Version", 1), whole)
        await drained(to)

    assert dumped(path, tale)[0].lost == 0
    assert sum(puts) > len(asked)
    assert len(puts) < 10
    assert "v" * 100_000 in path.read_text()


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
    from nodeward.model.relayed import Interest

    to = feed(DumpSection(rules="full:.*,short:Version,off:.*List.*"))
    wanted = [
        to.interest(f"/runtime.v1.RuntimeService/{name}") for name in ("RunPodSandbox", "Version", "ListContainers")
    ]
    assert wanted == [Interest.ALL, Interest.CALL, Interest.NONE]
