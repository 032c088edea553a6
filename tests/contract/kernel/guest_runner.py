"""Runs inside the guest: every case and walk on the real kernel, one line of JSON each on the console, between two
markers.

Each result is on a line of its own that starts with a mark, so that a kernel message in between costs nothing.
"""

import json
import os
import sys
import traceback
from contextlib import nullcontext

from nodeward.core import cpuset
from nodeward.core.topology import Level
from nodeward.host.hostfs import HostFiles, OsFiles
from nodeward.neighbours.sysfs.topology import read
from tests.contract.kernel.cases import CASES, CPU_CASES, V1_CASES
from tests.contract.kernel.real import DEVICE, Real, v1_mounted
from tests.contract.kernel.vocabulary import Case
from tests.contract.kernel.walks import COUNT, walk

BEGIN, RESULT, WALK, END = "contract: begin", "contract: result ", "contract: walk ", "contract: end"
MACHINE = "contract: machine "
CPUS = "cpus"
"""The argument with which only the cases about CPUs are run."""
VERSIONS = {2: CASES, 1: V1_CASES}
"""The cases by version of cgroups: first as the guest was booted, then with misc mounted as cgroup v1."""


def outcome(case: Case, version: int) -> str:
    kernel = Real(version)
    try:
        case(kernel)
    except Exception:
        return traceback.format_exc(limit=-3)
    finally:
        kernel.close()
    return ""


def walked(number: int, version: int) -> list[str]:
    kernel = Real(version)
    try:
        return walk(kernel, number)
    finally:
        kernel.close()


def drawn(files: HostFiles) -> dict[str, list[str]]:
    """The machine's groups by level, and what its sysfs did not tell. Without caches, of which QEMU tells its own."""
    machine = read(files)
    levels = (Level.PACKAGE, Level.DIE, Level.NUMA, Level.CORE)
    groups = {level.name: [f"{one.id}: {cpuset.text(one.cpus)}" for one in machine.groups(level)] for level in levels}
    return {**groups, "faults": list(machine.faults)}


def main() -> int:
    if not os.path.exists(DEVICE):
        print(f"{DEVICE} is missing: this runs in the guest of tests/vm only")
        return 2
    print(f"\n{BEGIN}", flush=True)
    if CPUS in sys.argv:
        for case_id, case in CPU_CASES.items():
            print(f"\n{RESULT}{json.dumps([2, case_id, outcome(case, 2)])}", flush=True)
        print(f"\n{MACHINE}{json.dumps(drawn(OsFiles()))}", flush=True)
        print(f"\n{END}", flush=True)
        return 0
    for version, cases in VERSIONS.items():
        with v1_mounted() if version == 1 else nullcontext():
            for case_id, case in cases.items():
                print(f"\n{RESULT}{json.dumps([version, case_id, outcome(case, version)])}", flush=True)
            for number in range(COUNT):
                print(f"\n{WALK}{json.dumps([version, number, walked(number, version)])}", flush=True)
    print(f"\n{END}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
