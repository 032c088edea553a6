"""All ways in which the id states of alone.py stand beside one another: what the production step grants and starts.

A question is asked once for all worlds that differ in nothing which the step adds up: what pods hold or were promised
beyond each other's, what they hold at least, what was granted that no pod has, and the root's reads. Of those worlds
the worst counts: the one in which the most is promised, or under way, at the last read of the root. Beside that each
read of a sample is an instant of its own, with up to a number of VMs that begin or end in between.

It is too many worlds, never too few: which id states come about together is not asked, so that what is safe here is
safe in every history. Nothing is bounded but the transitions within one sample. Where the step refuses whatever the
other ids are, they are not played: promising more never makes more free.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import pairwise
from math import comb
from operator import add
from time import process_time
from typing import NamedTuple, TypeVar

from nodeward.core.workload import PodUid
from nodeward.features.keys import device_ids
from nodeward.features.keys.rule import count
from nodeward.features.keys.state import Grant, Offer
from tests.unit.features.keys.alone import ALIVE, BOXED, ENDED, IDLE, LET, LOST, WAITING, Alones, Id, Pod
from tests.unit.features.keys.played import Memory, Seen

K = TypeVar("K")
V = TypeVar("V")
PHANTOM = 99
"""So much is granted to nobody beside an id, so that the step's sum tells what its pods lack too."""
Held = tuple[int, ...]
"""How many VMs run at each read of a sample."""


class Way(NamedTuple):
    """How a pod can come through a sample: whether its sandbox stands, whether its VM runs at each read; and at the
    last read of the root, whether it is promised a key or holds one, and whether it is on its way to one."""

    sandbox: bool
    held: Held
    promised: int
    let: int
    moved: int


Face = int
"""Ids as a question meets them, in one number, so that two beside one another are their sum. From its low end, in
digits of four bits: how many VMs of their pods begin or end; how many run at each read; of how many pods the step is
told the same, a digit for each thing that it can be told. Then, in digits of eight, what it adds up, of which the last
may be less than nothing."""
DIGIT, ADDED = 4, 8


class Worst(NamedTuple):
    """The worst world of those that look alike: how many keys are taken or on their way, and one that it is."""

    taken: int
    given: tuple[tuple[int, ...], ...]
    rows: tuple[tuple[Seen, ...], ...]


class Question(NamedTuple):
    """What the step is asked, and the worst world where that is so."""

    taken: int
    """How many keys are taken or on their way."""
    moved: int
    """How many VMs begin or end within its sample."""
    memory: Memory
    running: int
    """How many VMs of pods run all along."""
    hidden: bool
    """A pod's VM runs at both reads of its counter, and not at the root's in between: no counter can show that."""


Faces = dict[Face, Worst]
Row = tuple[int, tuple[Seen, ...]]
"""The same of the pods of one id, whatever was granted of it."""


@dataclass
class Weighed:
    states: int = 0
    """Id states, each for very many."""
    worlds: int = 0
    """So many ways there are to take as many of them as there are keys."""
    asked: int = 0
    """Different questions that the production step answered."""
    grants: int = 0
    """Different questions that were answered by a grant, in the worst of their worlds."""
    naive: int = 0
    """Different questions in whose worst world a grant would be unsafe, had it been given without a look. At least so
    many: what is refused whatever the other ids are is not gone into."""
    starts: int = 0
    beside_charged: int = 0
    """Grants of the last key while every other one was in use."""
    unpublished: int = 0
    """Grants though nothing was published."""
    unsafe: Counter[int] = field(default_factory=Counter)
    """Unsafe grants by the number of VM transitions within their sample."""
    hidden: Counter[int] = field(default_factory=Counter)
    """Those of them that no counter can show: a VM restarts in its pod, unseen by the pod's counter."""
    short: Counter[int] = field(default_factory=Counter)
    """Starts let through for which the kernel had no key, likewise."""

    @property
    def wrong(self) -> int:
        """Grants and starts that should not have been."""
        return self.unsafe.total() + self.short.total() + self.unpublished


