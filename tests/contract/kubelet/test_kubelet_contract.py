"""The contracts of kubelet's device manager and of what it tells of pods: every case on the double and on a real
kubelet 1.37, with the same id. Where the real end is not built the case skips; scripts/build-peers builds it.
"""

from collections.abc import Iterator

import pytest

from tests.contract.kubelet import device_cases, view_cases
from tests.contract.kubelet.sides import SIDES, Cases, Node, Side, opened, play


@pytest.fixture(name="side", scope="module", params=SIDES)
def _side(request: pytest.FixtureRequest) -> Iterator[Side]:
    """One node of each kind for all: a real one takes seconds to start."""
    with opened(request.param) as found:
        yield found


@pytest.mark.parametrize(
    ("cases", "words", "case"),
    [
        pytest.param(cases, words, case, id=case)
        for cases, words in ((device_cases.CASES, 6), (view_cases.CASES, 8))
        for case in cases
    ],
)
def test_contract(side: Side, cases: Cases[Node], words: int, case: str) -> None:
    play(cases, case, side, words)
