"""Lanes: jobs in order, a stuck one is reported, and the lane goes on. Threads meet at events, nothing sleeps."""

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial

from nodeward.aio.lanes import GivenUpError, ThreadLane
from tests.patience import scaled

PATIENCE_S = scaled(6.0)


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
        """What a job carries, such as data to write."""

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


async def test_stuck_job_is_reported_given_up_and_the_lane_goes_on() -> None:
    loop, gate, reported = asyncio.get_running_loop(), threading.Event(), list[str]()
    lane = ThreadLane("t", loop, reported.append, deadline_s=0.02)
    given_up, after = loop.create_future(), loop.create_future()
    landed: list[object] = []

    def give_up(result: object) -> None:
        landed.append(result)
        into(given_up)(result)

    lane.submit("hangs", gate.wait, give_up)
    lane.submit("next", lambda: "next", into(after))
    assert isinstance(await given_up, GivenUpError)
    assert await after == "next"
    assert reported == ["hangs"]
    gate.set()
    again = loop.create_future()
    lane.submit("again", lambda: "again", into(again))
    await again
    assert len(landed) == 1
    assert lane.close(PATIENCE_S)


async def test_a_thread_that_was_given_up_swallows_no_wake_up() -> None:
    """The old thread comes back, and must not take the notice of a job and leave the job."""
    loop, gate = asyncio.get_running_loop(), threading.Event()
    lane = ThreadLane("t", loop, lambda _: None, deadline_s=0.02)
    given_up = loop.create_future()
    old = [thread for thread in threading.enumerate() if thread.name == "nodeward-t"][-1]
    lane.submit("hangs", gate.wait, into(given_up))
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