def weigh(alones: Alones, most_moved: int, says: Callable[[str], None] = lambda text: None) -> Weighed:
    """All histories of a node whose ids these are, with up to `most_moved` VM transitions a sample; `says` is told how
    far it is."""
    found = Weighed(len(alones.all))
    for sure in (False, True):
        ids = [one for one, known in alones.all if known is sure]
        found.worlds += comb(len(ids) + alones.size - 1, alones.size)
        says(f"{len(ids)} states of an id, {'after' if sure else 'before'} the daemon's first view of kubelet's")
        weighing = _Weighing(alones, most_moved, found, says, sure=sure)
        weighing.grants(ids)
        weighing.starts(ids)
    found.asked = alones.played.calls
    return found


class _Weighing:
    def __init__(
        self, alones: Alones, most_moved: int, found: Weighed, says: Callable[[str], None], *, sure: bool
    ) -> None:
        self.size, self.order, self.played = alones.size, alones.order, alones.played
        self.most_moved, self.found, self.says, self.sure = most_moved, found, says, sure
        self.last = self.order.rindex("R")
        self.is_between = "P" in self.order[: self.last] and "P" in self.order[self.last :]
        self.ways = {(stage, dead): list(self._ways(stage, dead)) for stage in range(8) for dead in (False, True)}
        places = range(1 + len(self.order))
        self.full = _number(8 for _ in places)
        self.room = _number(7 - (self.size if place else most_moved) for place in places)
        self.told_at = DIGIT * len(places)
        self.adds_at = self.told_at + DIGIT * 4 * (self.order.count("P") + 1)
        self.faces, self.foreign = cache(self._faces), cache(self._foreign)

    # ---- one id ------------------------------------------------------------------------------------------------------

    def _ways(self, stage: int, must_end: bool) -> Iterator[Way]:
        """How a pod can come through a sample that is in this stage, or was; and has ended before, if it must."""
        each = len(self.order)
        none = (0,) * each
        boxed = stage in BOXED
        if stage in ALIVE and not must_end:
            yield Way(boxed, none, 1, int(stage == LET), 0)
        yield Way(False, none, 0, 0, 0)
        for number in range(1, 2**each) if stage in (LET, IDLE, ENDED, LOST) else ():
            held = tuple(number >> place & 1 for place in range(each))
            moved = sum(one != other for one, other in pairwise(held))
            if moved > self.most_moved:
                continue
            if boxed and not must_end:
                yield Way(True, held, 1, int(stage == LET and not any(held[: self.last + 1])), moved)
            if list(held) == sorted(held, reverse=True):
                yield Way(False, held, held[self.last], 0, moved)

    def _faces(self, pods: tuple[Pod, ...], *, starts: bool, starter: int = -1) -> dict[Face, Row]:
        """These pods of one id as a question meets them, of an Allocate or a start; `starter` is the pod that is to
        start."""
        if not pods:
            return {0: (0, ())}
        *others, pod = pods
        ways = self._of(pod, starts=starter >= 0, is_starter=starter == len(others))
        adds = [self._with(pod, way, starts=starts) for way in ways]
        found: dict[Face, Row] = {}
        for face, (taken, row) in self.faces(tuple(others), starts=starts, starter=starter).items():
            for more, takes, seen in adds:
                now = face + more
                if not now + self.room & self.full and (now not in found or found[now][0] < taken + takes):
                    found[now] = (taken + takes, (*row, seen))
        return found

    def _with(self, pod: Pod, way: Way, *, starts: bool) -> tuple[Face, int, Seen]:
        """What the pod adds to a face when it comes through like this, what it takes, and what the step is told."""
        reads = tuple(one for one, kind in zip(way.held, self.order, strict=True) if kind == "P")
        told = (sum(reads) << 2) + (int(pod.known if starts else way.sandbox) << 1) + int(pod.seen == 1)
        face = _number((way.moved, *way.held)) + (1 << self.told_at + DIGIT * told if told else 0)
        return face, way.let if starts else way.promised, Seen(pod.seen, pod.known, way.sandbox, reads)

    def _of(self, pod: Pod, *, starts: bool, is_starter: bool) -> list[Way]:
        """While one starts kubelet's checkpoint has all others that live."""
        if is_starter:
            return self.ways[WAITING, False][:1]
        return self.ways[pod.stage, starts and not pod.seen and pod.stage in ALIVE]

    def _told(self, face: Face) -> int:
        """Of how many pods the step is told the same."""
        return (face >> self.told_at) & (1 << self.adds_at - self.told_at) - 1

    def _adding(self, face: Face, adds: Iterable[int]) -> Face:
        """The face with what the step adds up of its pods, in place of what it is told of each."""
        added = sum(one << ADDED * place for place, one in enumerate(adds))
        return (face & (1 << self.told_at) - 1) + (added << self.adds_at)

    def _charged(self, face: Face) -> int:
        """How many VMs run at both reads of their pods, as the step adds them up of an Allocate."""
        return (face >> self.adds_at + ADDED) & (1 << ADDED) - 1

    def _digits(self, face: Face) -> tuple[int, Held]:
        """How many VMs begin or end, and how many run at each read."""
        moved, *held = (face >> DIGIT * place & 15 for place in range(1 + len(self.order)))
        return moved, tuple(held)

    # ---- all of them -------------------------------------------------------------------------------------------------

    def _beside(self, some: Faces, others: Faces) -> Faces:
        found: dict[Face, tuple[int, Worst, Worst]] = {}
        room, full = self.room, self.full
        for face, worst in some.items():
            mine = worst.taken
            for other, also in others.items():
                both = face + other
                if both + room & full:
                    continue
                before = found.get(both)
                if before is None or before[0] < mine + also.taken:
                    found[both] = (mine + also.taken, worst, also)
        return {
            face: Worst(taken, worst.given + also.given, worst.rows + also.rows)
            for face, (taken, worst, also) in found.items()
        }

    def _memory(self, worst: Worst, roots: tuple[int, ...]) -> Memory:
        free = self.size - len(worst.given)
        return Memory((*worst.given, *((),) * free), (*worst.rows, *((),) * free), self.size, self.sure, roots)

    def _roots(self, held: Held) -> tuple[int, ...]:
        return tuple(one for one, kind in zip(held, self.order, strict=True) if kind == "R")

    def _foreign(self, held: Held, moved: int) -> list[tuple[Held, int]]:
        """How many keys foreigners may hold at each read, and the transitions with theirs."""
        front: list[tuple[Held, int]] = [((first,), moved) for first in range(self.size - held[0] + 1)]
        for one in held[1:]:
            front = [
                ((*before, now), spent + abs(now - before[-1]))
                for before, spent in front
                for now in range(self.size - one + 1)
                if spent + abs(now - before[-1]) <= self.most_moved
            ]
        return front

    def _questions(self, faces: Faces, *, starts: bool) -> Iterator[Question]:
        found: dict[tuple[int, int, Held, bool], tuple[int, Worst, Held]] = {}
        for face, worst in faces.items():
            before, held = self._digits(face)
            hidden = self.is_between and not starts and self._charged(face) > held[self.last]
            for foreign, moved in self.foreign(held, before):
                roots = self._roots(tuple(map(add, held, foreign)))
                taken = worst.taken + foreign[self.last] + (held[self.last] if starts else 0)
                key = (face >> self.told_at, moved, roots, hidden)
                if key not in found or found[key][0] < taken:
                    found[key] = (taken, worst, held)
        for (_, moved, roots, hidden), (taken, worst, held) in found.items():
            yield Question(taken, moved, self._memory(worst, roots), min(held), hidden)

    def grants(self, ids: list[Id]) -> None:
        each: Faces = {}
        sums: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = {}
        for (times, pods), given in _first(((one.given[:1], one.pods), one.given) for one in ids).items():
            for face, (taken, row) in self.faces(pods, starts=False).items():
                key = (times, self._told(face))
                if key not in sums:
                    sums[key] = adds_up(given, row, sure=self.sure)
                _put(each, self._adding(face, sums[key]), taken, given, row)
        some = each
        for ids_there in range(1, self.size):
            self.says(f"grants beside {ids_there} of {self.size} ids: {len(some)} that differ")
            some = self._beside({face: worst for face, worst in some.items() if self._granted(face, worst)}, each)
        self.says(f"grants beside {self.size} of {self.size} ids: {len(some)} that differ")
        found = self.found
        for taken, moved, memory, running, hidden in self._questions(some, starts=False):
            is_unsafe = taken + 1 > self.size
            found.naive += is_unsafe
            if self.played.allocate(memory, 0)[0].answer == "granted":
                found.grants += 1
                found.unsafe[moved] += is_unsafe
                found.hidden[moved] += is_unsafe and hidden
                found.beside_charged += taken == self.size - 1 == running
                found.unpublished += self.played.allocate(memory._replace(published=0), 0)[0].answer == "granted"

    def _granted(self, face: Face, worst: Worst) -> bool:
        """Whether another id is granted while the rest are free."""
        return self.played.allocate(self._alone(face, worst), 0)[0].answer == "granted"

    def _alone(self, face: Face, worst: Worst) -> Memory:
        """What the step is told while the rest are free, and no foreigner has a key."""
        return self._memory(worst, self._roots(self._digits(face)[1]))

    def starts(self, ids: list[Id]) -> None:
        each: Faces = {}
        starters: Faces = {}
        sums: dict[int, tuple[int, ...]] = {}
        for pods, given in _first((one.pods, one.given) for one in ids).items():
            for face, (taken, row) in self.faces(pods, starts=True).items():
                told = self._told(face)
                if told not in sums:
                    sums[told] = (_pending(given, row),)
                _put(each, self._adding(face, sums[told]), taken, given, row)
            for number, pod in enumerate(pods):
                if pod.stage == WAITING and pod.seen and pod not in pods[:number]:
                    for face, (taken, row) in self.faces(pods, starts=True, starter=number).items():
                        _put(starters, face, taken, given, row)
        some = {face: worst for face, worst in starters.items() if self._let(self._alone(face, worst))}
        for ids_there in range(1, self.size):
            self.says(f"starts beside {ids_there} of {self.size} ids: {len(some)} that differ")
            some = self._beside(some, each)
        self.says(f"starts beside {self.size} of {self.size} ids: {len(some)} that differ")
        for one in self._questions(some, starts=True):
            if self._let(one.memory):
                self.found.starts += 1
                self.found.short[one.moved] += one.taken + 1 > self.size

    def _let(self, memory: Memory) -> bool:
        return self.played.start(memory, 0).answer == "let"


