"""What systemd is told, on real datagram sockets."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodeward.aio import sd_notify

PID = 4242


@contextmanager
def manager(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("\0" + address[1:] if address.startswith("@") else address)
        listening.settimeout(10.0)
        yield listening


@pytest.mark.parametrize("kind", ["a path", "an abstract name"])
def test_the_manager_hears_each_datagram(kind: str, tmp_path: Path) -> None:
    address = str(tmp_path / "notify") if kind == "a path" else f"@nodeward-test-{os.getpid()}"
    with manager(address) as listening:
        notifier = sd_notify.from_environment({"NOTIFY_SOCKET": address}, PID)
        assert notifier.tell(sd_notify.READY)
        assert notifier.status("two\nlines")
        assert notifier.reloading()

        assert listening.recv(999) == b"READY=1"
        assert listening.recv(999) == b"STATUS=two lines"
        reloading, at = listening.recv(999).decode().split("\n")
        assert reloading == "RELOADING=1"
        assert int(at.removeprefix("MONOTONIC_USEC=")) > 0
        notifier.close()


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1"}])
def test_without_a_manager_nothing_happens(environ: dict[str, str]) -> None:
    notifier = sd_notify.from_environment({**environ, "WATCHDOG_USEC": "5"}, PID)

    assert not notifier.tell(sd_notify.READY)
    assert notifier.watchdog_s == 0


def test_a_manager_that_is_gone_stops_nobody(tmp_path: Path) -> None:
    assert not sd_notify.from_environment({"NOTIFY_SOCKET": str(tmp_path / "gone")}, PID).tell(sd_notify.READY)


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({"WATCHDOG_USEC": "10000000"}, 10.0),
        ({"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": "4242"}, 10.0),
        ({"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({}, 0.0),
    ],
)
def test_the_watchdogs_time_is_read_where_it_is_meant_for_us(environ: dict[str, str], seconds: float) -> None:
    notifier = sd_notify.from_environment({"NOTIFY_SOCKET": "/nowhere", **environ}, PID)

    assert notifier.watchdog_s == seconds
    notifier.close()
