"""One runtime of each kind for all cases of CRI's contract; each case begins with none of the pods of another."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.contract.cri.sides import SIDES, Client, Side, opened, remove_all


@pytest.fixture(name="side", scope="session", params=SIDES)
def _side(request: pytest.FixtureRequest) -> Iterator[Side]:
    with opened(request.param) as found:
        yield found


@pytest.fixture(name="client")
def _client(side: Side) -> Iterator[Client]:
    with contextlib.closing(Client(side)) as client:
        yield client
        remove_all(client)
