"""Held calls between grpcio's client and server: what a decider says, when it says it late, and who is gone by then."""

import asyncio
import random
import socket
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from nodeward.app.relay.plan import RelayPlan
from nodeward.model.relayed import Call, Pass, Refuse, Replace, Verdict
from nodeward.transport.relay_session import Session
from tests.component.relay.rig import SERVICE, WAIT_S, call, client_of, relay_here, runtime_at, wait_for

NO = Refuse(8, "pod default/web, container app: 4096 bytes of EPC asked, 0 left")


@dataclass
class Decider:
    """Decides `Create...` by `verdict`."""

    verdict: Callable[[Call, bytes], Verdict | Awaitable[Verdict]]

    def undecided(self, call: Call, message: bytes | None, why: str, ending: bool) -> Verdict:
        return Pass()

    def holds(self, path: str) -> bool:
        return "/Create" in path

    def decide(self, call: Call, message: bytes, within_ns: int) -> Verdict | Awaitable[Verdict]:
        return self.verdict(call, message)


def test_calls_of_all_sizes_are_passed_replaced_and_refused_among_others(tmp_path: Path) -> None:
    def verdict(asked: Call, message: bytes) -> Verdict | Awaitable[Verdict]:
        match asked.path.rpartition("/")[2]:
            case "CreatePassed":
                return Pass()
            case "CreateRefused":
                return NO
            case "CreateLate":
                return late(message)
            case _:
                return Replace(message + b"+" * 3000)

    async def late(message: bytes) -> Verdict:
        await asyncio.sleep(0)
        return Replace(message[: len(message) // 2])

    def one(channel: grpc.Channel, number: int) -> bool:
        source = random.Random(number)
        body = source.randbytes(source.choice([0, 1, 300, 16_384, 70_000, 400_000]))
        match number % 5:
            case 0:
                return call(channel, "CreatePassed", body) == body
            case 1:
                return call(channel, "CreateReplaced", body) == body + b"+" * 3000
            case 2:
                return call(channel, "CreateLate", body) == body[: len(body) // 2]
            case 3:
                return call(channel, "Version", body) == body
        with pytest.raises(grpc.RpcError) as caught:
            call(channel, "CreateRefused", body)
        return (caught.value.code(), caught.value.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, NO.text)

    listen, behind = tmp_path / "cri.sock", tmp_path / "runtime.sock"
    plan = RelayPlan(str(listen), str(behind), decider=Decider(verdict))
    with (
        runtime_at(behind) as runtime,
        relay_here(plan),
        client_of(listen) as channel,
        ThreadPoolExecutor(16) as threads,
    ):
        assert all(threads.map(lambda number: one(channel, number), range(500)))
    assert len(runtime.got) == 400, "the runtime never gets a refused message"


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
    real = getattr(Session, sees)

    def broken(session: Session, data: bytes, *times: int) -> None:
        if b"poison" in data:
            raise ZeroDivisionError
        real(session, data, *times)

    monkeypatch.setattr(Session, sees, broken)
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
