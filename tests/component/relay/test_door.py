"""What a relay makes of a daemon that is away, hangs, ends, is another version or none at all, and the daemon of what
is no relay: each feature's `on_error`, and nobody waits longer than he must.

Kubelet and runtime are grpcio's; the daemon is the real one, or a socket in its place that says what a test wants.
"""

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import pytest

from nodeward.features.settings import Settings
from nodeward.host.clock import SystemClock
from nodeward.neighbours.cri import door_frames
from nodeward.neighbours.cri.asks import Asks
from nodeward.neighbours.cri.chain import Chain
from nodeward.neighbours.cri.door import RelayDoor
from nodeward.neighbours.cri.door_frames import Asked, Frame, Hello, Passed, Said, Wanted, Welcome, encode
from nodeward.programs.relay.away import Rules
from tests.component.relay import rig
from tests.component.relay.test_gate import of_kata
from tests.component.relay.test_limits import call, create, got, kernel, runtime

REFUSES = "limits: {on_error: refuse}\n"
HOLD_S = 5.0


@contextmanager
def relayed(folder: Path, more: str = "", threads: int = 16) -> Iterator[tuple[Path, rig.Runtime]]:
    """A relay that wants limits decided, without a daemon. `more` of the settings that both share."""
    flags = kernel(folder)
    with (folder / "nodeward.yaml").open("a") as settings:
        settings.write(more)
    with rig.relayed(folder, *flags, behave=runtime, threads=threads) as (listen, made, _):
        yield listen, made


def creates(listen: Path, request: bytes = create()) -> str:
    """What became of a create: empty where it went on, else the refusal."""
    with rig.client_of(listen) as channel:
        try:
            call(channel, "CreateContainer", request)
        except grpc.RpcError as error:
            return str(error.details())
        return ""


def limited(made: rig.Runtime) -> bool:
    return got(made, "CreateContainer") != create()


# ---- the daemon is away


def test_a_daemon_that_is_dead_at_boot_costs_nothing_and_decides_once_it_is_there(tmp_path: Path) -> None:
    with relayed(tmp_path) as (listen, made):
        began = time.monotonic()
        assert creates(listen) == ""
        assert time.monotonic() - began < HOLD_S, "nobody was waited for"
        assert not limited(made)
        with rig.node_process(tmp_path):
            rig.decided_by(listen)
            assert creates(listen) == ""
            assert limited(made)
            assert "annotation epc-limit.nri.io/container.app" in known(listen), "the first one is known too"


def test_a_daemon_that_is_killed_in_the_middle_of_a_create_costs_that_create_its_verdict(tmp_path: Path) -> None:
    with relayed(tmp_path) as (listen, made), rig.node_process(tmp_path) as daemon, ThreadPoolExecutor(1) as threads:
        rig.decided_by(listen)
        os.kill(daemon.pid, signal.SIGSTOP)
        waiting = threads.submit(creates, listen)
        rig.wait_for(lambda: rig.status(listen).queues["held"] > 0, "a held create")
        daemon.kill()
        assert waiting.result(rig.WAIT_S) == ""
        assert not limited(made)
    assert "daemon=away why='the node daemon at " in rig.log_of(listen)


def test_a_daemon_that_hangs_costs_a_create_its_hold_and_its_container_is_known_once_it_goes_on(tmp_path: Path) -> None:
    with relayed(tmp_path) as (listen, made), rig.node_process(tmp_path) as daemon:
        rig.decided_by(listen)
        os.kill(daemon.pid, signal.SIGSTOP)
        began = time.monotonic()
        assert creates(listen) == ""
        assert time.monotonic() - began >= HOLD_S - 0.5
        assert not limited(made)
        os.kill(daemon.pid, signal.SIGCONT)
        rig.wait_for(lambda: "annotation epc-limit.nri.io/container.app" in known(listen), "the container")
        assert creates(listen) == ""
        assert limited(made)


def known(listen: Path) -> str:
    return rig.people(listen, "explain", "default/pod/app").stdout


def test_a_thousand_held_calls_are_all_answered_while_the_daemon_restarts(tmp_path: Path) -> None:
    """Whether they were decided or not, none is lost and none is told twice."""
    method = "/runtime.v1.RuntimeService/CreateContainer"
    with relayed(tmp_path, threads=600) as (listen, made), rig.client_of(listen) as channel:

        def begins(kind: str) -> list[grpc.Future]:
            ask = channel.unary_unary(method)
            return [ask.future(create(uid=f"{kind}{number}"), timeout=rig.WAIT_S) for number in range(500)]

        with rig.node_process(tmp_path):
            rig.decided_by(listen)
            calls = begins("u")
            rig.wait_for(lambda: any(one.done() for one in calls), "the first answer")
        with rig.node_process(tmp_path):
            calls += begins("v")
            assert len([one.result(2 * rig.WAIT_S) for one in calls]) == 1000
            rig.decided_by(listen)
            assert creates(listen) == ""
            assert limited(made)
    assert [name for name, _ in made.got].count("CreateContainer") == 1001


# ---- something else answers


@contextmanager
def instead(folder: Path, says: Callable[[Frame, Callable[[bytes], None]], None]) -> Iterator[None]:
    """A socket in the daemon's place: `says` is given each frame and the way to answer."""

    def hear(peer: socket.socket) -> None:
        reader = door_frames.FrameReader()
        while data := peer.recv(1 << 16):
            for frame in reader.feed(data):
                says(frame, peer.sendall)

    with rig.in_its_place(folder / "run" / door_frames.SOCKET, hear):
        yield


