"""The default executor: results come back, nothing grows without bound, and a call that hangs keeps nobody alive."""

import asyncio
import subprocess
import sys
import threading

import pytest

from nodeward.aio.executor import MOST_THREADS, MOST_WAITING, DaemonExecutor

PATIENCE_S = 30.0


def threads() -> int:
    return sum(thread.name.startswith("nodeward-executor") for thread in threading.enumerate())


def test_the_loop_gets_results_and_errors_of_many_calls() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(DaemonExecutor())
        async with asyncio.timeout(PATIENCE_S):
            assert await asyncio.gather(*(loop.run_in_executor(None, int, str(n)) for n in range(100))) == [*range(100)]
            with pytest.raises(ValueError, match="invalid literal"):
                await loop.run_in_executor(None, int, "no number")
        assert 0 < threads() <= MOST_THREADS

    asyncio.run(story())


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


HANGS = """
import asyncio, threading
from nodeward.aio.executor import DaemonExecutor

async def main():
    loop = asyncio.get_running_loop()
    loop.set_default_executor(DaemonExecutor())
    begun = threading.Event()
    def hang():
        begun.set()
        threading.Event().wait()
    asyncio.ensure_future(loop.run_in_executor(None, hang))
    while not begun.is_set():
        await asyncio.sleep(0.01)

asyncio.run(main())
print("ended")
"""


def test_a_process_ends_though_a_call_hangs() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=PATIENCE_S, check=True)

    assert done.stdout == "ended\n"
