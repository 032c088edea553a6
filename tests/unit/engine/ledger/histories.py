"""Every history of a small node, against the production rules: kubelet, the kernel, foreigners and a daemon that dies.

Each kernel read is a step of its own, and between any two steps anything else may happen: VMs begin, end and begin
again inside their pods, foreigners come and go, pods end before or after their VM, kubelet asks for any id it was ever
told of (its view is stale) and, now and then, for one that another pod has. Ids and pods are interchangeable, so each
world is put into one order. Times are cut down to what the rules distinguish: a grant is fresh or settled, more was
free already or not.

A grant is unsafe if, at the last read of the root, what everybody then held or was promised, and one more, is more
than there is. What begins after that read is PreStartContainer's part.
"""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import NamedTuple

from nodeward.engine.ledger import gate
from nodeward.engine.ledger.gate import Grant, Offer
from nodeward.engine.ledger.rule import count
from nodeward.model.workload import PodUid

WAITING, PASSED, CHARGED, ENDED, GHOST = range(5)
"""A pod: admitted; let through to start; its VM has a key; gone for kubelet, and its VM is not; gone, and still in the
daemon's view of kubelet."""
ORDER = "RPRP"
"""The reads of a sample: root, pods."""
ALIVE = (WAITING, PASSED, CHARGED)
GIVEN_NS, LATER_NS, SINCE_NS = 1, 1 + gate.SETTLE_NS, 1


class Pod(NamedTuple):
    """A pod that was given one id. What the daemon knows: its place in kubelet's view, its start, two reads."""

    number: int
    stage: int
    seen: bool = False
    shown: bool = False
    """In the view that is under way."""
    known_start: bool = False
    reads: tuple[int, ...] = ()


class Given(NamedTuple):
    """What the daemon remembers of a granted id."""

    times: int
    absent: int
    fresh: bool


class World(NamedTuple):
    """The whole node at one moment. `doing` is what the daemon is at: nothing, a sample, an Allocate of the id
    `wanted`, the start of the pod at the place `wanted`."""

    pods: tuple[Pod, ...]
    foreign: int
    given: tuple[Given | None, ...]
    published: int = 0
    grow_to: int = 0
    growing: bool = False
    sure: bool = False
    viewing: bool = False
    """A view of kubelet's was requested and made, and has not come back yet."""
    doing: str = ""
    wanted: int = -1
    done: int = 0
    """Reads so far."""
    roots: tuple[int, ...] = ()
    promised: int = 0
    """At the last read of the root: what was held or promised."""
    taken: int = 0
    """At the last read of the root: what was held, or let through to be held, by others than the pod that starts."""
    moved: int = 0
    """VMs that began or ended since the first read."""


@dataclass(frozen=True)
class Rules:
    """Which rules are played; a mutant breaks one."""

    no_foreign: bool = False
    fresh_for_nothing: bool = False
    released_early: bool = False
    no_second_gate: bool = False
    unpublished: bool = False


@dataclass
class Explored:
    """What came out. `unsafe` counts unsafe grants by the number of VM transitions within their sample."""

    worlds: int = 0
    grants: int = 0
    beside_charged: int = 0
    """Grants of the last key while every other one was in use by a pod that was promised it: nothing is wasted."""
    unpublished: int = 0
    """Grants beyond what was published."""
    unsafe: Counter[int] = field(default_factory=Counter)
    short: Counter[int] = field(default_factory=Counter)
    """Starts let through, by transitions within their sample, though the kernel had no key for them at the last read of
    the root beside those for which starts were let through before."""

    @property
    def wrong(self) -> int:
        """Grants and starts that should not have been."""
        return self.unsafe.total() + self.short.total() + self.unpublished