def greets(frame: Frame, answer: Callable[[bytes], None]) -> bool:
    if isinstance(frame, Hello):
        answer(encode(Welcome(door_frames.VERSION, 12)))
    return isinstance(frame, Asked)


def hangs(frame: Frame, answer: Callable[[bytes], None]) -> None:
    greets(frame, answer)


STATUS = "/runtime.v1.RuntimeService/Status"
LARGE = (100 << 20).to_bytes(4, "big")
NOT_BELIEVED: dict[str, tuple[Callable[[Frame, Callable[[bytes], None]], None], str]] = {
    "another version": (lambda _, answer: answer(encode(Welcome(9, 12))), "speaks version 9 of the relay's questions"),
    "no frames of ours": (lambda _, answer: answer(b"\0\0\0\4GET "), "is none of ours"),
    "a hundred megabytes": (lambda _, answer: answer(LARGE + bytes(1 << 20)), "a frame of 104857600 bytes"),
    "a refusal, and then calls of its own": (
        lambda _, answer: answer(encode(Welcome(1, 12, "not for you")) + encode(Wanted(1, STATUS, b"", 1000))),
        "not for you",
    ),
    "no greeting": (lambda _, answer: answer(encode(Said(1, 0))), "does not begin with one Welcome"),
}


@pytest.mark.parametrize("what", NOT_BELIEVED)
def test_who_is_no_daemon_of_ours_is_not_believed_and_calls_go_by_on_error(what: str, tmp_path: Path) -> None:
    says, why = NOT_BELIEVED[what]
    with instead(tmp_path, says), relayed(tmp_path, REFUSES) as (listen, made):
        assert why in creates(listen)
        assert not made.got
        assert why in rig.people(listen, "status").stdout


def test_a_pod_without_a_gate_starts_at_the_holds_end_where_the_daemon_hangs(tmp_path: Path) -> None:
    """Whether it has one the runtime tells, which is asked in time."""
    gate = "gate: {mode: enforce, at: container, handlers: {kata: [verdict]}}\n"
    with instead(tmp_path, hangs), relayed(tmp_path, gate) as (listen, made):
        made.behave = lambda name, request, context: (
            of_kata(name, request, context).replace(b"kata", b"runc")
            if name == "PodSandboxStatus"
            else runtime(name, request, context)
        )
        assert creates(listen) == ""
        assert got(made, "CreateContainer") == create()


async def test_calls_of_the_daemons_own_wait_for_each_other_where_they_are_many(tmp_path: Path) -> None:
    behind, door_path = tmp_path / "runtime.sock", tmp_path / door_frames.SOCKET
    door, served = RelayDoor(Chain((), SystemClock().now_ns), _Hears(), SystemClock()), asyncio.Event()
    asks = Asks(str(door_path), Hello(1, 7, "", str(behind)), tuple, (), Rules(Settings), SystemClock())
    with rig.runtime_at(behind):
        running = [asyncio.ensure_future(door.run(str(door_path), served.set))]
        await served.wait()
        running.append(asyncio.ensure_future(asks.keep()))
        await asks.until_there(rig.WAIT_S)
        requests = [b"%d" % number for number in range(300)]
        assert await asyncio.gather(*(door.call(STATUS, one, rig.WAIT_S) for one in requests)) == requests
        asks.close()
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class _Hears:
    def begins(self, hello: Hello) -> str:
        return ""

    def passed(self, number: int, passed: Passed) -> None:
        raise AssertionError

    def ends(self, why: str) -> None:
        pass


def test_an_answer_to_another_question_is_none_and_one_that_comes_late_changes_nothing(tmp_path: Path) -> None:
    late = list[Callable[[], None]]()

    def says(frame: Frame, answer: Callable[[bytes], None]) -> None:
        if greets(frame, answer):
            assert isinstance(frame, Asked)
            answer(encode(Said(frame.number + 7, 8, "another's")))
            late.append(lambda: answer(encode(Said(frame.number, 8, "late"))))

    with instead(tmp_path, says), relayed(tmp_path) as (listen, made):
        assert creates(listen) == "", "at the hold's end"
        for one in late:
            one()
        rig.wait_for(lambda: rig.status(listen).daemon.strays == 2, "the late answer")
        assert not limited(made)


def test_the_socket_of_another_user_is_not_asked(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("needs root, to serve as somebody else")
    path = tmp_path / "run" / door_frames.SOCKET
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        os.seteuid(65534)
        try:
            os.seteuid(0)
            server.bind(str(path))
            os.chmod(path, 0o777)
            os.seteuid(65534)
            server.listen()
        finally:
            os.seteuid(0)
        with relayed(tmp_path, REFUSES) as (listen, _):
            assert "user 65534 serves the socket, and not root" in creates(listen)


# ---- the relay is none


def test_who_is_no_relay_of_ours_costs_his_connection_only(tmp_path: Path) -> None:
    with relayed(tmp_path) as (listen, made), rig.node_process(tmp_path):
        rig.decided_by(listen)
        door = tmp_path / "run" / door_frames.SOCKET
        assert door.stat().st_mode & 0o777 == 0o600
        for data, said in (
            (LARGE, b""),
            (b"GET / HTTP/1.1\r\n\r\n", b""),
            (encode(Passed(1, "/x", b"", b"", True, True)), b""),
            (encode(Hello(9, 1, "/l", "/r")), encode(Welcome(1, 0))[4:13]),
        ):
            with rig.socket_to(door) as peer:
                peer.sendall(data)
                with suppress(ConnectionResetError):
                    assert peer.makefile("rb").read()[4:13] == said
        assert creates(listen) == ""
        assert limited(made)
    assert 'relay=refused process=1 why="it speaks version 9' in (tmp_path / "node.log").read_text()
