"""One node of each kind for all contracts of kubelet: a real one takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.kubelet.sides import SIDES, Side, opened


@pytest.fixture(name="side", scope="session", params=SIDES)
def _side(request: pytest.FixtureRequest) -> Iterator[Side]:
    """The end of this name."""
    with opened(request.param) as found:
        yield found
