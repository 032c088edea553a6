"""Clients of `nodeward relay` that are too many, greedy or speak garbage, runtimes that break off: nothing grows.
And held calls: what a decider says, when it says it late, and who is gone by then."""

import asyncio
import random
import resource
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import grpc
import pytest

from nodeward.neighbours.cri import sockets
from nodeward.neighbours.cri.calls import Call, Pass, Verdict
from nodeward.neighbours.cri.session import RelayedConnection
from nodeward.neighbours.formats import grpc_messages
from nodeward.programs.relay.plan import RelayPlan
from tests.component.relay.rig import (
    SERVICE,
    WAIT_S,
    call,
    client_of,
    in_its_place,
    log_of,
    relay_here,
    relay_process,
    relayed,
    runtime_at,
    socket_to,
    status,
    status_socket,
    wait_for,
)
from tests.component.relay.test_limits import ANNOTATIONS, create, kernel, node
from tests.unit.neighbours.cri.strict import DATA, END_HEADERS, HEADERS, frame


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Iterator[Path]:
    with relayed(tmp_path) as (listen, _, _):
        yield listen


def resident_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0)


def raw_headers(method: str, service: str = SERVICE) -> bytes:
    path = f"{service}/{method}".encode()
    block = b"\x83\x86\x04" + bytes((len(path),)) + path
    return block + b"\x0f\x10\x10application/grpc" + b"\x00\x02te\x08trailers" + b"\x01\x01a"


def test_garbage_half_open_and_silent_clients_harm_nobody(path: Path) -> None:
    source = random.Random(2)
    held = []
    for number in range(60):
        client = socket_to(path)
        if number % 3 == 0:
            client.sendall(source.randbytes(source.randrange(1, 5_000)))
        elif number % 3 == 1:
            client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0) + frame(1, 4, 1, source.randbytes(30)))
        held.append(client)
    with client_of(path) as channel:
        assert call(channel, "Version", b"v") == b"v"
    for client in held:
        client.close()
    with client_of(path) as channel:
        assert call(channel, "Version", b"v") == b"v"


def unwritten_bytes(pid: int) -> int:
    """What the process has read more than it has written, ever, sockets and files: what it passes on and still has
    among it."""
    counts = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(counts["rchar"]) - int(counts["wchar"])


def test_a_client_that_stops_reading_grows_nothing(tmp_path: Path) -> None:
    """It asks for a flood, grants every window, and reads none of it: what the relay keeps of it is what it reads at
    once, and what a socket takes at once."""
    body = bytes(8 << 20)
    with (
        relayed(tmp_path, behave=lambda name, request, context: request or body) as (listen, server, process),
        client_of(listen) as channel,
    ):
        call(channel, "Version")
        resident, unwritten = resident_kib(process.pid), unwritten_bytes(process.pid)
        with socket_to(listen) as greedy:
            windows = frame(4, 0, 0, b"\0\4\x7f\xff\xff\xff") + frame(8, 0, 0, b"\x7f\0\0\0")
            asked = b"".join(frame(1, 4, n, raw_headers("Version")) + frame(0, 1, n, bytes(5)) for n in range(1, 41, 2))
            greedy.sendall(HELLO + windows + asked)
            wait_for(lambda: len(server.got) > 20, "asked calls")
            for _ in range(200):
                call(channel, "Version", b"v")
            grown = resident_kib(process.pid) - resident, unwritten_bytes(process.pid) - unwritten
            print(f"resident +{grown[0]} KiB, kept {grown[1]} bytes")
            assert 0 < grown[1] < 512 << 10
            assert grown[0] < 2 << 10


@contextmanager
def silent_runtime(path: Path, greeting: bytes = frame(4, 0, 0), reads: bool = True) -> Iterator[None]:
    """Greets whoever comes, and reads what he says, or nothing of it."""
    over = threading.Event()

    def hear(link: socket.socket) -> None:
        link.sendall(greeting)
        while link.recv(65_536) if reads else not over.wait(WAIT_S):
            pass

    with in_its_place(path, hear):
        yield
        over.set()


def taken(greedy: socket.socket, more: Callable[[], bytes], listen: Path) -> int:
    """How many bytes of `more` and more the relay at `listen` takes, until it takes none while it looks round often."""
    greedy.setblocking(False)
    pid, data, sent, stuck = status(listen).pid, b"", 0, 0
    while stuck < 20 and sent < 64 << 20:
        data = data or more()
        try:
            took = greedy.send(data)
            data, sent, stuck = data[took:], sent + took, 0
        except BlockingIOError:
            stuck += 1
            assert status(listen).pid == pid, "it has looked round once more"
    return sent


