"""Runs inside the guest: every case and walk on the real kernel, one line of JSON each on the console, between two
markers.

Each result is on a line of its own that starts with a mark, so that a kernel message in between costs nothing.
"""

import json
import os
import sys
import traceback

from tests.contract.kernel.cases import CASES
from tests.contract.kernel.real import DEVICE, Real
from tests.contract.kernel.vocabulary import Case
from tests.contract.kernel.walks import COUNT, walk

BEGIN, RESULT, WALK, END = "contract: begin", "contract: result ", "contract: walk ", "contract: end"


def outcome(case: Case) -> str:
    """Empty if the case holds, else the traceback."""
    kernel = Real()
    try:
        case(kernel)
    except Exception:
        return traceback.format_exc(limit=-3)
    finally:
        kernel.close()
    return ""


def walked(number: int) -> list[str]:
    """The sights of one walk."""
    kernel = Real()
    try:
        return walk(kernel, number)
    finally:
        kernel.close()


def main() -> int:
    if not os.path.exists(DEVICE):
        print(f"{DEVICE} is missing: this runs in the guest of tests/vm only")
        return 2
    print(f"\n{BEGIN}", flush=True)
    for case_id, case in CASES.items():
        print(f"\n{RESULT}{json.dumps([case_id, outcome(case)])}", flush=True)
    for number in range(COUNT):
        print(f"\n{WALK}{json.dumps([number, walked(number)])}", flush=True)
    print(f"\n{END}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
