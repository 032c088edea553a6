"""`make simtest SEEDS=N` or `SEED=n`: many simulated histories, or one that is told in full.

Prints each seed that failed with what was violated; the exit code is 1 then. What a seed has found
gets a small test of its own (`test_found.py`).
"""

import logging
import sys
import time
from argparse import ArgumentParser
from collections import Counter

from tests.unit.simulated.history import Outcome, run


def main() -> int:
    parser = ArgumentParser(prog="make simtest", description="Seeded histories of the daemon on a simulated node.")
    parser.add_argument("--seeds", type=int, default=200, help="how many, from --first on")
    parser.add_argument("--first", type=int, default=None, help="the first seed; else by the time of day")
    parser.add_argument("--seed", type=int, default=None, help="this one only, told in full")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if given.seed is not None:
        return _told(run(given.seed))
    first = given.first if given.first is not None else int(time.time()) % 1_000_000_000
    began, failed, sums = time.monotonic(), list[int](), Counter[str]()
    for seed in range(first, first + given.seeds):
        outcome = run(seed)
        sums.update(events=outcome.events, lives=outcome.lives, pods=outcome.pods)
        if outcome.violations:
            failed.append(seed)
            print(f"seed {seed} fails; see all of it: make simtest SEED={seed}")
            for text in outcome.violations[:5]:
                print(f"    {text[:400]}")
    spent = time.monotonic() - began
    shown = ", ".join(f"{count} {what}" for what, count in sums.items())
    print(f"{given.seeds} histories from seed {first}: {shown}; {spent:.1f} s; {len(failed)} failed {failed or ''}")
    return 1 if failed else 0


def _told(outcome: Outcome) -> int:
    print("\n".join(outcome.story))
    counts = f"{outcome.events} events, {outcome.lives} lives, {outcome.pods} pods"
    print(f"seed {outcome.seed}: {counts}")
    print(f"hash {outcome.digest}")
    print("\n".join(outcome.violations) or "nothing was violated")
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
