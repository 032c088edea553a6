"""Every history of one id, against the production step: what all histories of a node are made of.

What the step remembers of an id, and what becomes of its pods, is told by that id's own grants, views and reads; only
whether it is granted, or its pod may start, depends on the others. So an id is played by itself, on a node where the
others are free: there it may be granted whenever it may anywhere. Every world of a node is then as many of these id
states beside one another (together.py asks the step what it grants in each), and some more that no history leads to.

Two states of an id of which the daemon knows the same are one wherever the one can become the other without the daemon
noticing: a VM begins or ends, a pod ends, kubelet forgets, time passes. Only the earlier one is kept; what follows from
the later one follows from it too.
"""

from collections.abc import Iterator
from functools import cache
from itertools import combinations, permutations, product
from typing import NamedTuple

from tests.unit.features.keys.played import FRESH, SETTLED, After, Memory, Played, Seen

WAITING, LET, IDLE, CHARGED, ENDED, LOST, GHOST, GONE = range(8)
"""A pod: admitted; let through to start, and without a key since; its sandbox stands without a key; its VM has a key.
Ended, with a VM that is not: still in kubelet's checkpoint, or no longer. Ended with its VM: the same two."""
ALIVE = (WAITING, LET, IDLE, CHARGED)
BOXED = (LET, IDLE, CHARGED)
FORGOTTEN = {ENDED: LOST, GHOST: GONE}
ORDER = "RPRP"
"""The reads of a sample: root, pods."""


class Pod(NamedTuple):
    """A pod that was given one id; whether it is in the daemon's view of kubelet's, and its start let through there."""

    stage: int
    seen: int = 0
    """2 for one in the view of which the daemon knows that it has ended."""
    known: bool = False


class Id(NamedTuple):
    """An id: what the daemon remembers of its grant, and the pods that have it."""

    given: tuple[int, ...] = ()
    pods: tuple[Pod, ...] = ()


BECOMES = {
    WAITING: (WAITING, GHOST, GONE),
    LET: (LET, IDLE, CHARGED, ENDED, LOST, GHOST, GONE),
    IDLE: (IDLE, CHARGED, ENDED, LOST, GHOST, GONE),
    ENDED: (ENDED, LOST, GHOST, GONE),
    LOST: (LOST, GONE),
    GHOST: (GHOST, GONE),
    GONE: (GONE,),
}
"""What can become of a pod while the daemon looks elsewhere. A VM that may begin and end is not told from one that
runs, so CHARGED is no stage of its own here."""
WITHOUT_VM = {ENDED: GHOST, LOST: GONE}
MAY_HOLD = (LET, IDLE, ENDED, LOST)
Alone = tuple[Id, bool]
"""An id, and whether there has been a view of kubelet's since the daemon started."""
Told = tuple[tuple[Seen, ...], tuple[int, ...]]
"""What the daemon is told of each pod, and what stage each is in then."""


