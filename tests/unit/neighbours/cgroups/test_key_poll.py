"""Who asks for the key counters gets a sample that began after the question, and each job is there once."""

import asyncio
import threading
from collections import Counter

import pytest

from nodeward.core.events import Event, KeysRead
from nodeward.core.workload import PodUid
from nodeward.host.lanes import GivenUpError, ThreadLane
from nodeward.neighbours.cgroups import keys
from nodeward.neighbours.cgroups.hierarchy import Tree
from nodeward.neighbours.cgroups.keys import LOOK_S, SWEEP_S, KeyPoll, KeyReader
from nodeward_sim.doubles.kernel import SimKernel
from tests.faults import FaultyFiles
from tests.lanes import InlineLane
from tests.told import tell
from tests.unit.features.build import ManualClock

ROOT = "/sys/fs/cgroup"
POD = PodUid("a")


class Bench:
    """A poll over a kernel with pods, a lane that waits to be drained, and a core that only counts."""

    def __init__(self, pods: int = 1) -> None:
        self.kernel = SimKernel({"tdx": 16})
        homes = {POD: "/kubepods/poda", **{PodUid(f"{n}"): f"/kubepods/pod{n}" for n in range(1, pods)}}
        for path in homes.values():
            self.kernel.make_cgroup(f"{ROOT}{path}")
        for path in ("", "/kubepods"):
            self.kernel.write(f"{ROOT}{path}/cgroup.subtree_control", b"+misc")
        self.files, self.lane, self.clock, self.seq = FaultyFiles(self.kernel), InlineLane(), ManualClock(), 0
        self.told: list[KeysRead] = []
        self.reader = KeyReader(self.files, Tree(self.files, ROOT))
        self.poll = KeyPoll(self.lane, self.reader, ("tdx",), lambda: homes, self.tell, lambda: self.seq, self.clock)

    def tell(self, event: Event) -> int:
        assert isinstance(event, KeysRead)
        self.seq += 1
        self.told.append(event)
        return self.seq

    def charge(self, path: str) -> None:
        self.kernel.charge(f"{ROOT}{path}", "tdx", 1)

    def ask(self) -> "asyncio.Task[str]":
        self.seq += 1
        return asyncio.ensure_future(self.poll.fetch("tdx"))


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_look_that_fell_due_meanwhile_begins_when_the_one_under_way_has_landed(bench: Bench) -> None:
    class Turns(ManualClock):
        async def sleep(self, seconds: float) -> None:
            await asyncio.sleep(0)

    bench.poll._clock = Turns()
    looking = asyncio.ensure_future(bench.poll.run())
    await turns()
    assert [bench.lane.drain(1) for _ in range(3)] == [1, 1, 0], "one more, and then none before its time"
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)


async def test_a_lanes_thread_never_asks_who_the_pods_are(bench: Bench) -> None:
    asked: list[int] = []

    def homes() -> keys.Homes:
        asked.append(threading.get_ident())
        return {}

    lane = ThreadLane("keys", asyncio.get_running_loop(), lambda _: None)
    poll = KeyPoll(lane, bench.reader, ("tdx",), homes, bench.tell, lambda: bench.seq, bench.clock)
    assert await poll.fetch("tdx") == ""
    lane.close(1.0)

    assert len(bench.told) == 1
    assert asked == [threading.get_ident()]


async def test_a_question_has_its_own_sample_told_before_it_is_answered(bench: Bench) -> None:
    asked = bench.ask()
    await turns()
    bench.charge("/kubepods/poda")
    assert bench.lane.drain() == 1
    read_ns = bench.clock.now_ns()
    assert bench.told == [KeysRead(1, {"tdx": 16}, {"tdx": (1, 1)}, {POD: {"tdx": (1, 1)}}, read_ns=read_ns)]
    assert await asked == ""


async def test_a_sample_tells_when_it_began_however_late_it_lands(bench: Bench) -> None:
    bench.poll._begin(due=True)
    began_ns = bench.clock.now_ns()
    bench.clock.ns += 3_000_000_000
    bench.lane.drain()
    assert [event.read_ns for event in bench.told] == [began_ns]


async def test_a_sample_that_began_before_the_question_does_not_answer_it(bench: Bench) -> None:
    """Given a sample under way and a foreign VM that comes after it has read, then the answer has seen that VM."""
    bench.poll._begin(due=True)
    asked = bench.ask()
    await turns()
    assert bench.lane.drain(1) == 1
    await turns()
    assert not asked.done()
    bench.charge("/kubepods/poda")
    assert bench.lane.drain() == 1
    assert await asked == ""
    assert [event.roots["tdx"] for event in bench.told] == [(0, 0), (1, 1)]


