"""The small parts beside the loop: lanes, supervision, bounded work, pace, state files, the heap, threads."""

import asyncio
import errno
import gc
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from nodeward.host import heap, pace, sd_notify
from nodeward.host.backoff import Backoff
from nodeward.host.bounded import BoundedCalls
from nodeward.host.clock import SystemClock
from nodeward.host.executor import MOST_THREADS, MOST_WAITING, DaemonExecutor
from nodeward.host.hostfs import OsFiles
from nodeward.host.lanes import ThreadLane
from nodeward.host.state_file import StateFile
from nodeward.host.supervise import WorkEndedError, forever
from nodeward.host.watchdog import BEAT_S, STALL_S, Watchdog
from tests.patience import scaled

PATIENCE_S = scaled(30.0)


def into(future: "asyncio.Future[object]") -> Callable[[object], None]:
    def done(result: object) -> None:
        if not future.done():
            future.set_result(result)

    return done


async def test_a_lane_is_as_old_as_its_oldest_job_that_has_not_come_back() -> None:
    loop = asyncio.get_running_loop()
    lane = ThreadLane("t", loop, lambda _: None)
    go, last = threading.Event(), loop.create_future()
    assert lane.age_ms is None
    began_s = time.monotonic()
    lane.submit("first", lambda: go.wait(PATIENCE_S), lambda _: None)
    while (lane.age_ms or 0) < 30:
        await asyncio.sleep(0)
    lane.submit("second", lambda: None, into(last))
    assert 30 <= (lane.age_ms or 0) <= (time.monotonic() - began_s) * 1000 + 1
    go.set()
    await last
    assert lane.age_ms is None
    lane.close(PATIENCE_S)


async def test_results_and_errors_come_back_on_the_loop_in_order() -> None:
    loop = asyncio.get_running_loop()
    lane = ThreadLane("t", loop, lambda _: None)
    home, got, last = threading.get_ident(), list[object](), loop.create_future()

    def fail() -> None:
        raise OSError(5, "no")

    lane.submit("a", threading.get_ident, got.append)
    lane.submit("b", fail, got.append)
    lane.submit("c", lambda: "c", into(last))
    assert await last == "c"
    assert got[0] != home
    assert isinstance(got[1], OSError)
    assert lane.close(PATIENCE_S)
    assert not lane.submit("late", lambda: 1, got.append)


async def test_a_job_that_is_over_is_let_go_before_its_deadline() -> None:
    class Load:
        def work(self) -> None:
            pass

    loop = asyncio.get_running_loop()
    lane, last = ThreadLane("t", loop, lambda _: None, deadline_s=1000.0), loop.create_future()
    load = Load()
    trace = weakref.ref(load)
    lane.submit("first", load.work, lambda _: None)
    del load
    lane.submit("last", lambda: None, into(last))
    async with asyncio.timeout(PATIENCE_S):
        await last
    gc.collect()
    assert trace() is None, "a lane that works fast would keep all it did for as long as the deadline"
    assert lane.close(PATIENCE_S)


async def test_a_thread_that_was_given_up_swallows_no_wake_up() -> None:
    """The old thread comes back, and must not take the notice of a job and leave the job."""
    loop, gate = asyncio.get_running_loop(), threading.Event()
    lane = ThreadLane("t", loop, lambda _: None, deadline_s=0.02)
    given_up = loop.create_future()
    lane.submit("hangs", gate.wait, into(given_up))
    old = [thread for thread in threading.enumerate() if thread.name == "nodeward-t"][-1]
    await given_up
    gate.set()
    old.join(PATIENCE_S)
    assert not old.is_alive()
    for number in range(20):
        answer = loop.create_future()
        lane.submit("job", partial(int, number), into(answer))
        async with asyncio.timeout(1.0):
            assert await answer == number
    assert lane.close(PATIENCE_S)


async def test_full_lane_refuses() -> None:
    loop, gate, begun = asyncio.get_running_loop(), threading.Event(), threading.Event()
    lane = ThreadLane("t", loop, lambda _: None)

    def hold() -> None:
        begun.set()
        gate.wait()

    lane.submit("holds", hold, lambda _: None)
    assert begun.wait(PATIENCE_S)
    accepted = 0
    while lane.submit("fill", lambda: None, lambda _: None):
        accepted += 1
        assert accepted < 100_000
    assert lane.depth == accepted
    gate.set()
    assert lane.close(PATIENCE_S)


class NoWait(SystemClock):
    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


def test_a_component_that_fails_is_started_again_until_it_says_that_the_work_has_ended() -> None:
    """Where its only task fails, that task's own error is told."""
    failures: list[str] = []
    lives = iter([ValueError("broken"), None, OSError("a task's"), WorkEndedError("the runtime is gone")])

    async def fails(error: Exception) -> None:
        raise error

    async def component() -> None:
        error = next(lives)
        if isinstance(error, OSError):
            async with asyncio.TaskGroup() as group:
                group.create_task(fails(error))
        elif error:
            raise error

    def failed(name: str, error: BaseException) -> None:
        failures.append(f"{name}: {type(error).__name__} {error}")

    with pytest.raises(WorkEndedError, match="the runtime is gone"):
        asyncio.run(forever("nri", component, NoWait(), Backoff(1.0, 1.0, lambda: 0.0), failed))
    assert [failures[0], failures[1][:17], failures[2]] == [
        *("nri: ValueError broken", "nri: RuntimeError", "nri: OSError a task's")
    ]


