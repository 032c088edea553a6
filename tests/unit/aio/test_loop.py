"""The loop, its watchdog and what systemd hears of it."""

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodeward.aio import sd_notify
from nodeward.aio.executor import DaemonExecutor
from nodeward.aio.watchdog import BEAT_S, STALL_S, Watchdog
from tests.patience import scaled

PATIENCE_S = scaled(6.0)

PHASES = 40
"""How often a timer is begun, each time at another part of a millisecond."""


@pytest.mark.parametrize("delay_s", [0.0001, 0.0005, 0.001, 0.0025, 0.0104])
async def test_no_timer_comes_too_early(delay_s: float) -> None:
    early: list[float] = []
    loop = asyncio.get_running_loop()
    for phase in range(PHASES):
        begun = time.monotonic()
        while time.monotonic() < begun + phase / PHASES / 1000:
            pass
        later, at = loop.create_future(), loop.create_future()
        due = time.monotonic() + delay_s
        loop.call_later(delay_s, later.set_result, None)
        await later
        early.append(due - time.monotonic())
        due = loop.time() + delay_s
        loop.call_at(due, at.set_result, None)
        await at
        early.append(due - time.monotonic())
    assert max(early) <= 0.0


async def test_a_name_is_asked_for_on_a_thread_of_ours_and_an_address_on_none() -> None:
    loop, closed = asyncio.get_running_loop(), DaemonExecutor()
    found = await loop.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)
    assert found == socket.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)
    assert await loop.getnameinfo(("127.0.0.1", 80), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV) == (
        "127.0.0.1",
        "80",
    )
    closed.shutdown()
    loop.set_default_executor(closed)
    assert (await loop.getaddrinfo("127.0.0.1", 80))[0][4] == ("127.0.0.1", 80)
    with pytest.raises(RuntimeError, match="closed"):
        await loop.getaddrinfo("localhost", 80)


async def test_a_path_that_is_longer_than_a_sockets_may_be_is_refused_and_not_cut() -> None:
    """For a socket may be at what is left of it."""
    with pytest.raises(OSError, match="too long"):
        await asyncio.open_unix_connection("/" + "x" * 200)


async def test_an_abstract_socket_is_connected_to() -> None:
    name = f"\0nodeward-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen()
        reader, writer = await asyncio.open_unix_connection(name)
        peer, _ = listener.accept()
        with peer:
            peer.sendall(b"here")
        assert await reader.read() == b"here"
        writer.close()


def stand_until_it_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    end = time.monotonic() + PATIENCE_S
    while "thread=MainThread" not in caplog.text:
        assert time.monotonic() < end
        time.sleep(BEAT_S)


async def test_the_stack_of_a_loop_that_stands_is_written_down_once(caplog: pytest.LogCaptureFixture) -> None:
    watchdog = Watchdog()
    watchdog.start()
    stand_until_it_is_logged(caplog)
    time.sleep(4 * BEAT_S)  # it stands on, and is not reported again
    await asyncio.sleep(3 * BEAT_S)
    time.sleep(2 * (STALL_S + BEAT_S))  # the next stall within ten seconds is counted only
    await asyncio.sleep(3 * BEAT_S)
    lag = watchdog.lag()
    watchdog.close()
    assert lag.stalls >= 2
    assert lag.max_us >= STALL_S * 1e6
    stacks = [line for line in caplog.messages if "thread=MainThread" in line]
    assert len(stacks) == 1
    assert "stand_until_it_is_logged aio/test_loop.py" in stacks[0]


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