class Alones:
    """All that can become of one of `size` ids; `order` are the reads of a sample."""

    def __init__(self, size: int, order: str = ORDER) -> None:
        self.size, self.order, self.played = size, order, Played()
        self._kept: dict[object, list[Alone]] = {}
        self._met: set[Alone] = set()
        """Each is kept, or an earlier one is, now and for good: what comes before that comes before it too."""
        self._run()

    @property
    def all(self) -> list[Alone]:
        return [one for kept in self._kept.values() for one in kept]

    def _run(self) -> None:
        todo: list[Alone] = [(Id(), False)]
        self._keep(todo[0])
        while todo:
            now = todo.pop()
            if now not in self._kept[_known(now[0], sure=now[1])]:
                continue  # an earlier one was found since
            todo.extend(after for after in self._after(*now) if self._keep(after))

    def _keep(self, new: Alone) -> bool:
        if new in self._met:
            return False
        self._met.add(new)
        one, sure = new
        kept = self._kept.setdefault(_known(one, sure=sure), [])
        if any(_becomes(early, one) for early, _ in kept):
            return False
        kept[:] = [(late, of) for late, of in kept if not _becomes(one, late)]
        kept.append(new)
        return True

    def _after(self, one: Id, sure: bool) -> Iterator[Alone]:
        ages = [one]
        if one.given and one.given[2] == FRESH:
            ages.append(one._replace(given=(*one.given[:2], SETTLED, *one.given[3:])))
        yield self._died(one)
        yield from self._sampled(one, sure)
        yield from self._allocated(one, sure)
        yield from self._started(one, sure)
        for aged in ages:
            yield from self._viewed(aged, sure)
            yield from self._heard(aged, sure)

    # ---- the daemon --------------------------------------------------------------------------------------------------

    def _memory(self, one: Id, sure: bool, row: tuple[Seen, ...], *, held: int = 0) -> Memory:
        others: tuple[tuple[()], ...] = ((),) * (self.size - 1)
        roots = (held,) * self.order.count("R")
        return Memory((one.given, *others), (row, *others), self.size, sure, roots)

    def _rest(self, after: After, stages: tuple[int, ...]) -> Iterator[Alone]:
        """What is remembered, of pods in these stages; where there are fewer keys than that, some VMs end before."""
        holding = [number for number, stage in enumerate(stages) if stage in WITHOUT_VM]
        if len(holding) > self.size:
            for at in holding:
                yield from self._rest(after, _put(stages, at, WITHOUT_VM[stages[at]]))
            return
        pods = [Pod(stage, *told) for stage, told in zip(stages, after.pods[0], strict=False)]
        pods += [Pod(stage) for stage in stages[len(pods) :]]
        there = (pod for pod in pods if pod != (GONE, 0, False))
        yield Id(after.given[0], tuple(sorted(there))), after.sure

    def _died(self, one: Id) -> Alone:
        after = self.played.recall(self._memory(one, False, ()))
        pods = (Pod(IDLE if pod.stage == LET else pod.stage) for pod in one.pods if pod.stage != GONE)
        return Id(after.given[0], tuple(sorted(pods))), False

    def _reads(self, one: Id, stages: tuple[int, ...], which: tuple[int, ...]) -> Iterator[Told]:
        """What is read where any of these pods have a VM. That an ended one may have one again is too many cases."""
        may = [number for number in which if stages[number] in MAY_HOLD]
        times = self.order.count("P")
        for charged in _some(may, self.size):
            at = tuple(IDLE if number in charged and stage == LET else stage for number, stage in enumerate(stages))
            row = tuple(
                Seen(pod.seen, pod.known, stage in BOXED, (int(number in charged),) * times)
                for number, (pod, stage) in enumerate(zip(one.pods, at, strict=True))
            )
            yield row, at

    def _sampled(self, one: Id, sure: bool) -> Iterator[Alone]:
        """Only starts that were let through are told anything by what an id's own pods hold."""
        stages = tuple(pod.stage for pod in one.pods)
        let = tuple(number for number, pod in enumerate(one.pods) if pod.known)
        for row, at in self._reads(one, stages, let) if let else ():
            held = sum(max(told.reads) for told in row)
            yield from self._rest(self.played.sample(self._memory(one, sure, row, held=held)), at)

    def _viewed(self, one: Id, sure: bool) -> Iterator[Alone]:
        fresh = one.given[2:3] == (FRESH,)
        for each in product(*(list(_shown(pod, fresh=fresh)) for pod in one.pods)):
            row, stages = tuple(told for told, _ in each), tuple(stage for _, stage in each)
            yield from self._rest(self.played.view(self._memory(one, sure, row)), stages)

    def _heard(self, one: Id, sure: bool) -> Iterator[Alone]:
        """It hears that one of the pods has ended which it takes for living ones."""
        stages = tuple(pod.stage for pod in one.pods)
        for at, pod in enumerate(one.pods):
            for stage in _over(pod.stage) if pod.seen == 1 else ():
                row = tuple(
                    Seen(pod.seen, pod.known, pod.stage in BOXED and number != at, ended=number == at)
                    for number, pod in enumerate(one.pods)
                )
                after = self.played.hear(self._memory(one, sure, row))
                yield from self._rest(after, _put(stages, at, stage))

    def _allocated(self, one: Id, sure: bool) -> Iterator[Alone]:
        """It gives one id to two pods at most that live at once."""
        alive = [number for number, pod in enumerate(one.pods) if pod.stage in ALIVE]
        for staying in [alive] if len(alive) < 2 else [[number] for number in alive]:
            ends = [
                (pod.stage,) if pod.stage not in ALIVE or number in staying else _over(pod.stage)
                for number, pod in enumerate(one.pods)
            ]
            for stages in product(*ends):
                yield from self._given(one, sure, stages)

    def _given(self, one: Id, sure: bool, stages: tuple[int, ...]) -> Iterator[Alone]:
        row = next(self._reads(one, stages, ()))[0]
        granted, *failed = self.played.allocate(self._memory(one, sure, row), 0)
        if not failed:
            return
        yield from self._rest(failed[0], stages)
        yield from self._rest(granted, stages)  # the answer got lost on its way
        forgotten = tuple(FORGOTTEN.get(stage, stage) for stage in stages)
        yield from self._rest(granted, (*forgotten, WAITING))
        for at, stage in enumerate(stages):
            if stage in FORGOTTEN:  # an older view is still on its way
                yield from self._rest(granted, (*_put(forgotten, at, stage), WAITING))

    def _started(self, one: Id, sure: bool) -> Iterator[Alone]:
        for at, pod in enumerate(one.pods):
            if pod.stage != WAITING or not pod.seen:
                continue  # kubelet's checkpoint, as it is now, has it
            ends = [
                _over(other.stage) if other.stage in ALIVE and not other.seen and number != at else (other.stage,)
                for number, other in enumerate(one.pods)
            ]
            for stages in product(*ends):
                for row, after in self._reads(one, stages, tuple(range(len(stages)))):
                    held = sum(max(told.reads) for told in row)
                    answer = self.played.start(self._memory(one, sure, row, held=held), 0)
                    yield from self._rest(answer, _put(after, at, LET) if answer.answer == "let" else after)