def explore(size: int, most_moved: int, rules: Rules = Rules(), *, until_wrong: bool = False) -> Explored:
    """Plays everything that can happen on a node with `size` keys, with up to `most_moved` VM transitions a sample.

    With `until_wrong` it ends at the first wrong that it meets."""
    found = Explored()
    first = World((), 0, (None,) * size)
    known = {first}
    todo = deque([first])
    while todo:
        world = todo.popleft()
        found.worlds += 1
        if until_wrong and found.wrong:
            break
        for after in _steps(world, size, rules, most_moved, found):
            one = _ordered(after, size)
            if one not in known:
                known.add(one)
                todo.append(one)
    return found


def _ordered(world: World, size: int) -> World:
    """The one of all worlds that differ in the names of pods and ids only."""
    asked = world.wanted
    best: World | None = None
    for names in permutations(range(size)) if len(set(world.given)) > 1 or world.pods else [tuple(range(size))]:
        given = tuple(world.given[names.index(number)] for number in range(size))
        if best is not None and _key(given) > _key(best.given):
            continue
        marked = [(pod._replace(number=names[pod.number]), place == asked) for place, pod in enumerate(world.pods)]
        marked.sort()
        pods = tuple(pod for pod, _ in marked)
        wanted = asked
        if world.doing == "start":
            wanted = next(place for place, (_, is_asked) in enumerate(marked) if is_asked)
        elif world.doing == "allocate":
            wanted = names[asked]
        one = world._replace(pods=pods, given=given, wanted=wanted)
        if best is None or (_key(one.given), one.pods, one.wanted) < (_key(best.given), best.pods, best.wanted):
            best = one
    assert best is not None
    return best


