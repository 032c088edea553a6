"""20,000 pods, and 10,000 with a TEE key each, through one daemon on the simulated kernel: does anything stay?

One process, virtual time: what grows is the daemon's memory or a double's. The slope is that of a straight line through
the resident memory, seen after each 250 pods, over the last three quarters.
"""

import os
import time
from collections.abc import Sequence

from bench.measure import memory_mib
from tests.unit.simulated.keyed import KeyedLifetimes
from tests.unit.simulated.lifetimes import Lifetimes

PODS = 20_000
LAST = 15_000
EVERY = 250
KEYED_AT_FIRST = 10
KEYED = 10_000
KEYED_LAST = 7_500


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
    _with_keys()


def _with_keys() -> None:
    """The same of pods that are granted, take and give back a TEE key each, with the ledger in enforce."""
    lived, seen = KeyedLifetimes(), list[float]()
    lived.live(KEYED_AT_FIRST)
    before, files = lived.left(), len(os.listdir("/proc/self/fd"))
    began = time.process_time()
    lived.live(KEYED, EVERY, lambda: seen.append(memory_mib(os.getpid())[0]))
    spent_s = time.process_time() - began
    last = seen[-KEYED_LAST // EVERY :]
    print(
        f"lifetimes: {KEYED} pods with a key each in {spent_s:.0f} s of processor time; resident {last[0]:.1f} MiB, "
        f"then {last[-1]:.1f}: {slope(last) * (len(last) - 1):+.2f} MiB over the last {KEYED_LAST}   (goal < 1 MiB)"
    )
    after, keys = lived.left(), lived.keys_left()
    descriptors = after.kept - before.kept + after.handles - before.handles + len(os.listdir("/proc/self/fd")) - files
    print(
        f"lifetimes: {lived.granted} keys granted; more than before: {after.entries - before.entries + keys.entries} "
        f"entries in slices, {after.slots - before.slots} slots, {keys.granted} grants, {descriptors} descriptors   "
        f"(goal 0); journal of grants {keys.journal_bytes} bytes"
    )
    lived.close()


def slope(values: Sequence[float]) -> float:
    """What the straight line nearest to these values rises from one to the next."""
    middle, mean = (len(values) - 1) / 2, sum(values) / len(values)
    above = sum((at - middle) * (value - mean) for at, value in enumerate(values))
    return above / sum((at - middle) ** 2 for at in range(len(values)))