def _some(numbers: list[int], most: int) -> Iterator[tuple[int, ...]]:
    for amount in range(min(len(numbers), most) + 1):
        yield from combinations(numbers, amount)


def _put(stages: tuple[int, ...], at: int, stage: int) -> tuple[int, ...]:
    return (*stages[:at], stage, *stages[at + 1 :])


def _over(stage: int) -> tuple[int, ...]:
    """What has become of a pod that ended by now: first that of which everything else can become."""
    return {WAITING: (GHOST,), LET: (ENDED, GHOST), IDLE: (ENDED, GHOST)}.get(stage, (stage,))


def _shown(pod: Pod, *, fresh: bool) -> Iterator[tuple[Seen, int]]:
    """How kubelet's view may show the pod, and what has become of it then."""
    may_miss = fresh and not pod.seen
    boxed = pod.stage in BOXED
    if pod.stage in (LOST, GONE):
        yield Seen(pod.seen, pod.known, False), pod.stage
        return
    yield Seen(pod.seen, pod.known, boxed, shown=True), pod.stage
    if may_miss:
        yield Seen(pod.seen, pod.known, boxed), pod.stage
    for stage in _over(pod.stage):
        if not pod.seen:
            yield Seen(pod.seen, pod.known, False, ended=True, shown=True), stage
        if not may_miss:
            yield Seen(pod.seen, pod.known, False), FORGOTTEN[stage]


# ---- which of two states comes first ---------------------------------------------------------------------------------


def _known(one: Id, *, sure: bool) -> object:
    """What the daemon knows, but for whether time has passed."""
    given = (*one.given[:2], one.given[2] in (FRESH, SETTLED), *one.given[3:]) if one.given else ()
    return given, tuple(sorted(pod[1:] for pod in one.pods if pod[1:] != (0, False))), sure


def _becomes(early: Id, late: Id) -> bool:
    """Whether the one can become the other without the daemon noticing. Of a pod that it does not know nothing may be
    left."""
    if early == late:
        return True
    if early.given and early.given[2] > late.given[2]:
        return False
    for group in {pod[1:] for pod in late.pods}:
        before = tuple(pod.stage for pod in early.pods if pod[1:] == group)
        after = tuple(pod.stage for pod in late.pods if pod[1:] == group)
        if not _match(before, after):
            return False
    return True


@cache
def _match(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    if len(after) > len(before):
        return False
    return any(
        all(stage in BECOMES[was] for was, stage in zip(some, after, strict=False))
        for some in permutations(before, len(after))
    )
