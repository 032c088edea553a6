"""20,000 pods through one daemon on the simulated kernel, twice, and 10,000 with a TEE key each: does anything stay?

The first daemon hears of its pods by NRI, as a node's does: a runtime double calls the production session by frames
over a socket, and the runtime restarts now and then. The others are told of them
by events. One process, virtual time: what grows is the daemon's memory or a double's. The slope is that of a straight
line through the resident memory, seen after each 250 pods, over the last three quarters.
"""

import os
import time
from collections.abc import Sequence

from bench.measure import memory_mib
from tests.unit.simulated.keyed import KeyedLifetimes
from tests.unit.simulated.lifetimes import Lifetimes
from tests.unit.simulated.told_by_nri import NriLifetimes

PODS, AT_FIRST = 20_000, 10
KEYED = 10_000
EVERY = 250


def run() -> None:
    """Prints for each how much resident memory grew over the last pods, and what is left of them."""
    by_nri = NriLifetimes()
    _lives(by_nri, PODS, "pods told by NRI")
    print(
        f"lifetimes: {by_nri.created} creates; {by_nri.restarts} restarts of "
        f"the runtime; faults {by_nri.faults or 'none'}"
    )
    by_nri.close()
    by_events = Lifetimes()
    _lives(by_events, PODS, "pods told by events")
    by_events.close()
    with_keys = KeyedLifetimes()
    _lives(with_keys, KEYED, "pods with a key each")
    keys = with_keys.keys_left()
    print(
        f"lifetimes: {with_keys.granted} keys granted; {keys.granted} grants and {keys.entries} entries of keys "
        f"left   (goal 0); journal of grants {keys.journal_bytes} bytes"
    )
    with_keys.close()


def _lives(lived: Lifetimes, pods: int, which: str) -> None:
    """So many pods, after a few that have everything loaded."""
    seen = list[float]()
    lived.live(AT_FIRST)
    before, files = lived.left(), len(os.listdir("/proc/self/fd"))
    began = time.process_time()
    lived.live(pods, EVERY, lambda: seen.append(memory_mib(os.getpid())[0]))
    spent_s = time.process_time() - began
    last = seen[-(pods * 3 // 4) // EVERY :]
    print(
        f"lifetimes: {pods} {which} in {spent_s:.0f} s of processor time; resident {last[0]:.1f} MiB, "
        f"then {last[-1]:.1f}: {slope(last) * (len(last) - 1):+.2f} MiB over the last {pods * 3 // 4}   (goal < 1 MiB)"
    )
    after, open_files = lived.left(), len(os.listdir("/proc/self/fd"))
    descriptors = after.kept - before.kept + after.handles - before.handles + open_files - files
    print(
        f"lifetimes: more than before: {after.entries - before.entries} entries in slices, "
        f"{after.slots - before.slots} slots, {descriptors} descriptors   (goal 0)"
    )


def slope(values: Sequence[float]) -> float:
    """What the straight line nearest to these values rises from one to the next."""
    middle, mean = (len(values) - 1) / 2, sum(values) / len(values)
    above = sum((at - middle) * (value - mean) for at, value in enumerate(values))
    return above / sum((at - middle) ** 2 for at in range(len(values)))
