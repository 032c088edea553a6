"""How long tests wait: every deadline of a test is for a quiet machine, and is scaled by this machine's patience.

`NODEWARD_PATIENCE` names it. A test that holds never waits for a deadline, so patience costs only who has a failure. A
deadline of the product is under test and is never scaled.
"""

import os


def patience() -> float:
    """By how much every deadline of a test is multiplied."""
    return float(os.environ.get("NODEWARD_PATIENCE") or 5)


def scaled(seconds: float) -> float:
    """The seconds of a deadline on this machine, for those of a quiet one."""
    return seconds * patience()