async def test_a_sample_that_began_after_the_question_answers_all_who_asked(bench: Bench) -> None:
    asked = [bench.ask() for _ in range(3)]
    await turns()
    late = bench.ask()
    await turns()
    assert bench.lane.drain(1) == 1
    await turns()
    assert [one.done() for one in (*asked, late)] == [True, True, True, False]
    assert bench.lane.drain() == 1
    assert [await one for one in (*asked, late)] == ["", "", "", ""]


async def test_a_look_that_finds_nothing_new_answers_nobody(bench: Bench) -> None:
    bench.seq, bench.poll._swept_ns = 1, bench.clock.now_ns()
    bench.poll._begin(due=False)
    bench.lane.drain()
    bench.told.clear()
    bench.poll._begin(due=False)
    asked = asyncio.ensure_future(bench.poll.fetch("tdx"))
    await turns()
    assert bench.lane.drain(1) == 1
    await turns()
    assert not asked.done()
    assert bench.lane.drain() == 1
    assert await asked == ""

    assert len(bench.told) == 1


PODS, SECONDS = 500, 20
OF_A_READ = 5
"""System calls of a whole read of a file: open, fstat, read, read, close."""


def test_an_idle_node_of_500_pods_costs_so_many_system_calls_a_second() -> None:
    """Ten looks a second, and two reads of each pod every two seconds; what that takes of a core: `bench keys`."""

    class Passing(ManualClock):
        async def sleep(self, seconds: float) -> None:
            here.lane.drain()
            self.ns += int(seconds * 1e9)
            await asyncio.sleep(0)

    async def counted() -> Counter[str]:
        here.poll._clock = clock = Passing()
        looking = asyncio.ensure_future(here.poll.run())
        await passed(clock, 1)
        before = Counter(here.files.calls)
        await passed(clock, SECONDS)
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        return here.files.calls - before

    async def passed(clock: ManualClock, seconds: int) -> None:
        until_ns = clock.ns + int(seconds * 1e9)
        while clock.ns < until_ns:
            await asyncio.sleep(0)

    here = Bench(PODS)
    calls = asyncio.run(counted())
    assert list(calls) == ["pread", "read"], "descriptors are kept, and what hides no key is not looked through"
    a_second = (calls["pread"] + OF_A_READ * calls["read"]) / SECONDS
    tell(f"keys of an idle node with {PODS} pods: {a_second:.0f} system calls a second")
    assert 2 * PODS / (SWEEP_S + LOOK_S) <= a_second <= 1 / LOOK_S + (2 * PODS + 1 + OF_A_READ) / SWEEP_S


async def test_a_cgroup_that_hangs_is_named_and_the_next_sample_is_without_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "FRESH_S", 0.02)
    asked = bench.ask()
    await turns()
    bench.reader._at = "/kubepods/poda"
    assert await asked == "the counters of keys are not read in time: the read of cgroup /kubepods/poda hangs"
    bench.poll._landed(bench.reader, 0, GivenUpError("keys"))
    asked = bench.ask()
    await turns()
    bench.lane.drain()
    assert await asked == ""
    assert bench.told[-1].unread == (POD,)


async def test_a_full_lane_is_said_and_who_gives_up_is_forgotten(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "FRESH_S", 0.02)
    bench.lane._depth = 0
    assert await bench.ask() == "the counters of keys are not read in time: other calls on cgroups take long"
    asked = bench.ask()
    await turns()
    asked.cancel()
    await asyncio.wait((asked,))
    assert bench.poll._asking == []


async def test_a_failure_of_our_own_is_an_answer(bench: Bench) -> None:
    asked = bench.ask()
    await turns()
    bench.poll._landed(bench.reader, 0, KeyError("x"))
    assert await asked == "reading the counters of keys failed: KeyError('x')"


async def test_however_often_a_sample_is_asked_for_foreign_use_is_looked_for_every_two_seconds(bench: Bench) -> None:
    listed: list[int] = []
    bench.kernel.make_cgroup(f"{ROOT}/machine.slice")
    bench.charge("/machine.slice")
    for _ in range(30):
        before = bench.files.calls["listdir"]
        asked = bench.ask()
        await turns()
        bench.lane.drain()
        await asked
        listed.append(bench.files.calls["listdir"] - before)
        bench.clock.ns += int(SWEEP_S / 10 * 1e9)
    assert [number for number, calls in enumerate(listed) if calls] == [0, 10, 20]
