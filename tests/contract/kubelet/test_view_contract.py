"""The contract of what kubelet tells of pods: every case on the double and on a real kubelet 1.37, with the same id."""

from __future__ import annotations

import pytest

from tests.contract.kubelet.sides import Side
from tests.contract.kubelet.view_cases import CASES


@pytest.mark.parametrize("case", CASES)
def test_contract(side: Side, case: str) -> None:
    CASES[case](side, f"example.com/{'-'.join(case.split('-')[:8])}")
