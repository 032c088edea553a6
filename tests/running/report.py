"""What parts said, in numbers: counts of outcomes, slowest cases, a table of the tiers, and what is over a cap.

A cap is processor time, since wall time says how busy the machine was. It is scaled by how much slower the processor
was than when the caps were written, as measured when each part begins.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.running.parts import CHECKS, TIERS, Part

SLOWEST = 3
_COUNT = re.compile(r"(\d+) (passed|failed|skipped|error|errors|xfailed)\b")
_SLOW = re.compile(r"^\s*([\d.]+)s (?:call|setup|teardown)\s+(\S.*)$", re.MULTILINE)


class Counts(NamedTuple):
    """Cases by outcome. `failed` has errors too; `excepted` is what pytest calls xfailed."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    excepted: int = 0


@dataclass(frozen=True, slots=True)
class Ran:
    """One part that has ended."""

    part: Part
    began_s: float
    ended_s: float
    processor_s: float
    counts: Counts
    slowest: Sequence[tuple[float, str]] = ()
    factor: float = 1.0
    """How much slower the processor was when the part began than when the caps were written."""


def read(code: int, said: str) -> tuple[Counts, list[tuple[float, str]]]:
    """Counts and slowest cases of a part. One that ended badly and counts no failure has failed itself."""
    counted = [line for line in said.splitlines() if _COUNT.search(line)]
    found = {what.rstrip("s"): int(number) for number, what in _COUNT.findall(counted[-1] if counted else "")}
    failed = found.get("failed", 0) + found.get("error", 0) or int(code not in (0, 5))
    counts = Counts(found.get("passed", 0), failed, found.get("skipped", 0), found.get("xfailed", 0))
    return counts, [(float(took), case.strip()) for took, case in _SLOW.findall(said)]


def total(ran: Sequence[Ran]) -> Counts:
    """The sums."""
    return Counts(*map(sum, zip(*(one.counts for one in ran), strict=True))) if ran else Counts()


def table(ran: Sequence[Ran]) -> list[str]:
    """A line for each tier and, below it, one for each of its slowest cases."""
    lines: list[str] = []
    for tier in (CHECKS, *TIERS):
        if of := [one for one in ran if one.part.tier == tier]:
            wall_s = max(one.ended_s for one in of) - min(one.began_s for one in of)
            counts = ", ".join(f"{number} {outcome}" for outcome, number in total(of)._asdict().items())
            processor_s = sum(one.processor_s for one in of)
            lines.append(f"{tier:10} {counts:52} {wall_s:8.1f} s, {processor_s:7.1f} s of processor")
            slowest = sorted((slow for one in of for slow in one.slowest), reverse=True)[:SLOWEST]
            lines += [f"{'':12}{took_s:8.1f} s  {case}" for took_s, case in slowest]
    return lines


def over(took: Mapping[str, tuple[float, float]], factor: float) -> list[str]:
    """A line for each name whose processor seconds are over its cap; `took` has both."""
    return [
        f"{name}: {processor_s:.1f} s of processor, OVER its cap of {cap_s:g} s x {factor:.2f} (patience)"
        for name, (processor_s, cap_s) in took.items()
        if processor_s > cap_s * factor
    ]
