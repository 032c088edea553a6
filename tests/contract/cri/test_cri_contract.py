"""The contract of a CRI runtime: every case on the double, as containerd 1.7 and as 2.4, and on those, with one id.

Where a real end is not built the case skips; scripts/build-peers builds it.
"""

from __future__ import annotations

import pytest

from tests.contract.cri.cri_cases import CASES
from tests.contract.cri.sides import Client, Side


@pytest.mark.parametrize("case", CASES)
def test_contract(side: Side, client: Client, case: str) -> None:
    assert client.side is side
    CASES[case](client)
