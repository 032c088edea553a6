"""The contract of kubelet's device manager: every case on the double and on a real kubelet 1.37, with the same id.

Where the real end is not built the case skips; scripts/build-peers builds it.
"""

from __future__ import annotations

import pytest

from tests.contract.kubelet.device_cases import CASES
from tests.contract.kubelet.sides import Side, play


@pytest.mark.parametrize("case", CASES)
def test_contract(side: Side, case: str) -> None:
    play(CASES, case, side, 6)