def test_a_client_that_reads_no_refusals_is_not_read_from_either(tmp_path: Path) -> None:
    listen, runtime = tmp_path / "cri.sock", tmp_path / "runtime.sock"
    images = ("--set", f"relay.image={tmp_path}/i", "--set", f"relay.image_listen={tmp_path}/images.sock")
    block, streams = raw_headers("PullImage", "/runtime.v1.ImageService"), count(1, 2)

    def asked(stream: int) -> bytes:
        return frame(1, 4, stream, block) + frame(0, 1, stream, bytes(5))

    with silent_runtime(runtime), relay_process(listen, runtime, *images) as process:
        wait_for(status_socket(listen).is_socket, "relay.sock")
        with connected(listen) as greedy:
            resident = resident_kib(process.pid)
            sent = taken(greedy, lambda: b"".join(asked(next(streams)) for _ in range(100)), listen)
            grown = resident_kib(process.pid) - resident
            print(f"{sent} bytes were taken, resident +{grown} KiB")
            assert sent < 2 << 20
            assert grown < 16 << 10


def endless(method: str) -> Iterator[bytes]:
    yield frame(1, 4, 1, raw_headers(method))
    while True:
        yield frame(0, 0, 1, bytes(1 << 14))


def creates() -> Iterator[bytes]:
    body = grpc_messages.encode_message(create({**ANNOTATIONS, "more": "x" * 12_000}))
    for stream in count(1, 2):
        yield frame(1, 4, stream, raw_headers("CreateContainer")) + frame(0, 1, stream, body)


NOT_READ: dict[str, tuple[bool, Callable[[], Iterator[bytes]], int]] = {
    "passed": (False, lambda: endless("Version"), 0),
    "passed-beside-limits": (True, lambda: endless("Version"), 0),
    "held": (True, creates, 0),
    "held-without-end": (True, lambda: endless("CreateContainer"), 16 << 20),
}
"""Whether the relay decides limits, what the client sends, and how much of it the relay may hold for its verdict."""


@pytest.mark.parametrize(("limited", "sent", "held"), NOT_READ.values(), ids=NOT_READ)
def test_a_runtime_that_stops_reading_grows_nothing(
    tmp_path: Path, limited: bool, sent: Callable[[], Iterator[bytes]], held: int
) -> None:
    """It grants every window and reads nothing, and the client sends as long as anybody takes it: what the relay keeps
    is what it reads at once, what a socket takes at once, and what may be held."""
    listen, runtime = tmp_path / "cri.sock", tmp_path / "runtime.sock"
    windows = frame(4, 0, 0, b"\0\4\x7f\xff\xff\xff") + frame(8, 0, 0, b"\x7f\xff\0\0")
    flags = kernel(tmp_path) if limited else ()
    with relay_process(listen, runtime, *flags) as process, silent_runtime(runtime, windows, reads=False):
        wait_for(status_socket(listen).is_socket, "relay.sock")
        with connected(listen) as greedy:
            assert greedy.recv(len(windows)) == windows
            greedy.sendall(frame(4, 1, 0))
            resident, unwritten = resident_kib(process.pid), unwritten_bytes(process.pid)
            took = taken(greedy, sent().__next__, listen)
            grown = resident_kib(process.pid) - resident, unwritten_bytes(process.pid) - unwritten
            print(f"{took} bytes were taken, resident +{grown[0]} KiB, kept {grown[1]} bytes")
            assert held < took < held + (2 << 20)
            assert 0 < grown[1] < held + (512 << 10)
            assert grown[0] < (held >> 10) + (4 << 10)


def pinged(client: socket.socket) -> bool:
    client.sendall(frame(6, 0, 0, b"12345678"))
    seen = b""
    while frame(6, 1, 0, b"12345678") not in seen:
        got = client.recv(4096)
        if not got:
            return False
        seen += got
    return True


def connected(path: Path) -> socket.socket:
    client = socket_to(path)
    with suppress(BrokenPipeError):
        client.sendall(HELLO)
    return client


def test_as_many_connections_as_there_may_be_are_served_and_one_more_when_one_has_gone(path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        clients = [stack.enter_context(connected(path)) for _ in range(sockets.MAX_CONNECTIONS)]
        assert all(map(pinged, clients))
        for _ in range(2):
            with connected(path) as one_more, suppress(ConnectionResetError, BrokenPipeError):
                assert one_more.recv(1) == b""
        assert all(map(pinged, clients[:10] + clients[-10:]))
        clients[500].close()
        wait_for(lambda: answered(stack.enter_context(connected(path))), "room for one more")
        with client_of(path) as channel, pytest.raises(grpc.RpcError) as caught:
            call(channel, "Version")
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert log_of(path).count("clients=too-many") == 2


def answered(client: socket.socket) -> bool:
    try:
        return pinged(client)
    except OSError:
        return False


HALF = frame(DATA, 0, 1, b"\0\0\1\0\0" + bytes(100))
"""Of a message of 64 KiB."""
BREAKS = {
    "in the middle of a message": HALF,
    "in the middle of a frame": HALF[:60],
    "in the middle of a header block": frame(HEADERS, 0, 1, b"\x88"),
    "by a reset in the middle of a message": HALF + frame(3, 0, 1, struct.pack(">I", 2)),
}
OK = frame(HEADERS, END_HEADERS, 1, b"\x88\x5f\x10application/grpc")


@contextmanager
def breaking(path: Path, told: bytes, abrupt: bool) -> Iterator[list[bytes]]:
    """A runtime that answers a call with these bytes, and goes; what it got."""
    seen: list[bytes] = []

    def hear(link: socket.socket) -> None:
        link.sendall(frame(4, 0, 0))
        got = b""
        while b"Version" not in got and (data := link.recv(65_536)):
            got += data
        seen.append(got)
        link.sendall(told)
        if not abrupt:
            link.settimeout(WAIT_S)
            link.recv(1)

    with in_its_place(path, hear):
        yield seen


def test_a_runtime_that_breaks_off_half_way_costs_that_call_and_no_other(tmp_path: Path) -> None:
    listen, behind = tmp_path / "cri.sock", tmp_path / "runtime.sock"
    with relay_process(listen, behind) as process:
        for how, rest in BREAKS.items():
            told = rest if how.endswith("block") else OK + rest
            with breaking(behind, told, "by a reset" not in how) as seen:
                with client_of(listen) as channel, pytest.raises(grpc.RpcError) as caught:
                    call(channel, "Version", b"Version")
                assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL), how
                assert [b"Version" in one for one in seen] == [True], how
                assert process.poll() is None, how
            with runtime_at(behind), client_of(listen) as channel:  # a whole one comes
                assert call(channel, "Version", b"v") == b"v", how
            behind.unlink(missing_ok=True)  # grpcio closes the socket some time after the server has stopped
    assert "lost_sight=0" in log_of(listen)


