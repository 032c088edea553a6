"""Every history of a small node, against the production step: kubelet, the kernel, foreigners and a daemon that dies.

Each read of a sample is an instant of its own, and up to a number of VMs begin or end between the reads of one sample.
Between the questions anything may happen: VMs begin, end and begin again inside their pods, foreigners come and go,
pods end before or after their VM, kubelet asks for any id it was ever told of and, now and then, for one that another
pod has, its answers get lost, the journal cannot be written, and the daemon dies.

What makes it small without losing a case:

- Ids and pods are interchangeable. A world is a sorted tuple of ids, each with the sorted tuple of its pods.
- Times are cut down to what the rules distinguish: a grant is fresh, settled, or seen by a view since. Growth may have
  waited long enough at any sample, or not.
- Kubelet's view is not a state. One that comes names each pod that lives and was settled before; of those that have
  ended, or were just admitted, any. So it is as stale as it may be. Whether the daemon has heard of a pod's end is open
  in the same way, each time anew.
- While the kernel is read no pod ends: that would only make fewer promises out of what was read. And nobody else is
  answered meanwhile.

So it is played for one key, and for two with a bound; with more there are too many worlds. alone.py and together.py
play those by what is the same in very many of them, and are held against this.

A grant is unsafe if, at the last read of the root, what everybody then held or was promised, and one more, is more
than there is. What begins after that read is PreStartContainer's part.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, product
from typing import NamedTuple

from tests.unit.engine.ledger.played import FRESH, SETTLED, After, Given, Memory, Played, Seen

WAITING, LET, IDLE, CHARGED, ENDED, LOST, GHOST, GONE = range(8)
"""A pod: admitted; let through to start, and without a key since; its sandbox stands without a key; its VM has a key.
Ended, with a VM that is not: still in kubelet's checkpoint, or no longer. Ended with its VM: the same two."""
ALIVE = (WAITING, LET, IDLE, CHARGED)
BOXED = (LET, IDLE, CHARGED)
HOLDING = (CHARGED, ENDED, LOST)
OVER = (GHOST, GONE)
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


class World(NamedTuple):
    """The whole node between two questions."""

    ids: tuple[Id, ...]
    foreign: int = 0
    published: int = 0
    sure: bool = False


@dataclass
class Explored:
    """What came out. `unsafe` counts unsafe grants by the number of VM transitions within their sample."""

    worlds: int = 0
    asked: int = 0
    """Different questions that the production step answered."""
    grants: int = 0
    again: int = 0
    """Grants of an id whose pod has ended, before it was released."""
    beside_charged: int = 0
    """Grants of the last key while every other one was in use by a pod that was promised it: nothing is wasted."""
    unpublished: int = 0
    """Grants beyond what was published."""
    unsafe: Counter[int] = field(default_factory=Counter)
    short: Counter[int] = field(default_factory=Counter)
    """Starts let through, by transitions within their sample, though the kernel had no key for them at the last read of
    the root beside those for which starts were let through before."""
    overtaken: Counter[int] = field(default_factory=Counter)
    """Grants that were good at the last read of the root, and for which there was no key any more when the answer left:
    foreigners took it in between. By transitions; not wrong, since the start is put off."""
    put_off: int = 0
    """Starts refused where the kernel had no key for them beside the others on their way."""

    @property
    def wrong(self) -> int:
        """Grants and starts that should not have been."""
        return self.unsafe.total() + self.short.total() + self.unpublished


def explore(
    size: int,
    most_moved: int,
    most_ended: int = 99,
    *,
    order: str = ORDER,
    until_wrong: bool = False,
    played: Played | None = None,
    met: Callable[[World], None] = lambda world: None,
) -> Explored:
    """Plays everything that can happen on a node with `size` keys, with up to `most_moved` VM transitions a sample, and
    up to `most_ended` pods at once that have ended and are not forgotten by everybody; `met` is told of each world.

    With `until_wrong` it ends at the first wrong that it meets."""
    return _Exploration(size, most_moved, most_ended, order, played or Played()).run(met, until_wrong=until_wrong)


