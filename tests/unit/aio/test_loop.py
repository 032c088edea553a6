"""The loop of the node daemon and the relay: what uvloop does otherwise than asyncio does not show."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from nodeward.aio.executor import DaemonExecutor
from nodeward.aio.loop import new_loop

PATIENCE_S = 30.0
PHASES = 40
"""How often a timer is begun, each time at another part of a millisecond."""


def on_the_loop(story: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await story()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(within())


@pytest.mark.parametrize("delay_s", [0.0001, 0.0005, 0.001, 0.0025, 0.0104])
def test_no_timer_comes_too_early(delay_s: float) -> None:
    early: list[float] = []

    async def story() -> None:
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

    on_the_loop(story)
    assert max(early) <= 0.0


def test_a_name_is_asked_for_on_a_thread_of_ours_and_an_address_on_none() -> None:
    async def story() -> None:
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

    on_the_loop(story)


ASKS = """
import asyncio, sys
from nodeward.aio.loop import new_loop

async def main():
    loop = asyncio.get_running_loop()
    asking = asyncio.ensure_future(loop.getaddrinfo("nobody", 1))
    await loop.run_in_executor(None, sys.stdin.readline)
    assert not asking.done()

with asyncio.Runner(loop_factory=new_loop) as runner:
    runner.run(main())
print("ended")
"""


def test_a_process_ends_though_a_resolver_hangs(tmp_path: Path) -> None:
    """Given a table of aliases that glibc reads for each name, and that never ends, when a name was asked for, then the
    process ends all the same."""
    aliases = tmp_path / "aliases"
    os.mkfifo(aliases)
    with subprocess.Popen(
        [sys.executable, "-c", ASKS],
        env=os.environ | {"HOSTALIASES": str(aliases)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        held = os.open(aliases, os.O_WRONLY)  # waits until the resolver is there
        try:
            said, _ = process.communicate("end\n", timeout=PATIENCE_S)
        finally:
            process.kill()
            os.close(held)
    assert said == "ended\n"


def test_a_path_that_is_longer_than_a_sockets_may_be_is_refused_and_not_cut() -> None:
    """For a socket may be at what is left of it."""

    async def story() -> None:
        with pytest.raises(OSError, match="too long"):
            await asyncio.open_unix_connection("/" + "x" * 200)

    on_the_loop(story)


def test_an_abstract_socket_is_connected_to() -> None:
    async def story() -> None:
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

    on_the_loop(story)
