"""The core on a loop: what a runtime waits for comes first, the record and the timer after it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from nodeward.aio.clock import SystemClock
from nodeward.app.host.afterwards import MOST, PIECE
from nodeward.app.host.core import Core
from nodeward.app.host.slots import Slots
from nodeward.app.node.pods import NoFacts
from nodeward.doubles.kernel import SimKernel
from nodeward.engine.apply import DOMAINS, Domains
from nodeward.engine.state.root import State
from nodeward.model.decision import Decision, Final
from nodeward.model.events import (
    ApiBack,
    Creating,
    Event,
    Question,
    Removed,
    SandboxRemoved,
    SandboxStarted,
    Stopped,
    Updating,
)
from nodeward.model.workload import Container, ContainerId, ContainerSpec, PodSpec, PodUid, Sandbox, SandboxId
from tests.goals import slots_of
from tests.lanes import InlineLane

POD = Sandbox(SandboxId("s"), PodUid("1"), "default", "web", cgroup_parent="/kubepods/pod1")
SPEC = PodSpec(POD.pod_uid, "default", "web", (ContainerSpec("app", declared={"sgx_epc": 4096}),))
MADE = Container(ContainerId("c"), SandboxId("s"), "app")
DUE_NS, TIMES = 2_500_000, 40


async def no_commit(_: str) -> str:
    return "nothing commits here"


def core_with(written: list[str], domains: Domains = DOMAINS) -> Core:
    def recorder(event: Event, decision: Decision, state: State) -> None:
        written.append(f"{type(event).__name__} {event.seq} after {state.seq}")

    kernel, clock = SimKernel({"sgx_epc": 1 << 20}), SystemClock()
    slots = slots_of(InlineLane(), kernel, clock)
    return Core(State(), clock, slots, NoFacts(), no_commit, recorder, domains)


def test_a_runtime_has_its_answer_before_the_record_is_written() -> None:
    async def story() -> None:
        written: list[str] = []
        core = core_with(written)
        core.tell(SandboxStarted(POD))
        assert isinstance(core.ask(Creating(POD, MADE), 1_000_000_000), Final)
        assert written == []
        await until(lambda: len(written) == 2)
        assert written == ["SandboxStarted 1 after 0", "Creating 2 after 1"]
        core.close()

    asyncio.run(story())


def test_an_ask_that_is_cancelled_before_its_task_began_is_over() -> None:
    async def story() -> None:
        core = core_with([])
        core.tell(SandboxStarted(POD))
        core.tell(ApiBack())
        asked = asyncio.ensure_future(_final(core.ask(Creating(POD, MADE), 1_000_000_000)))
        assert core.state.asks
        asked.cancel()
        await until(lambda: not core.state.asks)
        core.close()

    asyncio.run(story())


@pytest.mark.parametrize("question", [Updating(POD, MADE), Creating(POD, MADE)])
def test_what_ended_while_its_question_waited_does_not_come_back_with_the_answer(question: Question) -> None:
    """Given a question that waits for its pod, when pod and container end meanwhile, then they stay ended."""

    async def story() -> None:
        core = core_with([])
        core.tell(SandboxStarted(POD))
        core.tell(ApiBack())
        asked = core.ask(question, 1_000_000_000)
        assert not isinstance(asked, Final)
        for event in (Stopped(POD, MADE), Removed(POD.id, MADE.id), SandboxRemoved(POD)):
            core.tell(event)
        assert isinstance(await asked, Final)
        pods = core.state.pods
        assert (pods.containers, pods.creating, pods.sandboxes) == ({}, {}, {})
        core.close()

    asyncio.run(story())


def test_a_thread_beside_the_loop_is_refused() -> None:
    async def story() -> None:
        core = core_with([])
        core.tell(SandboxStarted(POD))
        with pytest.raises(RuntimeError, match="beside its loop"):
            await asyncio.to_thread(lambda: core.state)
        core.close()

    asyncio.run(story())


async def _final(answer: Final | Awaitable[Final]) -> Final:
    return answer if isinstance(answer, Final) else await answer


class DueSoon(Slots):
    """Has something to do DUE_NS after it was last done."""

    def __init__(self, clock: SystemClock) -> None:
        super().__init__(InlineLane(), {}, clock)
        self._now_ns = clock.now_ns
        self.looked, self.done, self.due_ns = 0, 0, clock.now_ns() + DUE_NS

    def next_due_ns(self) -> int | None:
        return self.due_ns if self.done < TIMES else None

    def run_due(self) -> None:
        self.looked += 1
        if self._now_ns() >= self.due_ns:
            self.done, self.due_ns = self.done + 1, self._now_ns() + DUE_NS


def test_what_is_due_in_a_part_of_a_millisecond_wakes_the_core_once() -> None:
    """Given something due in 2.5 ms, and then again, when the loop counts in whole milliseconds, then the core wakes
    for each time once: it does not ask for the rest of a millisecond over and over."""

    async def story() -> None:
        clock = SystemClock()
        slots = DueSoon(clock)
        core = Core(State(), clock, slots, NoFacts(), no_commit)
        core.wake()
        slots.looked = slots.done = 0
        async with asyncio.timeout(30):
            while slots.done < TIMES:
                await asyncio.sleep(0.05)
        core.close()
        assert slots.looked == TIMES

    asyncio.run(story())


def test_how_long_a_decision_took_is_counted_by_its_event() -> None:
    core = core_with([])
    for _ in range(3):
        core.tell(SandboxStarted(POD))
    core.ask(Creating(POD, MADE), 1_000_000_000)
    counts = {kind.__name__: sum(took[:-1]) for kind, took in core.took.items()}
    assert counts == {"SandboxStarted": 3, "Creating": 1}
    for took in core.took.values():
        least = sum(count << (bits - 1) for bits, count in enumerate(took[:-1]) if bits)
        assert least <= took[-1] < 2 * least


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not reached():
            await asyncio.sleep(0)


def test_a_burst_is_written_down_in_pieces_and_in_order() -> None:
    async def story() -> None:
        written: list[str] = []
        core = core_with(written)
        for _ in range(MOST):
            core.tell(SandboxStarted(POD))
        await asyncio.sleep(0)
        assert len(written) == PIECE
        await until(lambda: len(written) == MOST)
        assert [line.split()[1] for line in written] == [str(seq + 1) for seq in range(MOST)]
        core.close()

    asyncio.run(story())


def test_what_is_left_to_write_is_written_at_the_end() -> None:
    async def story() -> None:
        written: list[str] = []
        core = core_with(written)
        core.tell(SandboxStarted(POD))
        core.close()
        assert written == ["SandboxStarted 1 after 0"]

    asyncio.run(story())


def test_a_container_that_is_never_created_wakes_the_core() -> None:
    async def story() -> None:
        core = core_with([])
        core.ask(Creating(POD, MADE), 1_000_000_000)
        assert core.next_due_ns() is not None
        await until(lambda: core.armed)
        core.close()
        assert not core.armed

    asyncio.run(story())