class _Exploration:
    def __init__(self, size: int, most_moved: int, most_ended: int, order: str, played: Played) -> None:
        self.most_ended = most_ended
        self.size, self.found, self.played = size, Explored(), played
        self.reads = cache(lambda stages, foreign: tuple(reads(stages, foreign, size, most_moved, order)))

    def run(self, met: Callable[[World], None], *, until_wrong: bool) -> Explored:
        first = World((Id(),) * self.size)
        known, todo, found = {first}, deque([first]), self.found
        while todo and not (until_wrong and found.wrong):
            world = todo.popleft()
            met(world)
            found.worlds += 1
            for after in chain(self._outside(world), self._inside(world)):
                if after not in known:
                    known.add(after)
                    todo.append(after)
        found.asked = self.played.calls
        return found

    # ---- what happens without the daemon -----------------------------------------------------------------------------

    def _outside(self, world: World) -> Iterator[World]:
        full = _charged(world.ids) + world.foreign >= self.size
        if not full:
            yield world._replace(foreign=world.foreign + 1)
        if world.foreign:
            yield world._replace(foreign=world.foreign - 1)
        may_end = sum(pod.stage not in ALIVE for one in world.ids for pod in one.pods) < self.most_ended
        for place, one in enumerate(world.ids):
            if one.given and one.given[2] == FRESH:
                yield _with(world, place, one._replace(given=Given(*one.given)._replace(age=SETTLED)))
            for number, pod in enumerate(one.pods):
                if number and one.pods[number - 1] == pod:
                    continue
                for after in _lives(pod, full=full, may_end=may_end):
                    yield _with(world, place, _with_pod(one, number, after))

    # ---- the daemon --------------------------------------------------------------------------------------------------

    def _inside(self, world: World) -> Iterator[World]:
        yield self._died(world)
        yield from self._samples(world)
        for memory in _views(world):
            yield _remembered(_forgotten(world, memory), self.played.view(memory))
        for memory in _heard(world):
            yield _remembered(world, self.played.hear(memory))
        alive = [sum(pod.stage in ALIVE for pod in one.pods) for one in world.ids]
        for place, one in enumerate(world.ids):
            if place and one == world.ids[place - 1]:
                continue
            if sum(alive) <= self.size and alive[place] < (2 if max(alive) < 2 else 1):  # it gives one id twice at most
                yield from self._allocated(world, place)
            for number, pod in enumerate(one.pods):
                is_first = not (number and one.pods[number - 1] == pod)
                if pod.stage == WAITING and is_first and all(other.seen for other in one.pods if other.stage in ALIVE):
                    yield from self._started(world, place, number)

    def _died(self, world: World) -> World:
        """It starts again with what is on record of the grants, and has yet to look at everything. A start that it has
        let through before is played in starts.py: here its VM may begin, and nobody need leave it a key."""
        given = self.played.recall(_memory(world, [()] * self.size)).given
        ids = []
        for place, one in enumerate(world.ids):
            pods = (Pod(IDLE if pod.stage == LET else pod.stage) for pod in one.pods if pod.stage != GONE)
            ids.append(Id(given[place], tuple(sorted(pods))))
        return World(tuple(sorted(ids)), world.foreign)

    def _sampled(self, world: World) -> Iterator[tuple["Read", Memory, World]]:
        """Every way in which a sample comes out: the reads, what the daemon is told, and the world at their end."""
        stages = tuple(pod.stage for one in world.ids for pod in one.pods)
        for read in self.reads(stages, world.foreign):
            left = iter(read.stages)
            moved = (one._replace(pods=tuple(Pod(next(left), *pod[1:]) for pod in one.pods)) for one in world.ids)
            yield read, _read(world, read), world._replace(ids=tuple(moved), foreign=read.foreign)

    def _samples(self, world: World) -> Iterator[World]:
        for _, memory, after in self._sampled(world):
            for grown in (False, True):
                yield _remembered(after, self.played.sample(memory._replace(grown=grown)))

    def _allocated(self, world: World, place: int) -> Iterator[World]:
        found = self.found
        for read, memory, moved in self._sampled(world):
            granted, *failed = self.played.allocate(memory, place)
            for after in failed:
                yield _remembered(moved, after)
            if not failed:
                yield _remembered(moved, granted)
                continue
            found.grants += 1
            found.again += granted.idle
            found.unsafe[read.moved] += read.promised + 1 > self.size
            found.overtaken[read.moved] += read.promised + 1 <= self.size < _promised(read) + 1
            found.unpublished += granted.before < 1
            living = [pod for one in world.ids for pod in one.pods if pod.stage not in OVER]
            found.beside_charged += len(living) == self.size - 1 and all(pod.stage == CHARGED for pod in living)
            yield _remembered(moved, granted)  # the answer got lost on its way
            yield _remembered(moved, granted, admitted=place)
            if sum(pod.stage in FORGOTTEN for one in moved.ids for pod in one.pods) == 1:
                yield _remembered(moved, granted, admitted=place, forgets=False)  # an older view is still on its way

    def _started(self, world: World, place: int, number: int) -> Iterator[World]:
        at = sum(len(one.pods) for one in world.ids[:place]) + number
        for read, memory, moved in self._sampled(world):
            after = self.played.start(memory, place)
            is_short = read.root + read.let - (read.stages[at] == LET) + 1 > self.size
            self.found.put_off += is_short and after.answer != "let"
            if after.answer == "let":
                self.found.short[read.moved] += is_short
                one = moved.ids[place]
                ids = (*moved.ids[:place], _with_pod_unsorted(one, number, LET), *moved.ids[place + 1 :])
                moved = moved._replace(ids=ids)
            yield _remembered(moved, after)


