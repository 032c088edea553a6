"""A decision that must be durable before it is told: reserved first, committed on a lane, given back where that fails.

What the ledger commits is in tests/unit/engine/ledger; the domain here grants an id to each container. It goes by the
name of limits: its grants are in a corner of that slice, since the state has none for it, and `limits.on_error` holds
for it.
"""

import asyncio
import contextlib
import errno
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from nodeward.aio.clock import SystemClock
from nodeward.aio.lanes import ThreadLane
from nodeward.app.host.core import Core
from nodeward.app.host.undo import UndoList
from nodeward.app.node.pods import NoFacts
from nodeward.doubles.kernel import SimKernel
from nodeward.engine.apply import DOMAINS, MAX_NEEDS, Domains
from nodeward.engine.limits.domain import LIMITS
from nodeward.engine.state.root import State
from nodeward.model import events as ev
from nodeward.model.decision import Adjustment, Commit, Decision, Final, Need, Reason, Refusal
from nodeward.model.settings import EngineSettings, LimitsSettings, OnError, UnknownPod
from nodeward.model.workload import PodUid
from tests.component.daemon.rig import Trouble, TroubledFiles
from tests.goals import slots_of
from tests.lanes import InlineLane
from tests.unit.engine.build import container_spec, creating, pod_spec

JOURNAL = "/run/nodeward/grants"
SOON, LATE = 100_000_000, 20_000_000_000
GRANTED = Reason("granted")


def grants(state: State) -> dict[str, str]:
    """Grant to `reserved` or `granted`."""
    return dict(state.limits.misses.get("", {}))


def put(state: State, changes: dict[str, str]) -> State:
    held = {**grants(state), **changes}
    return replace(
        state, limits=replace(state.limits, misses={"": {name: what for name, what in held.items() if what}})
    )


def ledger(state: State, event: ev.Event) -> tuple[State, Decision]:
    """Grants an id to each container that is created."""
    if isinstance(event, ev.Abandoned):
        ask = state.asks.get(event.ask_id)
        creating = ask.creating if ask is not None else None
        return (state if creating is None else put(state, {creating.container.id: ""})), Decision()
    if not isinstance(event, ev.Creating):
        return state, Decision()
    ask, name = state.asks.get(event.ask_id), event.container.id
    if ask is not None and ask.committed:
        return put(state, {name: "granted"}), Decision(Final(Adjustment({"id": name}), GRANTED))
    if ask is not None and (ask.expired or ask.commit_error):
        refusal = Refusal(f"no id: {ask.commit_error or 'too late'}")
        return put(state, {name: ""}), Decision(Final(refusal, Reason("refused")))
    return put(state, {name: "reserved"}), Decision(Commit(name))


def ledger_that_breaks(state: State, event: ev.Event) -> tuple[State, Decision]:
    """As `ledger`, until the record is durable."""
    if isinstance(event, ev.Creating) and event.ask_id in state.asks:
        raise ZeroDivisionError("after the commit")
    return ledger(state, event)


@dataclass(slots=True)
class Desk:
    """A core with the ledger beside the product's domains, and a journal on a lane of its own."""

    core: Core
    files: TroubledFiles
    lane: ThreadLane
    at_append: list[dict[str, str]] = field(default_factory=list)

    async def ask(self, name: str, within_ns: int = LATE) -> Final:
        answer = self.core.ask(creating("u", name), within_ns)
        return answer if isinstance(answer, Final) else await answer

    def journal(self) -> bytes:
        try:
            return self.files.read(JOURNAL, 9999)
        except FileNotFoundError:
            return b""


def story(
    tale: Callable[[Desk], Awaitable[None]], domain: Callable[[State, ev.Event], tuple[State, Decision]] = ledger,
    state: State | None = None,
) -> None:  # fmt: skip
    async def told() -> None:
        kernel = SimKernel({})
        with contextlib.suppress(FileExistsError):
            kernel.mkdir("/run/nodeward")
        files = TroubledFiles(kernel)
        lane = ThreadLane("journal", asyncio.get_running_loop(), lambda _: None)
        desk: list[Desk] = []

        async def commit(record: str) -> str:
            desk[0].at_append.append(grants(desk[0].core.state))
            written: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            job = partial(files.append, JOURNAL, f"{record}\n".encode(), sync=False)

            def done(result: object) -> None:
                if not written.done():
                    written.set_result(result)

            if not lane.submit("grant", job, done):
                return "the lane is full"
            result = await written
            return str(result) if isinstance(result, BaseException) else ""

        def step(state: State, event: ev.Event) -> tuple[object, Decision]:
            after, decision = domain(state, event)
            return after.limits, decision

        domains: Domains = (*DOMAINS, replace(LIMITS, step=step))
        clock = SystemClock()
        slots = slots_of(InlineLane(), files, clock, UndoList(files, "/nowhere"))
        core = Core(state or State(), clock, slots, NoFacts(), commit, domains=domains)
        desk.append(Desk(core, files, lane))
        try:
            async with asyncio.timeout(60):
                await tale(desk[0])
        finally:
            for trouble in files.troubles:
                trouble.end()
            core.close()
            assert core.state.asks == {}  # nothing waits for ever
            assert lane.close(10.0)

    asyncio.run(told())


