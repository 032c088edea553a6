"""The coarse model: a sample is one instant, and kubelet asks for any id that it was told is healthy, however long ago.

Each id is withheld or free as kubelet last heard, granted, or charged. Between two grants VMs begin, end and begin
again inside their pods, foreigners come and go, ids are released and lists go out, in any order. A grant is unsafe if
what everybody holds or was promised, and one more, is more than there is. A rule that only publishes, and does not look
again when kubelet asks, is played beside ours.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.unit.engine.ledger.played import VIEWED, Given, Memory, Played, Seen

WITHHELD, OFFERED, GRANTED, CHARGED = range(4)
World = tuple[tuple[int, ...], int]
"""What each id is, and how many keys foreigners hold."""
Rule = Callable[[World, int], bool]
"""Whether an id of the world is granted."""


@dataclass
class Explored:
    """What came out, with every id looked at by itself."""

    worlds: int = 0
    grants: int = 0
    unsafe: int = 0


def naive(world: World, place: int) -> bool:
    """Whoever was told that an id is healthy gets it."""
    return True


def ours() -> Rule:
    """The production step. As much is published as there are keys, so that nothing but its fresh look refuses."""
    played = Played()

    def rule(world: World, place: int) -> bool:
        ids, foreign = world
        used = ids.count(CHARGED) + foreign
        given = tuple(Given(1, 0, VIEWED, 1) if one >= GRANTED else () for one in ids)
        pods = tuple(
            (Seen(1, known=False, sandbox=True, reads=(int(one == CHARGED),) * 2),) if one >= GRANTED else ()
            for one in ids
        )
        memory = Memory(given, pods, len(ids), sure=True, roots=(used, used))
        return played.allocate(memory, place)[0].answer == "granted"

    return rule


def explore(size: int, rule: Rule) -> Explored:
    """Plays everything that can happen on a node with `size` keys."""
    found = Explored()
    first = ((WITHHELD,) * size, 0)
    known, todo = {first}, [first]
    while todo:
        world = todo.pop()
        found.worlds += 1
        for after in [*_outside(world, size), *_granted(world, size, rule, found)]:
            if after not in known:
                known.add(after)
                todo.append(after)
    return found


def _outside(world: World, size: int) -> Iterator[World]:
    ids, foreign = world
    full = ids.count(CHARGED) + foreign >= size
    if not full:
        yield ids, foreign + 1
    if foreign:
        yield ids, foreign - 1
    for place, one in enumerate(ids):
        to: tuple[int, ...] = (OFFERED,) if one == WITHHELD else (WITHHELD,)  # a list, or the pod and its VM are gone
        to += (GRANTED,) if one == CHARGED else (CHARGED,) if one == GRANTED and not full else ()
        for other in to:
            yield (*ids[:place], other, *ids[place + 1 :]), foreign


def _granted(world: World, size: int, rule: Rule, found: Explored) -> Iterator[World]:
    ids, foreign = world
    for place, one in enumerate(ids):
        if one == OFFERED and rule(world, place):
            found.grants += 1
            found.unsafe += ids.count(GRANTED) + ids.count(CHARGED) + foreign + 1 > size
            yield (*ids[:place], GRANTED, *ids[place + 1 :]), foreign
