"""The kernel contract on the real misc controller: one guest boots and runs all cases, then each is a test here."""

import json
import sys
from collections.abc import Mapping

import pytest

from tests.contract.kernel.cases import CASES
from tests.contract.kernel.exceptions import ON_THE_DOUBLE, ON_THE_REAL_KERNEL
from tests.contract.kernel.guest_runner import BEGIN, END, RESULT
from tests.contract.kernel.vocabulary import CAPACITY
from tests.vm import guest


@pytest.fixture(scope="module")
def outcomes() -> Mapping[str, str]:
    """Case id -> empty text if the case held in the guest, else the traceback."""
    machine = guest.needed()
    program = (sys.executable, "-m", "tests.contract.kernel.guest_runner")
    run = guest.boot(machine, program, CAPACITY)
    lines = run.output.splitlines()
    if run.status != 0 or BEGIN not in lines or END not in lines:
        pytest.fail(f"the guest did not finish its cases (status {run.status}):\n{run.output[-4000:]}", pytrace=False)
    results: list[tuple[str, str]] = [
        json.loads(line.removeprefix(RESULT)) for line in lines if line.startswith(RESULT)
    ]
    print(f"\nkernel {machine.release}: {len(results)} cases in {run.duration_s:.1f} s with the boot")
    return dict(results)


@pytest.mark.parametrize("case_id", CASES)
def test_kernel(case_id: str, outcomes: Mapping[str, str], request: pytest.FixtureRequest) -> None:
    if case_id in ON_THE_REAL_KERNEL:
        request.applymarker(pytest.mark.xfail(reason=ON_THE_REAL_KERNEL[case_id], strict=True))
    assert case_id in outcomes, "the guest reported nothing for this case"
    assert outcomes[case_id] == "", outcomes[case_id]


def test_both_kernels_run_the_same_cases(outcomes: Mapping[str, str]) -> None:
    print(f"\ncases: {len(CASES) - len(ON_THE_DOUBLE)} held by the double, {len(outcomes)} run by the real kernel")
    assert list(outcomes) == list(CASES)
