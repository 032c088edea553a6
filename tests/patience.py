"""How long tests wait: every deadline of a test is for a quiet machine, and is scaled by this machine's patience.

`NODEWARD_PATIENCE` names it. A test that holds never waits for a deadline, so patience costs only who has a failure. A
deadline of the product is under test and is never scaled.
"""

import os
import time
from collections.abc import Callable


def patience() -> float:
    """By how much every deadline of a test is multiplied."""
    return float(os.environ.get("NODEWARD_PATIENCE") or 5)


def scaled(seconds: float) -> float:
    """The seconds of a deadline on this machine, for those of a quiet one."""
    return seconds * patience()


def until(true: Callable[[], bool], what: str, within_s: float = 60.0, told: Callable[[], str] = str) -> None:
    """Waits for what another process does. What is looked at with effort is looked at less often: the processor is
    theirs too. `told` is added where it does not come."""
    begin = time.monotonic()
    end = begin + scaled(within_s)
    while not true():
        now = time.monotonic()
        if now > end:
            raise AssertionError(f"not within {scaled(within_s):.0f} s: {what} {told()}")
        time.sleep(min(1.0, max(0.05, 2 * (now - begin))))
        begin = time.monotonic()
