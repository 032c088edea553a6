"""A loop that stands: it is measured, its stacks are written down once, and nobody is fed meanwhile."""

import asyncio
import logging
import threading
import time

import pytest

from nodeward.aio.watchdog import BEAT_S, STALL_S, Watchdog

PATIENCE_S = 10.0


def stand_until(gate: threading.Event) -> None:
    """What the log is to name."""
    assert gate.wait(PATIENCE_S)


async def until(gate: threading.Event) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not gate.is_set():
            await asyncio.sleep(BEAT_S)


class Reported(logging.Handler):
    """The log, with an event for each dump."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.dumped = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if "thread=MainThread" in self.lines[-1]:
            self.dumped.set()


@pytest.fixture
def reported() -> Reported:
    handler = Reported()
    logging.getLogger("nodeward.aio.watchdog").addHandler(handler)
    return handler


def test_the_stack_of_a_loop_that_stands_is_written_down_once(reported: Reported) -> None:
    async def story() -> None:
        watchdog = Watchdog()
        watchdog.start()
        stand_until(reported.dumped)  # ends only when the thread has seen it
        time.sleep(4 * BEAT_S)  # it stands on, and is not reported again
        fresh = threading.Event()
        asyncio.get_running_loop().call_later(BEAT_S * 2, fresh.set)
        await until(fresh)
        reported.dumped.clear()
        time.sleep(2 * (STALL_S + BEAT_S))  # the next stall within ten seconds is counted only
        await asyncio.sleep(BEAT_S * 2)
        lag = watchdog.lag()
        assert lag.stalls == 2
        assert lag.max_us >= STALL_S * 1e6
        watchdog.close()

    asyncio.run(story())
    stacks = [line for line in reported.lines if "thread=MainThread" in line]
    assert len(stacks) == 1
    assert "stand_until aio/test_watchdog.py" in stacks[0]


def test_a_manager_is_fed_only_while_the_loop_turns() -> None:
    fed = threading.Semaphore(0)

    async def story() -> None:
        watchdog = Watchdog(fed.release, BEAT_S)
        watchdog.start()
        async with asyncio.timeout(PATIENCE_S):
            while not fed.acquire(blocking=False):
                await asyncio.sleep(BEAT_S)
        time.sleep(BEAT_S * 3)  # a feed that was due when the loop stopped has been given
        while fed.acquire(blocking=False):
            pass
        time.sleep(BEAT_S * 6)
        assert not fed.acquire(blocking=False)
        async with asyncio.timeout(PATIENCE_S):
            while not fed.acquire(blocking=False):
                await asyncio.sleep(BEAT_S)
        watchdog.close()

    asyncio.run(story())


def test_a_loop_that_turns_has_little_lag_and_no_stall() -> None:
    async def story() -> None:
        watchdog = Watchdog()
        assert watchdog.lag().max_us == 0
        watchdog.start()
        await asyncio.sleep(BEAT_S * 3)
        lag = watchdog.lag()
        assert lag.p99_us <= lag.max_us
        watchdog.close()

    asyncio.run(story())
