"""The relay's dump with its real writer process: what a watcher is told stands in the file, and no disk holds it up."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import BinaryIO

import pytest

from nodeward.aio import leftover_time
from nodeward.aio.backoff import Backoff
from nodeward.aio.clock import Clock, SystemClock
from nodeward.app import dump_feed, dump_ring
from nodeward.app.dump_feed import Feed, Writer
from nodeward.cli import dump as dump_command
from nodeward.model.relayed import Call, Ended, Message
from nodeward.model.settings import DumpSection
from nodeward.proto import cri_pb2 as cri
from nodeward.wire import dump_rules, dump_text

RUN = "/runtime.v1.RuntimeService/RunPodSandbox"
CLOSE_S = 20.0


class Leaping(SystemClock):
    """A clock by which each look takes three seconds."""

    def __init__(self) -> None:
        self._seconds = count(1)

    def now_ns(self) -> int:
        return 3 * next(self._seconds) * 1_000_000_000


def feed(section: DumpSection, start: Callable[[bool], Writer] | None = None, clock: Clock | None = None) -> Feed:
    return Feed(
        dump_rules.parse(section.rules),
        start or partial(Writer, section),
        clock or SystemClock(),
        Backoff(0.01, 0.02, lambda: 0.5),
    )


def message(payload: bytes) -> Message:
    return Message(payload, len(payload), False, 3_000_000)


def run_pod(to: Feed, number: int, name: str, sandbox: str) -> None:
    """One call as a relay tells of it."""
    asked = cri.RunPodSandboxRequest()
    asked.config.metadata.name, asked.config.metadata.namespace, asked.config.metadata.uid = (
        name,
        "default",
        f"u-{name}",
    )
    call = Call(number, 1, RUN, 1_000_000)
    to.began(call)
    to.request(call, message(asked.SerializeToString()))
    to.response(call, message(cri.RunPodSandboxResponse(pod_sandbox_id=sandbox).SerializeToString()))
    to.ended(call, Ended(0, "", 4_000_000))


def dump(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """`nodeward dump`."""
    command = [sys.executable, "-m", "nodeward", "dump", str(path), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_what_passes_stands_in_the_file_and_is_read_back_by_pod(tmp_path: Path) -> None:
    path = tmp_path / "cri.dump"

    async def story() -> None:
        to = feed(DumpSection(file=str(path)))
        to.open()
        run_pod(to, 1, "web", "1111aaaa")
        run_pod(to, 2, "db", "bbbb2222")
        stop = Call(3, 1, "/runtime.v1.RuntimeService/StopPodSandbox", 1_000_000)
        to.request(stop, message(cri.StopPodSandboxRequest(pod_sandbox_id="1111aaaa").SerializeToString()))
        to.ended(stop, Ended(5, "no such sandbox", 2_000_000_000))
        to.close(CLOSE_S)

    asyncio.run(story())
    told = dump(path, "--pod", "default/web", "-o", "json")
    assert told.returncode == 0, told.stderr
    calls = [json.loads(line) for line in told.stdout.splitlines()]
    assert [(one["method"], one["failed"], one["pod"]) for one in calls] == [
        ("RunPodSandbox", False, "default/web"),
        ("StopPodSandbox", True, "default/web"),
    ]
    assert calls[0]["request"]["config"]["metadata"]["uid"] == "u-web"
    assert [line.split()[3] for line in dump(path, "--failed").stdout.splitlines() if "ms" in line] == [
        "StopPodSandbox"
    ]
    assert "StopPodSandbox" in dump(path, "--slower-than", "1000").stdout
    assert dump(path, "--pod", "nobody").returncode == 1
    missing = dump(tmp_path / "none")
    assert (missing.returncode, missing.stderr) == (
        2,
        f"nodeward: {tmp_path}/none: cannot be read: No such file or directory\n",
    )


WEB, APP, SIDE = "aaaa1111", "bbbb2222", "cccc3333"
"""Ids of a pod and its containers."""
CHOSEN: dict[str, tuple[tuple[str, ...], str]] = {
    "a container by its name": (("--container", "app"), "236"),
    "a container by how its id begins": (("--container", APP[:4]), "236"),
    "a method": (("--method", "Container$"), "234"),
    "slower": (("--slower-than", "1000"), "3"),
    "not slower but as slow": (("--slower-than", "1500"), ""),
    "a container and failed": (("--container", "side", "--failed"), "5"),
    "a pod and a method": (("--pod", "default/web", "--method", "^Start"), "3"),
}
"""Options, and the numbers of the calls that are shown."""


def pods_life() -> list[str]:
    """Six calls of a dump, each whole."""
    made: list[str] = []
    of_pod = ["config:", "  metadata:", "    name: web", "    namespace: default", "    uid: u"]
    about = [f"pod_sandbox_id: {WEB}", "sandbox_config:", *(f"  {line}" for line in of_pod[1:])]
    of_app, of_side = (["config:", "  metadata:", f"    name: {name}", *about] for name in ("app", "side"))
    words = ["cmd:", *(f"- word{number}" for number in range(12)), f"container_id: {APP}"]
    story: tuple[tuple[str, list[str], list[str], float], ...] = (
        ("RunPodSandbox", of_pod, [f"pod_sandbox_id: {WEB}"], 20),
        ("CreateContainer", of_app, [f"container_id: {APP}"], 1.5),
        ("StartContainer", [f"container_id: {APP}"], ["{}"], 1500),
        ("CreateContainer", of_side, [f"container_id: {SIDE}"], 1),
        ("ContainerStatus", [f"container_id: {SIDE}"], [], 2),
        ("ExecSync", words, ["{}"], 2),
    )
    for number, (method, asked, answered, took_ms) in enumerate(story, 1):
        call, took_ns = dump_text.Call(number, method, "passthrough"), int(took_ms * 1e6)
        end = dump_text.reply(call, took_ns, answered) if answered else dump_text.failed(call, took_ns, "NOT_FOUND: no")
        made.append(dump_text.request(call, 1_763_762_571_123_456_789, asked) + end)
    return made


@pytest.mark.parametrize(("options", "numbers"), CHOSEN.values(), ids=CHOSEN)
def test_calls_are_chosen_by_container_method_and_how_long_they_took(
    tmp_path: Path, options: tuple[str, ...], numbers: str
) -> None:
    path = tmp_path / "cri.dump"
    path.write_text("".join(pods_life()))
    told = dump(path, *options, "-o", "json")
    assert "".join(json.loads(line)["number"] for line in told.stdout.splitlines()) == numbers
    assert (told.returncode, told.stderr) == (0 if numbers else 1, "")


def test_what_is_followed_is_chosen_too_and_told_to_people_by_pod_and_container(tmp_path: Path) -> None:
    path, life = tmp_path / "cri.dump", pods_life()
    path.write_text(life[0])
    command = [sys.executable, "-m", "nodeward", "dump", str(path), "--follow", "--container", "app"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as reading:
        with path.open("a") as file:
            file.writelines((life[3], life[1], life[4], life[2]))
        assert reading.stdout is not None
        told = [reading.stdout.readline() for _ in range(14)]
        reading.send_signal(signal.SIGINT)
        assert reading.wait(60) == 0
    assert [line.split(maxsplit=2)[2] for line in told if line[0] != " "] == [
        "#2 CreateContainer default/web/app 1.500 ms\n",
        "#3 StartContainer default/web/app 1500.000 ms\n",
    ]
    assert told[-2:] == [f"  > container_id: {APP}\n", "  < {}\n"]


def test_an_expression_that_is_none_is_refused(tmp_path: Path) -> None:
    told = dump(tmp_path / "none", "--method", "(")
    assert told.returncode == 2
    assert "'(' is no expression" in told.stderr


def test_a_line_that_is_longer_than_any_of_a_dump_is_left_out_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cri.dump"
    line = "[               +0.001000] #{} Version <= (passthrough) REQUEST\n"
    path.write_text(line.format(1) + "[x" + "y" * (5 << 20) + "\n" + line.format(2) + "[" * (3 << 20))
    told = dump(path, "-o", "json")
    assert [json.loads(one)["number"] for one in told.stdout.splitlines()] == ["1", "2"]
    assert told.stderr == f"nodeward: {path}: 2 line(s) are no dump's and were left out\n"


def test_a_call_whose_one_line_is_too_long_is_told_with_that_line_cut(tmp_path: Path) -> None:
    """Given a command that wrote 800 KiB, which is more than a line's in base64, and one that was given as much."""
    path, long = tmp_path / "cri.dump", os.urandom(800 << 10)
    asked = dump_text.body(cri.ExecSyncRequest, cri.ExecSyncRequest(cmd=["cat", long.hex()]).SerializeToString())
    said = dump_text.body(cri.ExecSyncResponse, cri.ExecSyncResponse(stdout=long).SerializeToString())
    call, at_ns = dump_text.Call(7, "ExecSync", "passthrough"), 1_763_762_571_123_456_789
    path.write_text(dump_text.request(call, at_ns, asked) + dump_text.reply(call, 1_500_000_000, said))
    told = dump(path, "--slower-than", "1000", "-o", "json")
    assert (told.returncode, told.stderr) == (0, "")
    one = json.loads(told.stdout)
    assert (one["took_s"], one["request"]["cmd"][0], list(one["replies"][0])) == (1.5, "cat", ["stdout"])
    for shown, whole in (
        (one["replies"][0]["stdout"], b64encode(long).decode()),
        (one["request"]["cmd"][1], long.hex()),
    ):
        kept, mark, rest = shown.partition(" *** cut, the line is longer than 1 MiB ***")
        assert (whole.startswith(kept), bool(mark), rest) == (True, True, "")
        assert len(kept) > 1_000_000