def _number(digits: Iterable[int]) -> int:
    return sum(one << DIGIT * place for place, one in enumerate(digits))


def _first(pairs: Iterable[tuple[K, V]]) -> dict[K, V]:
    found: dict[K, V] = {}
    for key, one in pairs:
        found.setdefault(key, one)
    return found


def _put(faces: Faces, face: Face, taken: int, given: tuple[int, ...], row: tuple[Seen, ...]) -> None:
    if face not in faces or faces[face].taken < taken:
        faces[face] = Worst(taken, (given,), (row,))


def _offer(given: tuple[int, ...], row: tuple[Seen, ...]) -> Offer:
    """The id with these pods, beside one that was granted for very many and that no pod has."""
    grants = {"phantom": Grant(0, 0, PHANTOM)} | ({"id": Grant(0, 0, given[0])} if given else {})
    held = {_uid(number): ("id",) for number, seen in enumerate(row) if seen.seen == 1}
    return Offer(1, grants, held=held, passed={_uid(number): 1 for number, seen in enumerate(row) if seen.known})


@cache
def _uid(number: int) -> PodUid:
    return PodUid(str(number))


def adds_up(given: tuple[int, ...], row: tuple[Seen, ...], *, sure: bool) -> tuple[int, ...]:
    """What the production rule adds up of an id: what its pods hold or were promised, what they hold at least, and what
    is promised to nobody yet; less than nothing where pods lack what they started with."""
    started = {_uid(number): 1 for number, seen in enumerate(row) if seen.sandbox}
    charged = {_uid(number): seen.reads for number, seen in enumerate(row) if any(seen.reads)}
    offer = _offer(given, row)
    claims, nobodys = device_ids.claims(offer.grants, offer.held, {}, started, charged, {}, sure=sure)
    found = count(0, 0, (0,), claims.values())
    return found.claimed, found.charged, nobodys - PHANTOM


def _pending(given: tuple[int, ...], row: tuple[Seen, ...]) -> int:
    """Starts of the id's pods that were let through and whose keys are not taken."""
    return device_ids.pending(_offer(given, row), {_uid(number): min(seen.reads) for number, seen in enumerate(row)})


def main() -> None:
    """`make explore`: what is found with each number of keys up to the first argument, with so many transitions within
    a sample as the second says; on standard error how far it is."""
    most, most_moved = (int(word) for word in sys.argv[1:])
    for size in range(1, most + 1):
        begun = process_time()
        found = weigh(Alones(size), most_moved, partial(print, file=sys.stderr, flush=True))
        print(f"{size} keys: {found}, {process_time() - begun:.0f} s of processor", flush=True)


if __name__ == "__main__":
    main()
