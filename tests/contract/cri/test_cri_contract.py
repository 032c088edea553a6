"""The contract of a CRI runtime: every case on the double, as containerd 1.7 and as 2.4, and on those, with one id.

Where a real end is not built the case skips; scripts/build-peers builds it.
"""

import contextlib
from collections.abc import Iterator

import pytest

from tests.contract.cri.cri_cases import CASES
from tests.contract.cri.sides import SIDES, Client, Side, opened, remove_all


@pytest.fixture(name="side", scope="module", params=SIDES)
def _side(request: pytest.FixtureRequest) -> Iterator[Side]:
    """One runtime of each kind for all cases; each case begins with none of the pods of another."""
    with opened(request.param) as found:
        yield found


@pytest.mark.parametrize("case", CASES)
def test_contract(side: Side, case: str) -> None:
    with contextlib.closing(Client(side)) as client:
        try:
            CASES[case](client)
        finally:
            remove_all(client)
