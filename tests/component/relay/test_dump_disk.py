"""The dump's file under a relay at work: begun anew when it has grown, on a disk that is full and has room again."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import grpc
import pytest

from bench.metrics import free_port
from nodeward.model.settings import SECRETS
from nodeward.proto import cri_pb2 as cri
from tests.component.relay import test_limits as limits
from tests.component.relay.rig import WAIT_S, call, client_of, following, log_of, relay_process, runtime_at, wait_for
from tests.component.relay.test_dump_load import dumped, lost, told_of
from tests.component.relay.test_status import daemon, people, scraped, status_socket

KIB = 1024
DISK = 'mount -t tmpfs -o size=512k tmpfs "$0" && exec "$@"'
FULL = "full:.*"


def ask(channel: grpc.Channel, size: int) -> None:
    """A call whose request and reply are so long, and as long in the dump."""
    asked = cri.VersionRequest(version="x" * size).SerializeToString()
    assert call(channel, "Version", asked) == asked


def test_a_file_that_has_grown_is_begun_anew_under_calls_and_who_follows_is_told_of_each(tmp_path: Path) -> None:
    """Given calls of which four make a file too large, then the two files are the last ones without a gap."""
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
