"""The kernel contract on the double: the same cases as `test_kernel_real.py`."""

import pytest

from tests.contract.kernel.cases import CASES
from tests.contract.kernel.double import Double
from tests.contract.kernel.exceptions import ON_THE_DOUBLE


@pytest.mark.parametrize("case_id", CASES)
def test_kernel(case_id: str, request: pytest.FixtureRequest) -> None:
    if case_id in ON_THE_DOUBLE:
        request.applymarker(pytest.mark.xfail(reason=ON_THE_DOUBLE[case_id], strict=True))
    CASES[case_id](Double())
