"""The production step of `keys`, for a model that plays every history: a state is built, the step is told, and what
it remembers afterwards is read off. Nothing of the rules is here.

What the step is told and remembers is the same for very many worlds, so each answer is kept.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from nodeward.core import events as ev
from nodeward.core.decision import Adjustment, Commit, Decision, Final, Need
from nodeward.core.state import OpenAsk
from nodeward.core.workload import ContainerSpec, PodSpec, PodUid, SandboxId
from nodeward.features.keys.device_ids import SETTLE_NS, id_name
from nodeward.features.keys.settings import KeyKind, Publisher
from nodeward.features.keys.state import Grant, Keys, Offer
from nodeward.features.keys.step import HEARS
from nodeward.features.keys.sums import offer_now
from nodeward.features.pods.state import KnownSpec, Pods
from nodeward.features.root import State
from tests.unit.features.keys.asking import TDX, offering

SETTINGS = offering(KeyKind((TDX,), publisher=Publisher.DEVICE_PLUGIN, publish=TDX))
FRESH, SETTLED, VIEWED = range(3)
"""A grant's age: a view could not say yet whose it is; it could; the newest one could."""
NOW_NS = 10 * SETTLE_NS
VIEW, GRANT, NOW = 1, 2, 3
"""Sequence numbers: of the newest view, of grants after it, of what happens now."""


class Given(NamedTuple):
    """What is remembered of a granted id. An id that is not granted has none: `()`."""

    times: int
    absent: int
    age: int
    recorded: int


class Seen(NamedTuple):
    """What the daemon can tell of a pod: its place in kubelet's view, a start let through, its sandbox, the reads of
    its counter; whether it is known to have ended; whether it is in the view that comes now."""

    seen: int
    """0 for a pod that is not in kubelet's view, 2 for one that is and is known to have ended."""
    known: bool
    sandbox: bool
    reads: tuple[int, ...] = ()
    ended: bool = False
    shown: bool = False

    @property
    def is_there(self) -> bool:
        """Whether the daemon knows, or is told, anything of it."""
        return bool(self.seen or self.known or self.sandbox or self.shown) or any(self.reads)


class Memory(NamedTuple):
    """What the daemon remembers, and is told now, by id."""

    given: tuple[tuple[int, ...], ...]
    pods: tuple[tuple[Seen, ...], ...]
    published: int
    sure: bool
    roots: tuple[int, ...] = ()
    grown: bool = False
    """More was free for long enough."""


class After(NamedTuple):
    """What it remembers then: by id, and by id and pod whether it is in the view, and whether a start was let through.
    `published` is before the answer where there is one."""

    given: tuple[tuple[int, ...], ...]
    pods: tuple[tuple[tuple[int, bool], ...], ...]
    published: int
    sure: bool
    answer: str = ""
    before: int = 0
    idle: bool = False


@cache
def _uid(place: int, number: int) -> PodUid:
    return PodUid(f"{place}.{number}")


@cache
def _spec(place: int, number: int, terminal: bool) -> KnownSpec:
    containers = (ContainerSpec("compute", declared={TDX: 1}),)
    return KnownSpec(PodSpec(_uid(place, number), "shop", "vm", containers, terminal=terminal), 1)


def _grant(given: Given) -> Grant:
    at_ns, awake_ns = (NOW_NS, 0) if given.age == FRESH else (1, SETTLE_NS)
    seq = VIEW if given.age == VIEWED else GRANT
    return Grant(at_ns, seq, given.times, given.absent, recorded=given.recorded, awake_ns=awake_ns)


def _each(memory: Memory) -> Iterator[tuple[int, int, PodUid, Seen]]:
    for place, pods in enumerate(memory.pods):
        for number, pod in enumerate(pods):
            yield place, number, _uid(place, number), pod


