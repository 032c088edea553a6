"""The contract of what kubelet tells of pods: every case on the double and on a real kubelet 1.37, with the same id."""

from __future__ import annotations

import pytest

from tests.contract.kubelet.sides import Side, play
from tests.contract.kubelet.view_cases import CASES


@pytest.mark.parametrize("case", CASES)
def test_contract(side: Side, case: str) -> None:
    play(CASES, case, side, 8)
