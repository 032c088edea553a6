"""The kernel contract on the real misc controller: one guest boots and runs everything, then each case is a test
here.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from tests.contract.kernel.cases import CASES
from tests.contract.kernel.double import Double
from tests.contract.kernel.guest_runner import BEGIN, END, RESULT, WALK
from tests.contract.kernel.vocabulary import CAPACITY
from tests.contract.kernel.walks import COUNT, walk
from tests.told import tell
from tests.vm import guest


@dataclass(frozen=True, slots=True)
class Report:
    """What the guest said. `failures`: case id -> empty text if it held, else the traceback; `walks`: their sights."""

    failures: Mapping[str, str]
    walks: Mapping[int, list[str]]


@pytest.fixture(scope="module")
def report() -> Report:
    machine = guest.needed()
    program = (sys.executable, "-m", "tests.contract.kernel.guest_runner")
    run = guest.boot(machine, program, CAPACITY)
    lines = run.output.splitlines()
    if run.status != 0 or BEGIN not in lines or END not in lines:
        pytest.fail(f"the guest did not finish its cases (status {run.status}):\n{run.output[-4000:]}", pytrace=False)
    failures: list[tuple[str, str]] = [
        json.loads(line.removeprefix(RESULT)) for line in lines if line.startswith(RESULT)
    ]
    walks: list[tuple[int, list[str]]] = [
        json.loads(line.removeprefix(WALK)) for line in lines if line.startswith(WALK)
    ]
    found = Report(dict(failures), dict(walks))
    ran = f"{len(found.failures)} cases and {len(found.walks)} walks in {run.duration_s:.1f} s with the boot"
    tell(f"kernel {machine.release}: {ran}")
    return found


@pytest.mark.parametrize("case_id", CASES)
def test_kernel(case_id: str, report: Report) -> None:
    assert case_id in report.failures, "the guest reported nothing for this case"
    assert report.failures[case_id] == "", report.failures[case_id]


def test_both_kernels_run_the_same_cases(report: Report) -> None:
    assert list(report.failures) == list(CASES)
    assert list(report.walks) == list(range(COUNT))


@pytest.mark.parametrize("number", range(COUNT))
def test_walk_looks_the_same_on_both(number: int, report: Report) -> None:
    assert walk(Double(), number) == report.walks[number]