def _state(memory: Memory) -> State:
    size = len(memory.given)
    names = [id_name("tdx", place) for place in range(size)]
    grants = {names[place]: _grant(Given(*given)) for place, given in enumerate(memory.given) if given}
    held = {uid: (names[place],) for place, _, uid, pod in _each(memory) if pod.seen == 1}
    over = {uid: (names[place],) for place, _, uid, pod in _each(memory) if pod.seen == 2}
    passed = {uid: 1 for _, _, uid, pod in _each(memory) if pod.known}
    grow = (size, 1) if memory.grown else (0, 0)
    offer = Offer(size, grants, memory.published, *grow, passed, held, over, NOW_NS, VIEW)
    pods = Pods(
        specs={uid: _spec(place, number, pod.ended) for place, number, uid, pod in _each(memory)},
        sandbox_of={uid: SandboxId("s") for _, _, uid, pod in _each(memory) if pod.sandbox},
    )
    view = ev.KeysHeld(VIEW, at_ns=NOW_NS) if memory.sure else None
    keys = Keys(
        ev.KeysRead(0, {"tdx": size}),
        view,
        held_as_of=VIEW,
        held_whole=memory.sure,
        viewed=memory.sure,
        offers={"tdx": offer},
        recalled_ns=1,
        lists=True,
    )
    return State(SETTINGS, pods=pods, seq=NOW, at_ns=NOW_NS, keys=keys)


def step(state: State, event: ev.Event) -> tuple[Keys, Decision]:
    """What the production code makes of an event."""
    keys, decision = HEARS[type(event)](state, event)
    assert isinstance(keys, Keys)
    return keys, decision


def _told(state: State, event: ev.Event) -> State:
    keys, _ = step(state, event)
    return replace(state, keys=keys)


def _reads(memory: Memory) -> ev.KeysRead:
    reads = {uid: {"tdx": pod.reads} for _, _, uid, pod in _each(memory) if any(pod.reads)}
    return ev.KeysRead(NOW, {"tdx": len(memory.given)}, {"tdx": memory.roots}, reads, at_ns=NOW_NS)


def _viewed(state: State, memory: Memory) -> State:
    pods = {uid: {TDX: (id_name("tdx", place),)} for place, _, uid, pod in _each(memory) if pod.shown}
    return _told(state, ev.KeysHeld(NOW, pods, at_ns=NOW_NS))


def _after(state: State, memory: Memory, answer: str = "", before: int = 0, *, idle: bool = False) -> After:
    offer = state.keys.offers["tdx"]
    given: list[tuple[int, ...]] = []
    for place in range(len(memory.given)):
        grant = offer.grants.get(id_name("tdx", place))
        if grant is None:
            given.append(())
            continue
        is_fresh = grant.awake_ns < SETTLE_NS
        age = FRESH if is_fresh else VIEWED if offer.viewed_as_of >= grant.seq else SETTLED
        given.append(Given(grant.times, grant.absent, age, grant.recorded))
    pods = tuple(
        tuple(
            (1 if uid in offer.held else 2 if uid in offer.over else 0, uid in offer.passed)
            for uid in (_uid(place, number) for number in range(len(row)))
        )
        for place, row in enumerate(memory.pods)
    )
    return After(tuple(given), pods, offer.published, state.keys.held_whole, answer, before, idle)