def _lives(pod: Pod, *, full: bool, may_end: bool) -> Iterator[Pod]:
    """What can become of a pod by itself."""
    match pod.stage:
        case 3:  # CHARGED
            yield pod._replace(stage=IDLE)
            if may_end:
                yield pod._replace(stage=ENDED)
        case 4 | 5:  # ENDED, LOST
            yield pod._replace(stage=_without_vm(pod.stage))
        case 0 | 1 | 2:  # WAITING, LET, IDLE
            if may_end:
                yield pod._replace(stage=GHOST)
            if pod.stage and not full:
                yield pod._replace(stage=CHARGED)


def _without_vm(stage: int) -> int:
    return {CHARGED: IDLE, ENDED: GHOST, LOST: GONE}[stage]


def _charged(ids: Iterable[Id]) -> int:
    return sum(pod.stage in HOLDING for one in ids for pod in one.pods)


def _with(world: World, place: int, one: Id) -> World:
    return world._replace(ids=tuple(sorted((*world.ids[:place], one, *world.ids[place + 1 :]))))


def _with_pod(one: Id, number: int, pod: Pod) -> Id:
    return one._replace(pods=tuple(sorted((*one.pods[:number], pod, *one.pods[number + 1 :]))))


def _with_pod_unsorted(one: Id, number: int, stage: int) -> Id:
    pod = one.pods[number]._replace(stage=stage)
    return one._replace(pods=(*one.pods[:number], pod, *one.pods[number + 1 :]))


# ---- the reads of a sample -------------------------------------------------------------------------------------------


class Read(NamedTuple):
    """A way in which a sample can come out: what was read, how things stood at the last read of the root, and after."""

    stages: tuple[int, ...]
    foreign: int
    roots: tuple[int, ...] = ()
    pods: tuple[tuple[int, ...], ...] = ()
    moved: int = 0
    root: int = 0
    let: int = 0
    promised: int = 0


def reads(stages: tuple[int, ...], foreign: int, size: int, most_moved: int, order: str) -> Iterable[Read]:
    """Every outcome of a sample that begins here."""
    front = {Read(stages, foreign, pods=((),) * len(stages)): None}
    for place, kind in enumerate(order):
        if place:
            front = _moved(front, size, most_moved)
        front = {_once(read, kind): None for read in front}
    return front


def _moved(front: dict[Read, None], size: int, most_moved: int) -> dict[Read, None]:
    """The same after any VMs have begun or ended, as many as there may be."""
    found, todo = dict(front), list(front)
    while todo:
        read = todo.pop()
        if read.moved == most_moved:
            continue
        for stages, foreign in _one_moves(read.stages, read.foreign, size):
            one = read._replace(stages=stages, foreign=foreign, moved=read.moved + 1)
            if one not in found:
                found[one] = None
                todo.append(one)
    return found


def _one_moves(stages: tuple[int, ...], foreign: int, size: int) -> Iterator[tuple[tuple[int, ...], int]]:
    full = sum(stage in HOLDING for stage in stages) + foreign >= size
    if not full:
        yield stages, foreign + 1
    if foreign:
        yield stages, foreign - 1
    for place, stage in enumerate(stages):
        to = _without_vm(stage) if stage in HOLDING else CHARGED if stage in (LET, IDLE) else None
        if to is not None and not (to == CHARGED and full):
            yield (*stages[:place], to, *stages[place + 1 :]), foreign


def _once(read: Read, kind: str) -> Read:
    held = sum(stage in HOLDING for stage in read.stages)
    if kind == "P":
        pods = ((*before, int(stage in HOLDING)) for before, stage in zip(read.pods, read.stages, strict=True))
        return read._replace(pods=tuple(pods))
    root = held + read.foreign
    return read._replace(roots=(*read.roots, root), root=root, let=read.stages.count(LET), promised=_promised(read))


def _promised(read: Read) -> int:
    """How many keys are promised or held, as things stand."""
    return sum(stage not in OVER for stage in read.stages) + read.foreign


