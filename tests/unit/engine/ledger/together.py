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
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise, product
from math import comb
from operator import add
from time import process_time
from typing import NamedTuple

from nodeward.engine.ledger import gate
from nodeward.engine.ledger.gate import Grant, Offer
from nodeward.engine.ledger.rule import count
from nodeward.model.workload import PodUid
from tests.unit.engine.ledger.alone import Alones
from tests.unit.engine.ledger.histories import ALIVE, BOXED, ENDED, IDLE, LET, LOST, WAITING, Id, Pod
from tests.unit.engine.ledger.played import Memory, Seen

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


class Face(NamedTuple):
    """Ids as a question meets them: all that the step adds up of them, or of one id each pod; how many VMs of their
    pods run at each read, and how many of those begin or end."""

    pods: tuple[tuple[int, ...], ...]
    adds: tuple[int, ...]
    held: Held
    moved: int


class Worst(NamedTuple):
    """The worst world of those that look alike: how many keys are taken or on their way, and one that it is."""

    taken: int
    given: tuple[tuple[int, ...], ...]
    rows: tuple[tuple[Seen, ...], ...]


Faces = dict[Face, Worst]


@dataclass
class Weighed:
    """What came out."""

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
    short: Counter[int] = field(default_factory=Counter)
    """Starts let through for which the kernel had no key, likewise."""

    @property
    def wrong(self) -> int:
        """Grants and starts that should not have been."""
        return self.unsafe.total() + self.short.total() + self.unpublished


def weigh(alones: Alones, most_moved: int) -> Weighed:
    """All histories of a node whose ids these are, with up to `most_moved` VM transitions a sample."""
    found = Weighed(len(alones.all))
    for sure in (False, True):
        ids = [one for one, known in alones.all if known is sure]
        found.worlds += comb(len(ids) + alones.size - 1, alones.size)
        weighing = _Weighing(alones, most_moved, found, sure=sure)
        weighing.grants(ids)
        weighing.starts(ids)
    found.asked = alones.played.calls
    return found