class Played:
    """The step, with its answers kept: one for each mutant, since a mutant answers otherwise."""

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], tuple[After, ...]] = {}

    @property
    def calls(self) -> int:
        """How many different questions the step was asked."""
        return len(self._kept)

    def sample(self, memory: Memory) -> After:
        return self._answer(self._sample, memory)[0]

    def view(self, memory: Memory) -> After:
        return self._answer(self._view, memory)[0]

    def hear(self, memory: Memory) -> After:
        return self._answer(self._hear, memory)[0]

    def recall(self, memory: Memory) -> After:
        return self._answer(self._recall, memory)[0]

    def allocate(self, memory: Memory, wanted: int) -> tuple[After, ...]:
        """It is asked for an id: refused; or granted, and the same given back, since it could not be put on record."""
        return self._answer(self._allocate, self._after_sample(memory), wanted)

    def start(self, memory: Memory, wanted: int) -> After:
        """It is asked whether a pod with this id may start."""
        return self._answer(self._start, self._after_sample(memory), wanted)[0]

    def _after_sample(self, memory: Memory) -> Memory:
        """The sample that is taken for a question is told before it is answered, as any other."""
        after = self.sample(memory)
        pods = tuple(
            tuple(pod._replace(seen=seen, known=known) for pod, (seen, known) in zip(row, told, strict=True))
            for row, told in zip(memory.pods, after.pods, strict=True)
        )
        return memory._replace(given=after.given, pods=pods, published=after.published)

    def _answer(
        self, answer: Callable[..., After | tuple[After, ...]], memory: Memory, *wanted: int
    ) -> tuple[After, ...]:
        """Without the pods of which the daemon knows and is told nothing: very many worlds look alike to it."""
        there = tuple(tuple(pod for pod in row if pod.is_there) for row in memory.pods)
        slim = Memory(memory.given, there, *memory[2:])
        key = (answer.__name__, slim, *wanted)
        found = self._kept.get(key)
        if found is None:
            said = answer(slim, *wanted)
            found = self._kept[key] = said if isinstance(said, tuple) and not isinstance(said, After) else (said,)
        return tuple(self._whole(memory, one) for one in found)

    @staticmethod
    def _whole(memory: Memory, after: After) -> After:
        rows = []
        for row, told in zip(memory.pods, after.pods, strict=True):
            left = iter(told)
            rows.append(tuple(next(left) if pod.is_there else (0, False) for pod in row))
        return after._replace(pods=tuple(rows))

    def _sample(self, memory: Memory) -> After:
        return _after(_told(_state(memory), _reads(memory)), memory)

    def _view(self, memory: Memory) -> After:
        return _after(_viewed(_state(memory), memory), memory)

    def _hear(self, memory: Memory) -> After:
        """It hears of the end of pods: whatever it decides next begins with this."""
        state = _state(memory)
        offers = {"tdx": offer_now(state, "tdx")}
        return _after(replace(state, keys=replace(state.keys, offers=offers)), memory)

    def _recall(self, memory: Memory) -> After:
        """What is remembered by a daemon that starts again, from a journal that was rewritten just before."""
        recorded = {id_name("tdx", place): Given(*one).recorded for place, one in enumerate(memory.given) if one}
        state = State(SETTINGS, seq=NOW, at_ns=NOW_NS)
        return _after(_told(state, ev.GrantsRecalled({TDX: recorded}, at_ns=NOW_NS, seq=NOW)), memory)

    def _allocate(self, memory: Memory, wanted: int) -> tuple[After, ...]:
        name = id_name("tdx", wanted)
        question = ev.Allocating(TDX, (name,), ask_id=1, at_ns=NOW_NS, seq=NOW)
        ask = OpenAsk(allocating=question, needs=2)
        before, state, answer = _asked(memory, question, ask)
        if not isinstance(answer, Commit):
            assert isinstance(answer, Final), answer
            return (_after(state, memory, "refused"),)
        failed, _ = step(replace(state, asks={1: replace(ask, commit_error="no space")}), question)
        idle = name in before.grants and before.grants[name].times == 0
        return (
            _after(state, memory, "granted", before.published, idle=idle),
            _after(replace(state, keys=failed), memory, "failed"),
        )

    def _start(self, memory: Memory, wanted: int) -> After:
        question = ev.Starting(TDX, (id_name("tdx", wanted),), ask_id=1, at_ns=NOW_NS, seq=NOW)
        _, state, answer = _asked(memory, question, OpenAsk(starting=question, needs=2))
        assert isinstance(answer, Final), answer
        return _after(state, memory, "let" if isinstance(answer.value, Adjustment) else "refused")


def _asked(memory: Memory, question: ev.Question, ask: OpenAsk) -> tuple[Offer, State, Final | Need | Commit | None]:
    """A question whose two facts are there: a sample, and a view from just now; what that may say is a step of its
    own."""
    state = _state(memory)
    fresh = replace(state.keys, sample=_reads(memory), held_as_of=NOW)
    state = replace(state, keys=fresh, asks={1: ask})
    keys, decision = step(state, question)
    return fresh.offers["tdx"], replace(state, keys=keys), decision.answer
