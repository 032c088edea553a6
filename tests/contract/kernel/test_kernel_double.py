"""The kernel contract on the double: the same cases as `test_kernel_real.py`."""

import pytest

from tests.contract.kernel.cases import CASES
from tests.contract.kernel.double import Double


@pytest.mark.parametrize("case_id", CASES)
def test_kernel(case_id: str) -> None:
    CASES[case_id](Double())
