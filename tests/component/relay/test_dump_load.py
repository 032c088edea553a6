"""The dump of a real relay under load and on disks that hang or are full: what is lost is told; and its rotation."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import grpc
import pytest

from bench.metrics import free_port
from nodeward.model.settings import SECRETS
from nodeward.model.view import DumpRow
from nodeward.proto import cri_pb2 as cri
from tests.component.relay import kubelet_mix
from tests.component.relay import test_limits as limits
from tests.component.relay.dump_rig import writer_of
from tests.component.relay.rig import (
    SERVICE,
    WAIT_S,
    call,
    client_of,
    following,
    log_of,
    relay_process,
    runtime_at,
    wait_for,
)
from tests.component.relay.test_status import daemon, people, scraped, status, status_socket
from tests.patience import patience

SECONDS = 5
MIB = 1 << 20


def dumped(file: Path) -> tuple[Counter[str], Counter[str], int]:
    """Requests and replies in the file by method, and how many messages it says are missing."""
    lines = file.read_text().splitlines()
    found = [re.fullmatch(r"\[.{24}?\] #\d+ (\w+) (=>|<=) \(passthrough\) (?:REQUEST|REPLY).*", line) for line in lines]
    asked, answered = (
        Counter(one[1] for one in found if one is not None and one[2] == arrow) for arrow in ("=>", "<=")
    )
    return asked, answered, sum(int(one) for one in re.findall(r"# (\d+) messages are missing here", "\n".join(lines)))


def told_of(file: Path) -> int:
    """The messages that stand in the file, and those that it says are missing."""
    asked, answered, marked = dumped(file)
    return asked.total() + answered.total() + marked


def said_of_dump(listen: Path) -> DumpRow:
    row = status(listen).dump
    assert row is not None
    return row


def lost(listen: Path) -> int:
    return said_of_dump(listen).lost


@contextmanager
def busy_processors() -> Iterator[None]:
    """Each is wanted all the time by a process of normal priority."""
    spin = [sys.executable, "-c", "while True: pass"]
    with ExitStack() as stack:
        for _ in os.sched_getaffinity(0):
            spinning = subprocess.Popen(spin)
            stack.callback(spinning.wait)
            stack.callback(spinning.kill)
        yield


@pytest.mark.nightly
def test_nothing_is_lost_at_kubelets_own_mix_on_a_busy_machine(tmp_path: Path) -> None:
    listen, runtime, file = tmp_path / "cri.sock", tmp_path / "runtime.sock", tmp_path / "dump"
    numbers, within_s, sent, answers = count(), WAIT_S * patience(), Counter[str](), list[grpc.Future]()

    def behave(name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        if name == "ListContainers":
            return kubelet_mix.changed_list(next(numbers))
        return kubelet_mix.REPLIES.get(name, b"")

    with (
        runtime_at(runtime, behave),
        relay_process(listen, runtime, "--dump", "reset,full:.*", "--dump-file", str(file)),
        client_of(listen) as channel,
        busy_processors(),
    ):
        calls = {name: channel.unary_unary(f"{SERVICE}/{name}") for name in set(kubelet_mix.second())}
        began = time.monotonic()
        for place, name in enumerate(name for _ in range(SECONDS) for name in kubelet_mix.second()):
            time.sleep(max(0.0, began + place / kubelet_mix.CALLS - time.monotonic()))
            answers.append(calls[name].future(kubelet_mix.REQUESTS.get(name, b""), timeout=within_s))
            sent[name] += 1
        for answer in answers:
            answer.result(within_s)
        wait_for(lambda: said_of_dump(listen).waiting_bytes == 0, "dump for which nothing waits", within_s)
        assert lost(listen) == 0

    assert dumped(file) == (sent, sent, 0)
    made = Counter(re.findall(r'created_at: "?(\d+)', file.read_text()))
    assert made == Counter({str(kubelet_mix.created_ns(nth)): kubelet_mix.CONTAINERS for nth in range(SECONDS)})


def test_a_disk_that_hangs_holds_no_call_up_and_every_message_is_in_the_file_or_counted_as_missing(
    tmp_path: Path,
) -> None:
    """The writer is stopped, as a hung disk would stop it, and has caught up before the relay ends: at its end it gives
    the dump ten seconds, which are too few where others keep the processors busy."""
    listen, runtime, file = tmp_path / "cri.sock", tmp_path / "runtime.sock", tmp_path / "dump"
    calls = 40
    with (
        runtime_at(runtime),
        relay_process(listen, runtime, "--dump", "reset,full:.*", "--dump-file", str(file)) as relay,
        client_of(listen) as channel,
    ):
        writer = writer_of(relay)
        call(channel, "Echo", b"first")
        wait_for(lambda: file.exists() and "Echo <=" in file.read_text(), "a dump")
        os.kill(writer, signal.SIGSTOP)
        try:
            for _ in range(calls):
                assert len(call(channel, "Echo", bytes(MIB))) == MIB
            missing = lost(listen)
        finally:
            os.kill(writer, signal.SIGCONT)
        wait_for(lambda: said_of_dump(listen).waiting_bytes == 0, "room for the mark", WAIT_S * patience())
        call(channel, "Echo", b"last")
        wait_for(lambda: told_of(file) == 2 * (calls + 2), "every message or its mark", WAIT_S * patience())
        assert lost(listen) == missing >= 2 * calls - 64

    assert dumped(file)[2] == missing


KIB = 1024
DISK = 'mount -t tmpfs -o size=512k tmpfs "$0" && exec "$@"'
FULL = "full:.*"


def ask(channel: grpc.Channel, size: int) -> None:
    asked = cri.VersionRequest(version="x" * size).SerializeToString()
    assert call(channel, "Version", asked) == asked


def test_a_file_that_has_grown_is_begun_anew_under_calls_and_who_follows_is_told_of_each(tmp_path: Path) -> None:
    listen, behind, file, most = tmp_path / "cri.sock", tmp_path / "runtime.sock", tmp_path / "dump", 1024 * KIB
    flags = ("--dump-file", str(file), "--dump", FULL, "--set", f"dump.max_bytes={most}")
    with runtime_at(behind), relay_process(listen, behind, *flags), client_of(listen) as channel:
        ask(channel, 1)
        wait_for(file.exists, "a dump")
        with following(file, "-o", "json") as reading:
            assert reading.stdout is not None
            followed = [int(json.loads(reading.stdout.readline())["number"])]
            for _ in range(5):
                for _ in range(3):
                    ask(channel, 150 * KIB)
                followed += [int(json.loads(reading.stdout.readline())["number"]) for _ in range(3)]
            reading.send_signal(signal.SIGINT)
            assert reading.wait(WAIT_S) == 0
        wait_for(status_socket(listen).is_socket, "relay.sock")
        assert lost(listen) == 0
    kept = file.with_name("dump.1")
    assert followed == list(range(1, 17))
    assert max(kept.stat().st_size, file.stat().st_size) <= most
    assert (kept.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o600, 0o600)
    assert numbers(kept)[0] > 3, "there was a file before these two"
    assert numbers(kept) + numbers(file) == list(range(numbers(kept)[0], 17))
    assert "dump=" not in log_of(listen).replace("dump=shares-processor", "")


def numbers(file: Path) -> list[int]:
    return [int(line.partition("#")[2].split()[0]) for line in file.read_text().splitlines() if " <= " in line]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a disk of 512 KiB")
def test_on_a_disk_that_is_full_every_call_passes_and_what_is_lost_is_counted_and_marked_once_there_is_room(
    tmp_path: Path,
) -> None:
    listen, behind, disk, port = tmp_path / "cri.sock", tmp_path / "runtime.sock", tmp_path / "disk", free_port()
    disk.mkdir()
    limits.kernel(tmp_path)
    shown = f"dump.show=[{', '.join(SECRETS)}]"  # without a first line the file's last page has no room for a mark
    flags = ("--dump-file", str(disk / "dump"), "--dump", FULL, "--set", shown)
    within = ("unshare", "--mount", "sh", "-c", DISK, str(disk))
    with (
        runtime_at(behind),
        relay_process(listen, behind, *flags, within=within) as relay,
        client_of(listen) as channel,
        daemon(tmp_path, port),
    ):
        wait_for(status_socket(listen).is_socket, "relay.sock")
        place = Path(f"/proc/{relay.pid}/root{disk}")
        ballast, file = place / "ballast", place / "dump"
        ask(channel, 8 * KIB)
        wait_for(lambda: file.exists() and "Version <=" in file.read_text(), "a dump")
        room = os.statvfs(place)
        ballast.write_bytes(bytes(room.f_bavail * room.f_frsize))  # no room for a message, nor for a mark

        for _ in range(20):
            ask(channel, 8 * KIB)
        wait_for(lambda: lost(listen) > 0, "a loss")
        for _ in range(20):
            ask(channel, 8 * KIB)
        wait_for(lambda: lost(listen) >= 40, "the loss of calls that came while the disk was full")
        assert "missing" not in file.read_text()
        ballast.unlink()
        ask(channel, 8 * KIB)
        wait_for(lambda: told_of(file) == 2 * 42, "every message or its mark")
        marked = dumped(file)[2]
        told = people(listen, "status").stdout
        wait_for(lambda: scraped(port).get("nodeward_relay_dump_lost_total") == marked, "the loss in /metrics")
        assert 40 <= lost(listen) == marked < 2 * 41
    assert f"{marked} lost" in told
    assert "No space left on device" in log_of(listen)
    assert log_of(listen).count("dump=not-written") == 1