class _Weighing:
    def __init__(self, alones: Alones, most_moved: int, found: Weighed, *, sure: bool) -> None:
        self.size, self.order, self.played = alones.size, alones.order, alones.played
        self.most_moved, self.found, self.sure = most_moved, found, sure
        self.last = self.order.rindex("R")
        self.ways = {(stage, dead): list(self._ways(stage, dead)) for stage in range(8) for dead in (False, True)}
        self.sums: dict[object, tuple[int, ...]] = {}

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

    def _read(self, way: Way) -> tuple[int, ...]:
        return tuple(held for held, kind in zip(way.held, self.order, strict=True) if kind == "P")

    def _faces(self, one: Id, *, starts: bool, starter: int = -1) -> Faces:
        """The id as a question meets it, of an Allocate or a start; `starter` is the pod that is to start."""
        front: Faces = {Face((), (), (0,) * len(self.order), 0): Worst(0, (one.given,), ((),))}
        for number, pod in enumerate(one.pods):
            after: Faces = {}
            ways = self._of(pod, starts=starter >= 0, is_starter=number == starter)
            for (face, worst), way in product(front.items(), ways):
                held = tuple(a + b for a, b in zip(face.held, way.held, strict=True))
                if face.moved + way.moved > self.most_moved or max(held) > self.size:
                    continue
                reads = tuple(one for one, kind in zip(way.held, self.order, strict=True) if kind == "P")
                told = (int(pod.seen == 1), int(pod.known if starts else way.sandbox), *sorted(reads))
                pods = tuple(sorted((*face.pods, told))) if any(told) else face.pods
                row = (*worst.rows[0], Seen(pod.seen, pod.known, way.sandbox, reads))
                taken = worst.taken + (way.let if starts else way.promised)
                _put(after, Face(pods, (), held, face.moved + way.moved), Worst(taken, worst.given, (row,)))
            front = after
        return front

    def _of(self, pod: Pod, *, starts: bool, is_starter: bool) -> list[Way]:
        """While one starts kubelet's checkpoint has all others that live."""
        if is_starter:
            return self.ways[WAITING, False][:1]
        return self.ways[pod.stage, starts and not pod.seen and pod.stage in ALIVE]

    # ---- all of them -------------------------------------------------------------------------------------------------

    def _beside(self, some: Faces, others: Faces) -> Faces:
        """Each of these beside each of those."""
        found: Faces = {}
        for (face, worst), (other, also) in product(some.items(), others.items()):
            moved = face.moved + other.moved
            held = tuple(map(add, face.held, other.held))
            if moved > self.most_moved or max(held) > self.size:
                continue
            key = Face(face.pods, tuple(map(add, face.adds, other.adds)), held, moved)
            if key not in found or found[key].taken < worst.taken + also.taken:
                found[key] = Worst(worst.taken + also.taken, worst.given + also.given, worst.rows + also.rows)
        return found

    def _memory(self, worst: Worst, roots: tuple[int, ...]) -> Memory:
        """Every id's, the free ones' too."""
        free = self.size - len(worst.given)
        return Memory((*worst.given, *((),) * free), (*worst.rows, *((),) * free), self.size, self.sure, roots)

    def _roots(self, held: Held) -> tuple[int, ...]:
        return tuple(one for one, kind in zip(held, self.order, strict=True) if kind == "R")

    def _foreign(self, held: Held, moved: int) -> Iterator[tuple[Held, int]]:
        """How many keys foreigners may hold at each read, and the transitions with theirs."""
        front: list[tuple[Held, int]] = [((first,), moved) for first in range(self.size - held[0] + 1)]
        for one in held[1:]:
            front = [
                ((*before, now), spent + abs(now - before[-1]))
                for before, spent in front
                for now in range(self.size - one + 1)
                if spent + abs(now - before[-1]) <= self.most_moved
            ]
        yield from front

    def _questions(self, faces: Faces, *, starts: bool) -> Iterator[tuple[int, int, Memory, int]]:
        """All that can be asked: how many keys are taken at worst, after how many transitions, and where; what the step
        is told, and how many VMs of pods run all along."""
        found: dict[tuple[Face, Held], tuple[int, Worst, Held]] = {}
        for face, worst in faces.items():
            for foreign, moved in self._foreign(face.held, face.moved):
                roots = self._roots(tuple(map(add, face.held, foreign)))
                taken = worst.taken + foreign[self.last] + (face.held[self.last] if starts else 0)
                key = (Face(face.pods, face.adds, (), moved), roots)
                if key not in found or found[key][0] < taken:
                    found[key] = (taken, worst, face.held)
        for (face, roots), (taken, worst, held) in found.items():
            yield taken, face.moved, self._memory(worst, roots), min(held)

    def grants(self, ids: list[Id]) -> None:
        each: Faces = {}
        for one in ids:
            for face, worst in self._faces(one, starts=False).items():
                key = (one.given[:1], face.pods)
                if key not in self.sums:
                    self.sums[key] = adds_up(worst.given[0], worst.rows[0], sure=self.sure)
                _put(each, face._replace(pods=(), adds=self.sums[key]), worst)
        some = each
        for _ in range(self.size - 1):
            some = self._beside({face: worst for face, worst in some.items() if self._granted(face, worst)}, each)
        found = self.found
        for taken, moved, memory, running in self._questions(some, starts=False):
            found.naive += taken + 1 > self.size
            if self.played.allocate(memory, 0)[0].answer == "granted":
                found.grants += 1
                found.unsafe[moved] += taken + 1 > self.size
                found.beside_charged += taken == self.size - 1 == running
                found.unpublished += self.played.allocate(memory._replace(published=0), 0)[0].answer == "granted"

    def _granted(self, face: Face, worst: Worst) -> bool:
        """Whether another id is granted while the rest are free."""
        return self.played.allocate(self._memory(worst, self._roots(face.held)), 0)[0].answer == "granted"

    def starts(self, ids: list[Id]) -> None:
        each: Faces = {}
        starters: Faces = {}
        for one in ids:
            for face, worst in self._faces(one, starts=True).items():
                _put(each, face._replace(pods=(), adds=(_pending(worst),)), worst)
            for number, pod in enumerate(one.pods):
                if pod.stage == WAITING and pod.seen:
                    for face, worst in self._faces(one, starts=True, starter=number).items():
                        _put(starters, face._replace(adds=(0,)), worst)
        some = {
            face: worst for face, worst in starters.items() if self._let(self._memory(worst, self._roots(face.held)))
        }
        for _ in range(self.size - 1):
            some = self._beside(some, each)
        for taken, moved, memory, _ in self._questions(some, starts=True):
            if self._let(memory):
                self.found.starts += 1
                self.found.short[moved] += taken + 1 > self.size

    def _let(self, memory: Memory) -> bool:
        return self.played.start(memory, 0).answer == "let"


def _put(faces: Faces, face: Face, worst: Worst) -> None:
    if face not in faces or faces[face].taken < worst.taken:
        faces[face] = worst


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
    claims, nobodys = gate.claims(offer.grants, offer.held, {}, started, charged, {}, sure=sure)
    found = count(0, 0, (0,), claims.values())
    return found.claimed, found.charged, nobodys - PHANTOM


def _pending(worst: Worst) -> int:
    """Starts of the id's pods that were let through and whose keys are not taken."""
    ((row,), (given,)) = worst.rows, worst.given
    return gate.pending(_offer(given, row), {_uid(number): min(seen.reads) for number, seen in enumerate(row)})


def main() -> None:
    """`python -m tests.unit.engine.ledger.together KEYS TRANSITIONS`: a row for each number of keys up to that."""
    most, most_moved = (int(word) for word in sys.argv[1:])
    print("keys  id states       worlds    asked   grants  unsafe: naive  ours, by transitions   starts  short  CPU s")
    for size in range(1, most + 1):
        begun = process_time()
        one = weigh(Alones(size), most_moved)
        unsafe = {moved: amount for moved, amount in sorted(one.unsafe.items()) if amount}
        print(
            f"{size:4} {one.states:10} {one.worlds:12.4g} {one.asked:8} {one.grants:8} {one.naive:14} "
            f"{unsafe or 0!s:>21} {one.starts:8} {one.short.total():6} {process_time() - begun:6.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
