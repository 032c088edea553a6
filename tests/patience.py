"""How long tests wait: every deadline of a test is for a quiet machine and is scaled by this machine's patience.

`NODEWARD_PATIENCE` names it: the runner measures it when a part begins, a slow guest for itself. Without it the first
question measures. A deadline of the product is under test and is never scaled.
"""

import functools
import os
import time
from typing import Final

_LOOP: Final = 2_000_000
_WALL_NOMINAL_S: Final = 0.05
_PROCESSOR_NOMINAL_S: Final = 0.03
"""Of the machine on which the caps of tests/running/parts.py were measured."""


def measured() -> tuple[float, float]:
    """How much slower than a quiet machine this one is now, from 1 to 10: by the clock, and by processor time."""
    start, used = time.perf_counter(), time.process_time()
    total = 0
    for number in range(_LOOP):
        total += number
    wall, processor = time.perf_counter() - start, time.process_time() - used
    return min(10.0, max(1.0, wall / _WALL_NOMINAL_S)), min(10.0, max(1.0, processor / _PROCESSOR_NOMINAL_S))


@functools.cache
def patience() -> float:
    """By how much every deadline of a test is multiplied, from 1 to 10."""
    return float(os.environ.get("NODEWARD_PATIENCE") or measured()[0])


def scaled(seconds: float) -> float:
    """The seconds of a deadline on this machine, for those of a quiet one."""
    return seconds * patience()