def _key(given: tuple[Given | None, ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(() if one is None else tuple(int(part) for part in one) for one in given)


# ---- what happens without the daemon ---------------------------------------------------------------------------------


def _charged(world: World) -> int:
    return sum(pod.stage in (CHARGED, ENDED) for pod in world.pods)


def _steps(world: World, size: int, rules: Rules, most_moved: int, found: Explored) -> Iterator[World]:
    yield from _vms(world, size, most_moved)
    yield from _kubelet(world, size, rules, found)
    yield from _daemon(world, size, rules, found)


def _vms(world: World, size: int, most_moved: int) -> Iterator[World]:
    if world.done and world.moved == most_moved:
        return
    moved = world.moved + 1 if world.done else 0
    full = _charged(world) + world.foreign >= size
    if not full:
        yield world._replace(foreign=world.foreign + 1, moved=moved)
    if world.foreign:
        yield world._replace(foreign=world.foreign - 1, moved=moved)
    for place, pod in enumerate(world.pods):
        if pod.stage == PASSED and not full:
            yield _with(world, place, pod._replace(stage=CHARGED), moved=moved)
        if pod.stage == CHARGED:
            yield _with(world, place, pod._replace(stage=PASSED), moved=moved)
        if pod.stage == ENDED:
            yield _gone(world, place, moved)


def _kubelet(world: World, size: int, rules: Rules, found: Explored) -> Iterator[World]:
    for place, pod in enumerate(world.pods):
        if pod.stage == CHARGED:
            yield _with(world, place, pod._replace(stage=ENDED))
        elif pod.stage in ALIVE and not (world.doing == "start" and world.wanted == place):
            yield _gone(world, place, world.moved)
    if world.doing:
        return
    alive = [pod.number for pod in world.pods if pod.stage in ALIVE]
    if len(alive) <= size:  # it gives an id to two pods at most once at a time
        for number in range(size):
            if alive.count(number) < (2 if len(alive) == len(dict.fromkeys(alive)) else 1):
                yield world._replace(doing="allocate", wanted=number)
    for place, pod in enumerate(world.pods):
        if pod.stage == WAITING:
            if rules.no_second_gate:
                let_through = sum(one.stage == PASSED and one.known_start for one in world.pods)
                found.short[0] += _charged(world) + world.foreign + let_through >= size
                yield _with(world, place, pod._replace(stage=PASSED, known_start=True))
            elif pod.seen:
                yield world._replace(doing="start", wanted=place)


def _with(world: World, place: int, pod: Pod, moved: int | None = None) -> World:
    pods = (*world.pods[:place], pod, *world.pods[place + 1 :])
    return world._replace(pods=pods, moved=world.moved if moved is None else moved)


def _gone(world: World, place: int, moved: int) -> World:
    pod = world.pods[place]
    if pod.seen or pod.shown or pod.reads:
        return _with(world, place, pod._replace(stage=GHOST), moved)
    wanted = world.wanted - 1 if world.doing == "start" and place < world.wanted else world.wanted
    return world._replace(pods=world.pods[:place] + world.pods[place + 1 :], moved=moved, wanted=wanted)


# ---- the daemon ------------------------------------------------------------------------------------------------------


def _daemon(world: World, size: int, rules: Rules, found: Explored) -> Iterator[World]:
    if not world.doing and not world.viewing and any(one is not None and one.fresh for one in world.given):
        yield world._replace(given=tuple(None if one is None else one._replace(fresh=False) for one in world.given))
    yield _died(world)
    if not world.doing:
        yield world._replace(doing="sample")
        yield _viewed(world, rules) if world.viewing else _view(world)
    elif world.done < len(ORDER):
        yield _read(world, ORDER[world.done])
    else:
        yield from _decided(world, size, rules, found)


def _read(world: World, kind: str) -> World:
    if kind == "R":
        root = _charged(world) + world.foreign
        promised = sum(pod.stage != GHOST for pod in world.pods) + world.foreign
        starting = world.wanted if world.doing == "start" else -1
        let_through = sum(
            pod.stage == PASSED and pod.known_start for place, pod in enumerate(world.pods) if place != starting
        )
        return world._replace(
            done=world.done + 1, roots=(*world.roots, root), promised=promised, taken=root + let_through
        )
    pods = tuple(pod._replace(reads=(*pod.reads, int(pod.stage in (CHARGED, ENDED)))) for pod in world.pods)
    return world._replace(done=world.done + 1, pods=pods)


def _decided(world: World, size: int, rules: Rules, found: Explored) -> Iterator[World]:
    reads = ORDER.count("P")
    charged = {uid(place): pod.reads for place, pod in enumerate(world.pods) if len(pod.reads) == reads}
    last = {name: min(values) for name, values in charged.items()}
    offer = gate.settled(_offer(world), last)
    started = {uid(place): 1 for place, pod in enumerate(world.pods) if pod.stage in (PASSED, CHARGED)}
    claims = gate.claims(offer, {}, started, charged, sure=world.sure)
    sums = count(size, 0, world.roots, claims.values())
    free = sums.free + sums.foreign if rules.no_foreign else sums.free
    match world.doing:
        case "sample":
            yield _idle(_remember(world, gate.publish(offer, size, free, SINCE_NS + gate.GROW_NS)))
        case "start":
            yield _started(world, offer, last, size, sums.used, found)
        case _:
            yield from _allocated(world, offer, free, rules, found, size)


def _allocated(world: World, offer: Offer, free: int, rules: Rules, found: Explored, size: int) -> Iterator[World]:
    name = str(world.wanted)
    reused = (name,) if rules.fresh_for_nothing else ()
    asked = replace(offer, published=size) if rules.unpublished else offer
    if rules.fresh_for_nothing and name not in offer.grants:
        asked = replace(asked, grants={**offer.grants, name: Grant(LATER_NS, 0)})
    granted = gate.allocate(asked, (name,), reused, free, LATER_NS, 0)
    if granted is None:
        yield _idle(_remember(world, offer))
        return
    found.grants += 1
    found.unsafe[world.moved] += world.promised + 1 > size
    found.unpublished += offer.published < 1
    alive = [pod for pod in world.pods if pod.stage != GHOST]
    found.beside_charged += len(alive) == size - 1 and all(pod.stage == CHARGED for pod in alive)
    after = _idle(_remember(world, replace(granted, published=max(0, granted.published))))
    yield after  # it died after the grant was on record, and kubelet never heard of it
    yield after._replace(pods=(*after.pods, Pod(world.wanted, WAITING)))


def _started(world: World, offer: Offer, last: dict[PodUid, int], size: int, used: int, found: Explored) -> World:
    name, pod = uid(world.wanted), world.pods[world.wanted]
    others = gate.pending(offer, last, name)
    passed = gate.start(offer, name, 1, last.get(name, 0), size, used, others)
    if passed is None:
        return _idle(_remember(world, offer))
    found.short[world.moved] += world.taken + 1 > size
    return _idle(_with(_remember(world, passed), world.wanted, pod._replace(stage=PASSED, known_start=True)))


def _view(world: World) -> World:
    pods = tuple(pod._replace(shown=pod.stage in ALIVE) for pod in world.pods)
    return world._replace(pods=pods, viewing=True)


def _viewed(world: World, rules: Rules) -> World:
    offer = _offer(world)
    if rules.released_early:
        early = {name: replace(one, at_ns=GIVEN_NS, absent=1) for name, one in offer.grants.items()}
        offer = replace(offer, grants=early)
    held = {uid(place): (str(pod.number),) for place, pod in enumerate(world.pods) if pod.shown}
    pods = tuple(pod._replace(shown=False) for pod in world.pods)
    return _idle(
        _remember(world._replace(pods=pods, sure=True, viewing=False), gate.viewed(offer, held, (), {}, LATER_NS, 0))
    )


def _died(world: World) -> World:
    """It starts again with what is on record of the grants, and has yet to look at everything."""
    given = tuple(None if one is None else one._replace(absent=0) for one in world.given)
    pods = tuple(pod._replace(seen=False, shown=False, known_start=False) for pod in world.pods)
    forgotten = world._replace(pods=pods, given=given, published=0, grow_to=0, growing=False, sure=False, viewing=False)
    return _idle(forgotten)


def _idle(world: World) -> World:
    pods = tuple(pod._replace(reads=()) for pod in world.pods if pod.stage != GHOST or pod.seen or pod.shown)
    return world._replace(pods=pods, doing="", wanted=-1, done=0, roots=(), promised=0, taken=0, moved=0)


# ---- what the daemon remembers, as the production rules have it ------------------------------------------------------


def uid(place: int) -> PodUid:
    """The name of a pod for the production rules."""
    return PodUid(f"p{place}")


def _offer(world: World) -> Offer:
    grants = {
        str(number): Grant(LATER_NS if one.fresh else GIVEN_NS, 0, one.times, one.absent)
        for number, one in enumerate(world.given)
        if one is not None
    }
    held = {uid(place): (str(pod.number),) for place, pod in enumerate(world.pods) if pod.seen}
    passed = {uid(place): 1 for place, pod in enumerate(world.pods) if pod.known_start}
    since = SINCE_NS if world.growing else 0
    return Offer(len(world.given), grants, world.published, world.grow_to, since, passed, held)


def _remember(world: World, offer: Offer) -> World:
    """The world with this as what the daemon remembers; pods stay where they are."""
    found = [offer.grants.get(str(number)) for number in range(len(world.given))]
    given = tuple(None if one is None else Given(one.times, one.absent, one.at_ns == LATER_NS) for one in found)
    pods = tuple(
        pod._replace(seen=uid(place) in offer.held, known_start=uid(place) in offer.passed)
        for place, pod in enumerate(world.pods)
    )
    return world._replace(
        pods=pods,
        given=given,
        published=offer.published,
        grow_to=offer.grow_to,
        growing=offer.grow_since_ns != 0,
    )


def main() -> None:
    """`python -m tests.unit.engine.ledger.histories KEYS TRANSITIONS`: prints what came out."""
    import sys

    size, most_moved = (int(word) for word in sys.argv[1:])
    found = explore(size, most_moved)
    print(f"{size} key(s), up to {most_moved} VM transitions a sample: {found.worlds} worlds, {found.grants} grants")
    print(f"  unsafe grants by transitions:          {dict(sorted(found.unsafe.items()))}")
    print(f"  starts without a key, by transitions:  {dict(sorted(found.short.items()))}")


if __name__ == "__main__":
    main()
