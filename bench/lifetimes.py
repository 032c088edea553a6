"""20,000 pods through one daemon on the simulated kernel, at full speed: does anything stay?

One process, virtual time: what grows is the daemon's memory or a double's. The slope is that of a straight line through
the resident memory, seen after each 250 pods, over the last three quarters.
"""

import os
import time
from collections.abc import Sequence

from bench.measure import memory_mib
from tests.unit.simulated.lifetimes import Lifetimes

PODS = 20_000
LAST = 15_000
EVERY = 250


def run() -> None:
    """Prints how much resident memory grew over the last pods, and what is left of them."""
    lived, seen = Lifetimes(), list[float]()
    lived.live(10)
    before, files = lived.left(), len(os.listdir("/proc/self/fd"))
    began = time.process_time()
    lived.live(PODS, EVERY, lambda: seen.append(memory_mib(os.getpid())[0]))
    spent_s = time.process_time() - began
    last = seen[-LAST // EVERY :]
    grown = slope(last) * (len(last) - 1)
    print(
        f"lifetimes: {PODS} pods of 3 containers in {spent_s:.0f} s of processor time; resident {last[0]:.1f} MiB, "
        f"then {last[-1]:.1f}: {grown:+.2f} MiB over the last {LAST}   (goal < 1 MiB)"
    )
    after, open_files = lived.left(), len(os.listdir("/proc/self/fd"))
    descriptors = after.kept - before.kept + after.handles - before.handles + open_files - files
    print(
        f"lifetimes: more than before: {after.entries - before.entries} entries in slices, "
        f"{after.slots - before.slots} slots, {descriptors} descriptors   (goal 0)"
    )
    lived.close()


def slope(values: Sequence[float]) -> float:
    """What the straight line nearest to these values rises from one to the next."""
    middle, mean = (len(values) - 1) / 2, sum(values) / len(values)
    above = sum((at - middle) * (value - mean) for at, value in enumerate(values))
    return above / sum((at - middle) ** 2 for at in range(len(values)))
