"""The core on a loop: what a runtime waits for comes first, what must be durable is committed before it is told."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from nodeward.core import events as ev
from nodeward.core.decision import NOTHING, Adjustment, Commit, Decision, Final, Goal, Target
from nodeward.core.modes import OnError
from nodeward.core.refusal import Reason, Refusal
from nodeward.core.workload import Container, ContainerId, PodUid, Sandbox, SandboxId
from nodeward.features.all import ENGINE, FEATURES
from nodeward.features.limits.feature import LIMITS
from nodeward.features.limits.settings import LimitsSettings, UnknownPod
from nodeward.features.pods.wiring import NoFacts
from nodeward.features.root import State
from nodeward.features.settings import EngineSettings
from nodeward.host.clock import SystemClock
from nodeward.host.runner import MOST, MOST_BITS, PIECE, Core
from nodeward.people.decisions import KEPT, MOST_CHARACTERS, MOST_SENTENCES, Latest
from nodeward.programs.node.answers import BOUNDS_BITS, decided_rows
from nodeward_sim.doubles.kernel import SimKernel
from tests.goals import slots_of
from tests.lanes import InlineLane
from tests.rigs.daemon import no_commit
from tests.unit.features.build import creating, everywhere

POD = Sandbox(SandboxId("s"), PodUid("1"), "default", "web", cgroup_parent="/kubepods/pod1")
MADE = Container(ContainerId("c"), SandboxId("s"), "app")


def core_with(written: list[str]) -> Core[State]:
    def recorder(event: ev.Event, decision: Decision, state: object) -> None:
        assert isinstance(state, State)
        written.append(f"{type(event).__name__} {event.seq} after {state.seq}")

    kernel, clock = SimKernel({"sgx_epc": 1 << 20}), SystemClock()
    slots = slots_of(InlineLane(), kernel, clock)
    return Core(State(), ENGINE, clock, slots, NoFacts(), no_commit, recorder)


async def test_a_runtime_has_its_answer_before_the_record_is_written() -> None:
    written: list[str] = []
    core = core_with(written)
    core.tell(ev.SandboxStarted(POD))
    assert isinstance(core.ask(ev.Creating(POD, MADE), 1_000_000_000), Final)
    assert written == []
    await until(lambda: len(written) == 2)
    assert written == ["SandboxStarted 1 after 0", "Creating 2 after 1"]
    core.close()


async def test_an_ask_that_is_cancelled_before_its_task_began_is_over() -> None:
    core = core_with([])
    core.tell(ev.SandboxStarted(POD))
    core.tell(ev.ApiBack())
    asked = asyncio.ensure_future(_final(core.ask(ev.Creating(POD, MADE), 1_000_000_000)))
    assert core.state.asks
    asked.cancel()
    await until(lambda: not core.state.asks)
    core.close()


@pytest.mark.parametrize("question", [ev.Updating(POD, MADE), ev.Creating(POD, MADE)])
async def test_what_ended_while_its_question_waited_does_not_come_back_with_the_answer(question: ev.Question) -> None:
    core = core_with([])
    core.tell(ev.SandboxStarted(POD))
    core.tell(ev.ApiBack())
    asked = core.ask(question, 1_000_000_000)
    assert not isinstance(asked, Final)
    for event in (ev.Stopped(POD, MADE), ev.Removed(POD.id, MADE.id), ev.SandboxRemoved(POD)):
        core.tell(event)
    assert isinstance(await asked, Final)
    pods = core.state.pods
    assert (pods.containers, pods.creating, pods.sandboxes) == ({}, {}, {})
    core.close()


async def test_a_thread_beside_the_loop_is_refused() -> None:
    core = core_with([])
    core.tell(ev.SandboxStarted(POD))
    with pytest.raises(RuntimeError, match="beside its loop"):
        await asyncio.to_thread(lambda: core.state)
    core.close()


async def _final(answer: Final | Awaitable[Final]) -> Final:
    return answer if isinstance(answer, Final) else await answer


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not reached():
            await asyncio.sleep(0)


async def test_a_burst_is_written_down_in_pieces_and_in_order() -> None:
    written: list[str] = []
    core = core_with(written)
    for _ in range(MOST):
        core.tell(ev.SandboxStarted(POD))
    await asyncio.sleep(0)
    assert len(written) == PIECE
    await until(lambda: len(written) == MOST)
    assert [line.split()[1] for line in written] == [str(seq + 1) for seq in range(MOST)]
    core.close()


async def test_what_is_left_to_write_is_written_at_the_end() -> None:
    written: list[str] = []
    core = core_with(written)
    core.tell(ev.SandboxStarted(POD))
    core.close()
    assert written == ["SandboxStarted 1 after 0"]


async def test_a_container_that_is_never_created_wakes_the_core() -> None:
    core = core_with([])
    core.ask(ev.Creating(POD, MADE), 1_000_000_000)
    assert core.next_due_ns() is not None
    await until(lambda: core.armed)
    core.close()
    assert not core.armed


# ---- what must be durable before it is told; those of `keys` are in tests/unit/features/keys


def grants(state: State) -> dict[str, str]:
    """Grant to `reserved` or `granted`, in a corner of the slice of limits: the state has none for it."""
    return dict(state.limits.misses.get("", {}))


def put(state: State, changes: dict[str, str]) -> State:
    held = {name: what for name, what in {**grants(state), **changes}.items() if what}
    return replace(state, limits=replace(state.limits, misses={"": held}))


def keys(state: State, event: ev.Event) -> tuple[State, Decision]:
    if isinstance(event, ev.Abandoned) and (ask := state.asks.get(event.ask_id)) and ask.creating:
        return put(state, {ask.creating.container.id: ""}), Decision()
    if not isinstance(event, ev.Creating):
        return state, Decision()
    asked, name = state.asks.get(event.ask_id), event.container.id
    if asked is not None and asked.committed:
        return put(state, {name: "granted"}), Decision(Final(Adjustment({"id": name}), Reason("granted")))
    if asked is not None and asked.commit_error:
        return put(state, {name: ""}), Decision(Final(Refusal(f"no id: {asked.commit_error}"), Reason("refused")))
    return put(state, {name: "reserved"}), Decision(Commit(name))


def keys_that_break(state: State, event: ev.Event) -> tuple[State, Decision]:
    """As `keys`, until the record is durable."""
    if isinstance(event, ev.Creating) and event.ask_id in state.asks:
        raise ZeroDivisionError("after the commit")
    return keys(state, event)


def stubborn(state: State, event: ev.Event) -> tuple[State, Decision]:
    return state, Decision(Commit("again")) if isinstance(event, ev.Creating) else Decision()


class Desk:
    """A core with a feature in the place of limits, and a journal that says `error`, or raises it."""

    def __init__(
        self,
        feature: Callable[[State, ev.Event], tuple[State, Decision]] = keys,
        error: str | Exception = "",
        limits: LimitsSettings | None = None,
    ) -> None:
        self.commits, self.error = list[str](), error

        def step(state: State, event: ev.Event) -> tuple[object, Decision]:
            after, decision = feature(state, event)
            return after.limits, decision

        engine = replace(ENGINE, features=(*FEATURES, replace(LIMITS, hears=everywhere(step))))
        slots, state = slots_of(InlineLane(), SimKernel({}), SystemClock()), State()
        state = replace(state, settings=EngineSettings(limits)) if limits else state
        self.core = Core(state, engine, SystemClock(), slots, NoFacts(), self._commit)

    async def _commit(self, record: str) -> str:
        self.commits.append(record)
        if isinstance(self.error, Exception):
            raise self.error
        return self.error

    async def ask(self) -> tuple[Final, dict[str, str]]:
        """The answer, after which nothing waits; and what is granted then."""
        found = await _final(self.core.ask(creating("u", "app"), 20_000_000_000))
        assert self.core.state.asks == {}
        self.core.close()
        return found, grants(self.core.state)


@pytest.mark.parametrize(("rule", "refused"), [(OnError.PASS, False), (OnError.REFUSE, True)])
async def test_a_feature_that_breaks_after_its_commit_is_answered_by_its_on_error(rule: OnError, refused: bool) -> None:
    desk = Desk(keys_that_break, limits=LimitsSettings(on_error=rule))
    answer, granted = await desk.ask()
    assert isinstance(answer.value, Refusal) is refused
    assert (desk.core.faults, desk.commits) == ({"limits": 1}, ["u-app"])
    assert granted == {"u-app": "reserved"}, "its slice is as it was: never sold twice"


@pytest.mark.parametrize("error", ["the disk is full", ZeroDivisionError("a fault of ours")], ids=["fails", "raises"])
async def test_a_commit_that_fails_or_breaks_gives_the_id_back_and_refuses(error: str | Exception) -> None:
    answer, granted = await Desk(error=error).ask()
    assert isinstance(answer.value, Refusal)
    assert granted == {}


@pytest.mark.parametrize("error", ["", "the disk is full"])
async def test_there_is_one_commit_an_ask_whether_it_went_well_or_not(error: str) -> None:
    desk = Desk(stubborn, error)
    answer, _ = await desk.ask()
    assert (len(desk.commits), answer.value) == (1, Adjustment())


async def test_a_refusal_of_another_feature_gives_the_id_back_and_commits_nothing() -> None:
    desk = Desk(limits=LimitsSettings(unknown_pod=UnknownPod.REFUSE))
    answer, granted = await desk.ask()
    assert isinstance(answer.value, Refusal)
    assert "limits.unknown_pod is refuse" in answer.value.message
    assert (granted, desk.commits, desk.core.asks) == ({}, [], {"at-once": 1})


def test_each_decision_is_in_every_bucket_that_is_large_enough_for_it() -> None:
    counts = [0] * (MOST_BITS + 2)
    for spent_ns in (0, 8191, 8192, 100_000, 10**12):
        counts[min(spent_ns.bit_length(), MOST_BITS)] += 1
    counts[-1] = 7
    (row,) = decided_rows({ev.Tick: counts})
    assert (row.event, row.count, row.sum_ns) == ("Tick", 5, 7)
    assert [bound for bound, _ in row.at_most] == [1 << bits for bits in BOUNDS_BITS]
    assert [count for _, count in row.at_most] == [2, 3, 4, 4, 4, 4, 4, 4]


LIMIT = Target("misc.max", "/kubepods/pod1", "sgx_epc")


def test_a_goal_its_write_and_its_reading_back() -> None:
    latest = Latest()
    latest.add(ev.Tick(at_ns=100, seq=1), NOTHING, 5)  # nothing to say
    latest.add(ev.Tick(at_ns=1000, seq=2), Decision(goals=(Goal(LIMIT, "4096", Reason("declared")),)), 7)
    latest.add(ev.Reached((LIMIT,), (LIMIT,), at_ns=4000, seq=3), NOTHING, 9)
    latest.add(ev.Missed(((LIMIT, "EBUSY"),), seq=4), NOTHING, 9)
    goal, missed = latest.rows(0)
    assert (goal.seq, goal.event, goal.took_ns, goal.after_ns) == (2, "Tick", 7, 3000)
    assert goal.said == (
        "wants misc.max:sgx_epc:/kubepods/pod1 4096 (declared)",
        "wrote and read back: misc.max:sgx_epc:/kubepods/pod1",
    )
    assert goal.summary == "looked again: limit EPC 4Ki, written and read back in less than 1 ms"
    assert missed.said == ("could not be reached: misc.max:sgx_epc:/kubepods/pod1: EBUSY",)
    assert missed.summary == "not written: EBUSY"
    assert [row.seq for row in latest.rows(2)] == [4]


def test_it_is_bounded_in_rows_sentences_and_characters() -> None:
    latest, many = Latest(), tuple(Target("cpus", f"/{number}" + "x" * 1000) for number in range(100))
    for seq in range(KEPT + 10):
        latest.add(ev.Reached(many, seq=seq), NOTHING, 1)
    rows = latest.rows(0)
    assert (len(rows), rows[0].seq) == (KEPT, 10)
    assert len(rows[0].said) == MOST_SENTENCES + 1
    assert rows[0].said[-1] == "and 92 more"
    assert max(map(len, rows[0].said)) == MOST_CHARACTERS


def test_how_long_a_decision_took_is_counted_by_its_event() -> None:
    core = core_with([])
    for _ in range(3):
        core.tell(ev.SandboxStarted(POD))
    core.ask(ev.Creating(POD, MADE), 1_000_000_000)
    counts = {kind.__name__: sum(took[:-1]) for kind, took in core.took.items()}
    assert counts == {"SandboxStarted": 3, "Creating": 1}
    for took in core.took.values():
        least = sum(count << (bits - 1) for bits, count in enumerate(took[:-1]) if bits)
        assert least <= took[-1] < 2 * least
