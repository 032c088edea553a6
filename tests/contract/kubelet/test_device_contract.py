"""The contract of kubelet's device manager: every case on the double and on a real kubelet 1.37, with the same id.

Where the real end is not built the case skips; scripts/build-peers builds it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.kubelet.device_cases import CASES
from tests.contract.kubelet.sides import SIDES, Side, opened


@pytest.fixture(name="side", scope="module", params=SIDES)
def _side(request: pytest.FixtureRequest) -> Iterator[Side]:
    """One node of each kind for all cases."""
    with opened(request.param) as found:
        yield found


@pytest.mark.parametrize("case", CASES)
def test_contract(side: Side, case: str) -> None:
    CASES[case](side, f"example.com/{'-'.join(case.split('-')[:6])}")