def test_a_call_that_hangs_is_late_once_and_busy_until_it_has_come_back() -> None:
    go_on, done = threading.Event(), list[str]()

    def hang() -> None:
        assert go_on.wait(PATIENCE_S)
        done.append("late")

    calls = BoundedCalls("test", 0.05)
    with pytest.raises(OSError, match=r"not done within 0\.05 s: the disk hangs") as late:
        calls(hang)
    with pytest.raises(OSError, match="an earlier call has not come back") as busy:
        calls(lambda: done.append("never"))
    assert (late.value.errno, busy.value.errno) == (errno.ETIMEDOUT, errno.EBUSY)

    go_on.set()
    for thread in [one for one in threading.enumerate() if one.name == "test"]:
        thread.join(PATIENCE_S)
    BoundedCalls("test", PATIENCE_S)(lambda: done.append("other"))
    calls(lambda: done.append("again"))
    assert done == ["late", "other", "again"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), TimeoutError("its own"), KeyError("x")])
def test_what_a_call_raises_is_raised(error: Exception) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        BoundedCalls("test", PATIENCE_S)(fail)
    assert caught.value is error


@pytest.mark.parametrize(("items", "each", "pauses"), [(0, 2, 0), (2, 2, 0), (3, 2, 1), (7, 2, 3)])
def test_it_pauses_after_so_many(monkeypatch: pytest.MonkeyPatch, items: int, each: int, pauses: int) -> None:
    slept: list[float] = []
    monkeypatch.setattr(pace, "time", SimpleNamespace(sleep=slept.append))
    assert list(pace.paced(range(items), each)) == list(range(items))
    assert slept == [pace.PAUSE_S] * pauses


class SlowFiles(OsFiles):
    """Its first write hangs until `go`."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go = threading.Event(), threading.Event()

    def replace(self, path: str, data: bytes) -> None:
        if not self.begun.is_set():
            self.begun.set()
            assert self.go.wait(10)
        super().replace(path, data)


def test_a_write_that_comes_back_late_never_replaces_newer_content(tmp_path: Path) -> None:
    files, path = SlowFiles(), tmp_path / "state.json"
    file = StateFile(path.name, str, "state").writer(files, str(path.parent))
    late = threading.Thread(target=file.replace, args=("old",), daemon=True)
    late.start()
    assert files.begun.wait(10)

    with pytest.raises(OSError, match="an earlier write hangs"):
        file.replace("new")
    files.go.set()
    late.join(10)
    file.replace("new")

    assert path.read_bytes() == b'{"v":1,"holds":"new"}'


def test_a_library_without_the_setting_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        """Has no mallopt."""

    monkeypatch.setattr("ctypes.CDLL", lambda _: Library())
    assert heap.keep_freed_memory() is False


def threads() -> int:
    return sum(thread.name.startswith("nodeward-executor") for thread in threading.enumerate())


async def test_the_loop_gets_results_and_errors_of_many_calls() -> None:
    before = threads()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(DaemonExecutor())
    async with asyncio.timeout(PATIENCE_S):
        assert await asyncio.gather(*(loop.run_in_executor(None, int, str(n)) for n in range(100))) == [*range(100)]
        with pytest.raises(ValueError, match="invalid literal"):
            await loop.run_in_executor(None, int, "no number")
    assert 0 < threads() - before <= MOST_THREADS


def test_calls_that_hang_take_no_more_threads_and_leave_a_bounded_queue() -> None:
    executor, gate = DaemonExecutor(), threading.Event()
    before = threads()
    futures = [executor.submit(gate.wait, PATIENCE_S) for _ in range(MOST_THREADS)]
    while any(not future.running() for future in futures):
        assert futures[0].running() or not gate.is_set()
    futures += [executor.submit(gate.wait, PATIENCE_S) for _ in range(MOST_WAITING)]
    with pytest.raises(RuntimeError, match="wait already"):
        executor.submit(gate.wait)
    assert threads() - before <= MOST_THREADS
    assert futures[-1].cancel()

    gate.set()
    assert all(future.result(PATIENCE_S) for future in futures[:-1])
    executor.shutdown()
    with pytest.raises(RuntimeError, match="closed"):
        executor.submit(gate.wait)


LOOP_PATIENCE_S = scaled(6.0)

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
    in_numbers = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
    assert await loop.getnameinfo(("127.0.0.1", 80), in_numbers) == ("127.0.0.1", "80")
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
    end = time.monotonic() + LOOP_PATIENCE_S
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
    assert "stand_until_it_is_logged host/test_parts.py" in stacks[0]


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
