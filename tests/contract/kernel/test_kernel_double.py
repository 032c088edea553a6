"""The kernel contract on the double: the same cases as `test_kernel_real.py`."""

import pytest

from tests.contract.kernel.cases import CASES, CPU_CASES, V1_CASES
from tests.contract.kernel.double import Double


@pytest.mark.parametrize("case_id", CASES)
def test_kernel(case_id: str) -> None:
    CASES[case_id](Double())


@pytest.mark.parametrize("case_id", CPU_CASES)
def test_kernel_cpus(case_id: str) -> None:
    CPU_CASES[case_id](Double())


@pytest.mark.parametrize("case_id", V1_CASES)
def test_kernel_v1(case_id: str) -> None:
    V1_CASES[case_id](Double(version=1))
