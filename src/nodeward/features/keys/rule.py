"""How many keys of one kind may still be sold: a few sums over integers (features/keys, R1 to R3).

The kernel's counters say what is charged, never what is promised; a promised key may be charged at any moment. So each
pod's claim is the larger of the two, whatever the root holds beyond the pods' is foreign, and

    free = max(0, capacity - sum of claims - foreign - reserve)

Where counters differ from read to read, what makes `free` smaller is taken: the largest root, each pod's smallest
charge when it is subtracted from the root, its largest when it is a claim. tests/unit/features/keys/sampling.py plays
every case of the order in which they are read.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodKeys:
    """What one pod may hold: what it was promised, and each read of its counter in the order of the reads."""

    entitled: int = 0
    charged: tuple[int, ...] = ()
    """Empty where the pod's counter could not be read: its keys then count as foreign too, which sells too few."""


@dataclass(frozen=True, slots=True)
class Count:
    """The sums of one kind of key at one sample; the terms of `free`."""

    capacity: int
    used: int
    """What the root held, whoever charged it."""
    entitled: int
    charged: int
    """What the pods held at least."""
    claimed: int
    foreign: int
    reserve: int
    free: int
    blind: bool = False
    """A pod's counter had wrapped below zero, so no charge is attributed: every promise counts beside all of `used`."""
    wrapped: bool = False
    """The root's counter had wrapped below zero: nobody can tell what is taken, and nothing is free."""


def together(pods: Iterable[PodKeys]) -> PodKeys:
    """One claim that counts as much as all of these: what they were promised, and as its reads what they hold at least
    and what they may hold. As a counter that has wrapped where one of theirs has."""
    entitled = charged = claimed = 0
    wrapped = False
    for claim in pods:
        promised, reads = claim.entitled, claim.charged
        entitled += promised
        if not reads:
            claimed += promised
            continue
        least, most = min(reads), max(reads)
        wrapped = wrapped or least < 0
        charged += least
        claimed += max(promised, most)
    return PodKeys(entitled, (-1, -1) if wrapped else (charged, claimed))


def count(capacity: int, reserve: int, roots: tuple[int, ...], pods: Iterable[PodKeys]) -> Count:
    """The sums, from each read of the root's counter (at least one) and every pod's claim."""
    every = together(pods)
    charged, claimed = every.charged
    entitled, used, wrapped = every.entitled, max(roots), min(roots) < 0
    blind = wrapped or charged < 0
    if blind:
        charged, claimed, foreign = 0, entitled, max(used, 0)
    else:
        foreign = max(0, used - charged)
    free = 0 if wrapped else max(0, capacity - claimed - foreign - reserve)
    return Count(capacity, used, entitled, charged, claimed, foreign, reserve, free, blind, wrapped)