def test_an_id_is_reserved_before_the_commit_and_told_after_it() -> None:
    async def tale(desk: Desk) -> None:
        answer = await desk.ask("app")

        assert desk.at_append == [{"u-app": "reserved"}]
        assert desk.journal() == b"u-app\n"
        assert answer.value == Adjustment({"id": "u-app"})  # the limits had nothing to add
        assert grants(desk.core.state) == {"u-app": "granted"}

    story(tale)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_commit_that_fails_gives_the_id_back_and_refuses(number: int) -> None:
    async def tale(desk: Desk) -> None:
        trouble = desk.files.trouble(Trouble(("append",), JOURNAL, number))
        answer = await desk.ask("app")

        assert isinstance(answer.value, Refusal)
        assert "no id: " in answer.value.message
        assert grants(desk.core.state) == {}
        trouble.end()
        await desk.ask("app")
        assert grants(desk.core.state) == {"u-app": "granted"}

    story(tale)


def test_a_commit_that_hangs_expires_and_what_comes_back_late_changes_nothing() -> None:
    async def tale(desk: Desk) -> None:
        hang = desk.files.trouble(Trouble(("append",), JOURNAL))
        answer = await desk.ask("app", SOON)

        assert isinstance(answer.value, Refusal)
        assert grants(desk.core.state) == {}
        assert desk.core.asks == {"expired": 1}
        hang.end()
        assert desk.lane.close(10.0)
        before = desk.core.state
        desk.core.tell(ev.Committed(1))
        assert (desk.core.state.asks, grants(desk.core.state)) == (before.asks, {})

    story(tale)


def test_a_caller_that_goes_away_gives_the_id_back() -> None:
    async def tale(desk: Desk) -> None:
        desk.files.trouble(Trouble(("append",), JOURNAL))
        asked = asyncio.ensure_future(desk.ask("app"))
        while not desk.files.troubles[0].met:
            await asyncio.sleep(0.01)
        assert grants(desk.core.state) == {"u-app": "reserved"}
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)

        assert asked.cancelled()
        assert grants(desk.core.state) == {}
        assert desk.core.asks == {"abandoned": 1}

    story(tale)


def test_a_fact_is_read_before_the_commit() -> None:
    async def tale(desk: Desk) -> None:
        desk.core.tell(ev.ApiBack())
        await desk.ask("app")  # nobody knows this pod: the read fails, and the id is granted all the same
        assert desk.at_append == [{"u-app": "reserved"}]
        assert desk.core.asks == {"after-a-fact": 1}

        desk.core.tell(ev.PodSeen(pod_spec("u", container_spec("two", 5))))
        assert (await desk.ask("two")).value == Adjustment({"id": "u-two"})
        assert PodUid("u") in desk.core.state.pods.specs

    story(tale)


@pytest.mark.parametrize(("rule", "refused"), [(OnError.PASS, False), (OnError.REFUSE, True)])
def test_a_domain_that_breaks_after_its_commit_is_answered_by_its_on_error(rule: OnError, refused: bool) -> None:
    async def tale(desk: Desk) -> None:
        answer = await desk.ask("app")

        assert isinstance(answer.value, Refusal) is refused
        assert desk.core.faults == {"limits": 1}
        assert desk.journal() == b"u-app\n"
        assert grants(desk.core.state) == {"u-app": "reserved"}  # its slice is as it was: never sold twice

    story(tale, ledger_that_breaks, State(settings=EngineSettings(LimitsSettings(on_error=rule))))


def test_a_journal_that_raises_is_a_commit_that_failed() -> None:
    async def tale(desk: Desk) -> None:
        async def broken(record: str) -> str:
            raise ZeroDivisionError(record)

        desk.core._commit = broken
        answer = await desk.ask("app")
        assert isinstance(answer.value, Refusal)
        assert grants(desk.core.state) == {}

    story(tale)


def stubborn(state: State, event: ev.Event) -> tuple[State, Decision]:
    """Wants to commit whatever it hears."""
    return state, Decision(Commit("again")) if isinstance(event, ev.Creating) else Decision()


@pytest.mark.parametrize("number", [0, errno.ENOSPC])
def test_there_is_one_commit_an_ask_whether_it_went_well_or_not(number: int) -> None:
    async def tale(desk: Desk) -> None:
        if number:
            desk.files.trouble(Trouble(("append",), JOURNAL, number))
        answer = await desk.ask("app")

        assert len(desk.at_append) == 1
        assert answer.value == Adjustment()

    story(tale, stubborn)


def curious(state: State, event: ev.Event) -> tuple[State, Decision]:
    """Has a further fact to ask for each time, and an id to grant."""
    state, decision = ledger(state, event)
    ask = state.asks.get(event.ask_id) if isinstance(event, ev.Creating) else None
    if isinstance(decision.answer, Commit) and (ask is None or ask.needs < MAX_NEEDS):
        return state, Decision(Need("pod", "a/b/c", SOON))
    return state, decision


def test_two_facts_are_followed_by_the_commit() -> None:
    async def tale(desk: Desk) -> None:
        answer = await desk.ask("app")

        assert answer.value == Adjustment({"id": "u-app"})
        assert grants(desk.core.state) == {"u-app": "granted"}

    story(tale, curious)


def test_a_refusal_of_another_domain_gives_the_id_back_and_commits_nothing() -> None:
    async def tale(desk: Desk) -> None:
        answer = await desk.ask("app")

        assert isinstance(answer.value, Refusal)
        assert "limits.unknown_pod is refuse" in answer.value.message
        assert grants(desk.core.state) == {}
        assert desk.at_append == []
        assert desk.core.asks == {"at-once": 1}

    story(tale, state=State(settings=EngineSettings(limits=LimitsSettings(unknown_pod=UnknownPod.REFUSE))))