def test_who_follows_a_dump_is_told_what_is_written_also_in_the_file_after_it(tmp_path: Path) -> None:
    """Given one call, a half line that becomes whole, a mark, and a file that was put aside for the next."""
    path = tmp_path / "cri.dump"
    line = "[               +0.001000] #{} Version <= (passthrough) REQUEST\n"
    path.write_text(line.format(1))
    command = [sys.executable, "-m", "nodeward", "dump", str(path), "--follow", "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as reading:
        assert reading.stdout is not None
        assert json.loads(reading.stdout.readline())["number"] == "1"
        with path.open("a") as file:
            file.write(line.format(2)[:30])
            file.flush()
            file.write(line.format(2)[30:] + "[2026-Nov-22 05:00:00.000] # 4 messages are missing here: why\n")
        assert json.loads(reading.stdout.readline())["number"] == "2"
        assert json.loads(reading.stdout.readline())["missing"] == 4
        path.rename(tmp_path / "cri.dump.1")
        path.write_text(line.format(3))
        assert json.loads(reading.stdout.readline())["number"] == "3"
        reading.send_signal(signal.SIGINT)
        assert reading.wait(60) == 0


def test_who_follows_is_told_too_what_came_between_his_last_look_and_a_rotation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, looked = tmp_path / "cri.dump", dump_command._was_rotated
    path.write_text("first\n")

    def just_then(file: BinaryIO, name: str) -> bool:
        if not (tmp_path / "cri.dump.1").exists():
            with path.open("a") as same:
                same.write("last\n")
            path.rename(tmp_path / "cri.dump.1")
            path.write_text("next\n")
        return looked(file, name)

    monkeypatch.setattr(dump_command, "_was_rotated", just_then)
    looks = [None] * 9
    lines = (line for line in dump_command._followed(str(path), lambda seconds: looks.pop()) if line)
    assert list(islice(lines, 3)) == [b"first\n", b"last\n", b"next\n"]


def test_a_writer_that_is_killed_is_started_again_and_the_loss_is_told(tmp_path: Path) -> None:
    path = tmp_path / "cri.dump"
    writers: list[Writer] = []

    def start(again: bool) -> Writer:
        writers.append(Writer(DumpSection(file=str(path)), again))
        return writers[-1]

    async def story() -> int:
        to = feed(DumpSection(file=str(path)), start)
        to.open()
        run_pod(to, 1, "before", "aaaa1111")
        while writers[0].tally.done < 2:
            await asyncio.sleep(0.001)
        writers[0]._process.send_signal(signal.SIGKILL)
        writers[0]._process.wait()
        number = 1
        while len(writers) < 2:
            number += 1
            run_pod(to, number, "lost", "cccc3333")
            await asyncio.sleep(0.01)
        run_pod(to, number + 1, "after", "dddd4444")
        to.close(CLOSE_S)
        assert to.lost > 0
        assert to.told == 2 * (number + 1)
        return to.told - to.lost

    written = asyncio.run(story())
    text = path.read_text()
    assert "messages are missing here" in text
    assert "name: before" in text
    assert "name: after" in text
    assert len(re.findall(r"\) (?:REQUEST|REPLY)", text)) == written
    assert not (tmp_path / "cri.dump.1").exists()


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
    path, writers = tmp_path / "cri.dump", list[Writer]()

    async def story() -> tuple[int, int]:
        section = DumpSection(file=str(path))
        to = feed(section, lambda again: kept(writers, Writer(section, again)), Leaping())
        to.open()
        call = Call(1, 1, "/runtime.v1.RuntimeService/Tomorrow", 1)
        to.request(call, message(bytes(1 << 20)))
        while not writers[0].tally.done:
            await asyncio.sleep(0.001)
        for _ in range(59):
            to.request(call, message(bytes(1 << 20)))
        to.close(CLOSE_S)
        return to.told, to.lost

    told, lost = asyncio.run(story())
    lines = path.read_text().splitlines()
    missing = [int(found[1]) for line in lines if (found := re.search(r"# (\d+) messages are missing here", line))]
    assert 0 < lost < told
    assert (told, sum(missing), sum(" of a message" in line for line in lines)) == (60, lost, told - lost)


def test_a_writer_whose_disk_hangs_beyond_the_end_marks_what_is_missing_once_the_disk_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Given a writer that is stopped, as a hung disk would stop it, then the end waits for it no longer than it may,
    and leaves it; when it goes on, the file says what is missing, and the writer is gone."""
    monkeypatch.setattr(dump_feed, "MARK_SHARE", 0.01)
    path, writers = tmp_path / "cri.dump", list[Writer]()

    async def story() -> tuple[int, int]:
        to = feed(DumpSection(file=str(path)), lambda again: kept(writers, Writer(DumpSection(file=str(path)), again)))
        to.open()
        run_pod(to, 1, "before", "aaaa1111")
        while writers[0].tally.done < 2:
            await asyncio.sleep(0.001)
        writers[0]._process.send_signal(signal.SIGSTOP)
        run_pod(to, 2, "lost", "cccc3333")
        to.close(1.0)
        return to.told, to.lost

    told, lost = asyncio.run(story())
    assert (told, lost) == (4, 2)
    assert "missing" not in path.read_text()
    assert caplog.messages[-1].startswith(f"dump=unfinished pid={writers[0]._process.pid} why=")

    writers[0]._process.send_signal(signal.SIGCONT)

    assert writers[0]._process.wait(CLOSE_S) == 0
    assert path.read_text().endswith("# 2 messages are missing here: they could not be written\n")
    assert "name: lost" not in path.read_text()


def test_long_messages_reach_a_writer_that_was_held_up_whole_and_in_their_order(tmp_path: Path) -> None:
    """Given more of them than the shared memory has room for, then what lay there and what waited for room stand
    in the file one after the other, and the memory is free again."""
    path, writers = tmp_path / "cri.dump", list[Writer]()
    texts = [f"{number}-" + "v" * (dump_feed.COPIED_BYTES + 1000 * number) for number in range(200)]

    async def story() -> tuple[int, int]:
        section = DumpSection(file=str(path))
        to = feed(section, lambda again: kept(writers, Writer(section, again)))
        to.open()
        writers[0]._process.send_signal(signal.SIGSTOP)
        for number, text in enumerate(texts):
            asked = cri.VersionRequest(version=text).SerializeToString()
            to.request(Call(number, 1, "/runtime.v1.RuntimeService/Version", 1), message(asked))
        await asyncio.sleep(2 * dump_feed.LATER_S)
        assert writers[0].ring.used > dump_ring.BYTES // 2
        assert to.waiting_bytes > dump_ring.BYTES
        writers[0]._process.send_signal(signal.SIGCONT)
        while writers[0].tally.done < to.told:
            await asyncio.sleep(0.001)
        used = writers[0].ring.used
        to.close(CLOSE_S)
        return used, to.lost

    assert asyncio.run(story()) == (0, 0)
    assert re.findall(r'version: "?([^"\s]+)', path.read_text()) == texts


def kept(writers: list[Writer], writer: Writer) -> Writer:
    writers.append(writer)
    return writer


def test_a_writer_that_closed_its_socket_and_does_not_end_is_killed_and_no_disk_is_blamed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = Writer(DumpSection(file=str(tmp_path / "cri.dump")))
    writer._process.send_signal(signal.SIGSTOP)  # it cannot end by itself
    caplog.clear()

    writer.close(0.0, 0.0, (0, 0))

    assert writer._process.wait(CLOSE_S) == -signal.SIGKILL
    assert caplog.messages == []


def test_a_writer_runs_when_nothing_else_wants_to_and_one_that_is_behind_has_a_share_until_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a writer that is stopped, then it is found behind and gets its share; once it has written what waits, it
    gets what others leave again."""
    if not leftover_time.can_return(dump_feed.NICENESS):
        pytest.skip("needs CAP_SYS_NICE, or an RLIMIT_NICE of 10")
    monkeypatch.setattr(dump_feed, "BEHIND_S", 0.01)
    monkeypatch.setattr(dump_feed, "HURRIED_S", 0.01)
    path, writers = tmp_path / "cri.dump", list[Writer]()

    async def story() -> int:
        to = feed(DumpSection(file=str(path)), lambda again: kept(writers, Writer(DumpSection(file=str(path)), again)))
        to.open()
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
        to.close(CLOSE_S)
        assert to.lost == 0
        return to.hurries

    assert asyncio.run(story()) > 0
    assert "name: web" in path.read_text()


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


def test_what_the_rules_leave_out_is_not_even_copied() -> None:
    from nodeward.model.relayed import Interest

    to = feed(DumpSection(rules="full:.*,short:Version,off:.*List.*"))
    wanted = [
        to.interest(f"/runtime.v1.RuntimeService/{name}") for name in ("RunPodSandbox", "Version", "ListContainers")
    ]
    assert wanted == [Interest.ALL, Interest.CALL, Interest.NONE]