# ---- what the daemon is told and remembers ---------------------------------------------------------------------------


def _seen(pod: Pod, reads: tuple[int, ...] = (), *, ended: bool = False, shown: bool = False) -> Seen:
    return Seen(pod.seen, pod.known, pod.stage in BOXED, reads, ended, shown)


def _memory(world: World, pods: Iterable[Iterable[Seen]], roots: tuple[int, ...] = ()) -> Memory:
    given = tuple(one.given for one in world.ids)
    return Memory(given, tuple(map(tuple, pods)), world.published, world.sure, roots)


def _read(world: World, read: Read) -> Memory:
    """What the daemon knows with these reads."""
    left = iter(read.pods)
    return _memory(world, [[_seen(pod, next(left)) for pod in one.pods] for one in world.ids], read.roots)


def _heard(world: World) -> Iterator[Memory]:
    """What the daemon knows when it hears that one of the pods has ended which it takes for living ones."""
    for at, one in enumerate(world.ids):
        for number, pod in enumerate(one.pods):
            if pod.stage not in ALIVE and pod.seen == 1:
                yield _memory(
                    world,
                    [
                        [_seen(other, ended=(place, spot) == (at, number)) for spot, other in enumerate(row.pods)]
                        for place, row in enumerate(world.ids)
                    ],
                )


def _views(world: World) -> Iterator[Memory]:
    """What the daemon knows with any view that kubelet can give. Of a pod that it sees there for the first time it may
    have heard that it has ended."""
    each = [[_shown(pod, fresh=one.given[2:3] == (FRESH,)) for pod in one.pods] for one in world.ids]
    for flat in product(*chain.from_iterable(each)):
        left = iter(flat)
        yield _memory(world, [[next(left) for _ in row] for row in each])


def _shown(pod: Pod, *, fresh: bool) -> list[Seen]:
    shown = _seen(pod, shown=True)
    if pod.stage in ALIVE:
        return [shown, _seen(pod)] if fresh and not pod.seen else [shown]
    if pod.stage not in FORGOTTEN:
        return [_seen(pod)]
    return [_seen(pod), shown, *([] if pod.seen else [_seen(pod, shown=True, ended=True)])]


def _forgotten(world: World, memory: Memory) -> World:
    """The world after this view: what it does not name, though it was settled, kubelet has forgotten for good."""
    ids = []
    for one, row in zip(world.ids, memory.pods, strict=True):
        settled = one.given[2:3] != (FRESH,)
        pods = (
            pod._replace(stage=FORGOTTEN[pod.stage])
            if pod.stage in FORGOTTEN and not told.shown and (settled or pod.seen)
            else pod
            for pod, told in zip(one.pods, row, strict=True)
        )
        ids.append(one._replace(pods=tuple(pods)))
    return world._replace(ids=tuple(ids))


def _remembered(world: World, after: After, admitted: int = -1, *, forgets: bool = True) -> World:
    """The world with this as what the daemon remembers. With a pod that was admitted, kubelet has forgotten the ended
    ones, and nothing is left of those that the daemon does not see either."""
    ids = []
    for place, one in enumerate(world.ids):
        pods = []
        for pod, (seen, known) in zip(one.pods, after.pods[place], strict=True):
            stage = FORGOTTEN.get(pod.stage, pod.stage) if admitted >= 0 and forgets else pod.stage
            if seen or stage != GONE:
                pods.append(Pod(stage, seen, known))
        if place == admitted:
            pods.append(Pod(WAITING))
        ids.append(Id(after.given[place], tuple(sorted(pods))))
    return World(tuple(sorted(ids)), world.foreign, after.published, after.sure)


def main() -> None:
    """`python -m tests.unit.engine.ledger.histories KEYS TRANSITIONS [ENDED]`: prints what came out."""
    import sys

    size, most_moved, *most_ended = (int(word) for word in sys.argv[1:])
    found = explore(size, most_moved, *most_ended)
    print(f"{size} key(s), up to {most_moved} VM transitions a sample: {found.worlds} worlds, {found.grants} grants")
    print(f"  questions answered by the step:        {found.asked}")
    print(f"  grants of an ended pod's id:           {found.again}")
    print(f"  unsafe grants by transitions:          {dict(sorted(found.unsafe.items()))}")
    print(f"  starts without a key, by transitions:  {dict(sorted(found.short.items()))}")
    print(f"  beyond what was published:             {found.unpublished}")
    print(f"  grants overtaken by foreigners:        {dict(sorted(found.overtaken.items()))}")
    print(f"  starts put off for want of a key:      {found.put_off}")


if __name__ == "__main__":
    main()