UNKNOWN = ("runtime.v7.RuntimeService/Version", "runtime.v1.TeaService/Brew", "x/y", "Unknown")


def test_versions_services_and_methods_that_nobody_knows_are_the_runtimes_to_judge(tmp_path: Path) -> None:
    with node(tmp_path) as (listen, made), client_of(listen) as channel, client_of(tmp_path / "runtime.sock") as direct:
        for path in UNKNOWN:
            told = []
            for way in (channel, direct):
                try:
                    told.append(repr(way.unary_unary(f"/{path}")(path.encode(), timeout=WAIT_S)))
                except grpc.RpcError as error:
                    told.append(f"{error.code()} {error.details()}" if isinstance(error, grpc.Call) else "")
            assert told[0] == told[1], path
            reached = [request for _, request in made.got].count(path.encode())
            assert reached == (0 if path == "Unknown" else 2), path
    assert "lost_sight=0" in log_of(listen)


@dataclass
class Decider:
    verdict: Callable[[Call, bytes], Verdict | Awaitable[Verdict]]

    def undecided(self, call: Call, message: bytes | None, why: str, ending: bool) -> Verdict:
        return Pass()

    def holds(self, path: str) -> bool:
        return "/Create" in path

    def decide(self, call: Call, message: bytes, within_ns: int) -> Verdict | Awaitable[Verdict]:
        return self.verdict(call, message)


@pytest.mark.parametrize("who", ["client", "runtime"])
def test_a_decision_that_nobody_waits_for_is_cancelled(tmp_path: Path, who: str) -> None:
    asked, cancelled = threading.Event(), threading.Event()

    async def later() -> Verdict:
        asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return Pass()

    listen, runtime = tmp_path / "cri.sock", tmp_path / "runtime.sock"
    plan = RelayPlan(str(listen), str(runtime), decider=Decider(lambda asked, message: later()))
    with relay_here(plan), client_of(listen) as channel:
        with runtime_at(runtime) as server:
            future = channel.unary_unary(f"{SERVICE}/CreateContainer").future(b"", timeout=WAIT_S)
            assert asked.wait(WAIT_S)
            if who == "client":
                future.cancel()
                assert cancelled.wait(WAIT_S)
        assert cancelled.wait(WAIT_S)
        if who == "runtime":
            assert isinstance(future.exception(WAIT_S), grpc.RpcError)
    assert server.got == []


@pytest.mark.parametrize("decides", [True, False], ids=["decides", "only-passes"])
def test_a_fault_of_the_relays_own_ends_one_link_and_no_other(
    decides: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sees = "from_client" if decides else "client_sent"
    real = getattr(RelayedConnection, sees)

    def broken(session: RelayedConnection, data: bytes, *times: int) -> None:
        if b"poison" in data:
            raise ZeroDivisionError
        real(session, data, *times)

    monkeypatch.setattr(RelayedConnection, sees, broken)
    listen, runtime = tmp_path / "cri.sock", tmp_path / "runtime.sock"
    decider = Decider(lambda asked, message: Pass()) if decides else None
    plan = RelayPlan(str(listen), str(runtime), decider=decider)
    with runtime_at(runtime), relay_here(plan), client_of(listen) as channel, client_of(listen) as other:
        assert call(other, "Version", b"v") == b"v"
        with pytest.raises(grpc.RpcError) as caught:
            call(channel, "Version", b"poison", 5.0)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert call(other, "Version", b"v") == b"v"


def test_the_service_manager_is_told_of_the_relays_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(WAIT_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with relay_here(RelayPlan(str(tmp_path / "cri.sock"), str(tmp_path / "runtime.sock"))):
            assert manager.recv(100) == b"READY=1"
        wait_for(lambda: not (tmp_path / "cri.sock").exists(), "end")
        assert manager.recv(100) == b"STOPPING=1"
