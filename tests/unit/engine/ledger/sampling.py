"""Every way in which VMs begin and end between the reads of one sample, against the production rule.

The world: `capacity` keys, pods that were promised one key each and hold none or one, foreigners, and a few reads in an
order such as RPRP (R: the root, P: every pod). Between two reads any VM may end, any pod's VM may start and any
foreigner may come or go, as long as the kernel has a key; a foreigner is nobody's pod. A sample is unsafe when, at the
last read of the root, what it calls free is more than what nobody holds or was promised.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nodeward.engine.ledger.rule import Claim, count

World = tuple[tuple[int, ...], int]
"""What each pod holds, and what foreigners hold."""
Reads = tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]
"""The root's counters as read, and all pods' at each of their reads."""


@dataclass(frozen=True)
class Found:
    """The cheapest unsafe sample: how many transitions it takes, and what it looked like."""

    transitions: int
    reads: Reads
    free: int
    really_free: int


def worlds(capacity: int, pods: int) -> Iterator[World]:
    """Every world that the kernel allows; pods are interchangeable, so their holdings are in order."""
    for holding in range(pods + 1):
        charged = (1,) * holding + (0,) * (pods - holding)
        for foreign in range(capacity - holding + 1):
            yield charged, foreign


def after(world: World, capacity: int) -> Iterator[World]:
    """Every world one transition away."""
    charged, foreign = world
    full = sum(charged) + foreign >= capacity
    for place, held in enumerate(charged):
        if held:
            yield (*charged[:place], 0, *charged[place + 1 :]), foreign
        elif not full:
            yield (*charged[:place], 1, *charged[place + 1 :]), foreign
    if foreign:
        yield charged, foreign - 1
    if not full:
        yield charged, foreign + 1


def read(order: str, world: World, reads: Reads) -> Reads:
    """The reads with one more, of the kind `order`."""
    roots, pods = reads
    charged, foreign = world
    return ((*roots, sum(charged) + foreign), pods) if order == "R" else (roots, (*pods, charged))


def sampled(capacity: int, pods: int, reads: Reads) -> int:
    """What the production rule calls free after these reads."""
    roots, by_read = reads
    claims = [Claim(1, tuple(row[pod] for row in by_read)) for pod in range(pods)]
    return count(capacity, 0, roots, claims).free


def cheapest(capacity: int, pods: int, order: str, most: int = 4) -> Found | None:
    """The unsafe sample with the fewest transitions, None where there is none with up to `most`."""
    last_root = order.rindex("R")
    # How a history so far can differ for what follows: the world, the reads, what was free at the last root.
    front: dict[tuple[World, Reads, int], None] = {(world, ((), ()), 0): None for world in worlds(capacity, pods)}
    by_cost = {0: front}
    for place, kind in enumerate(order):
        spread = _spread(by_cost, capacity, most) if place else by_cost
        by_cost = {}
        for cost, states in spread.items():
            for world, reads, free in states:
                really = capacity - pods - world[1] if place == last_root else free
                by_cost.setdefault(cost, {})[(world, read(kind, world, reads), max(0, really))] = None
    for cost in sorted(by_cost):
        for _, reads, really in by_cost[cost]:
            free = sampled(capacity, pods, reads)
            if free > really:
                return Found(cost, reads, free, really)
    return None


def _spread(
    by_cost: dict[int, dict[tuple[World, Reads, int], None]], capacity: int, most: int
) -> dict[int, dict[tuple[World, Reads, int], None]]:
    """The states after any number of transitions, at their least cost."""
    least: dict[tuple[World, Reads, int], int] = {}
    for cost in range(most + 1):
        fresh = dict(by_cost.get(cost, {}))
        for (world, reads, free), known in list(least.items()):
            if known == cost - 1:
                fresh |= {(to, reads, free): None for to in after(world, capacity)}
        for state in fresh:
            least.setdefault(state, cost)
    found: dict[int, dict[tuple[World, Reads, int], None]] = {}
    for state, cost in least.items():
        found.setdefault(cost, {})[state] = None
    return found
