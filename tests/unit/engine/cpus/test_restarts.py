"""Given random lives of containers, the daemon dies at any moment and comes back: nobody moves without need."""

import pytest

from tests.unit.engine.cpus import histories

HISTORIES = 25


@pytest.mark.parametrize("policy", histories.RULES)
def test_nobody_moves_and_no_cpu_is_two_containers_own_whatever_dies_when(policy: str) -> None:
    assert list(histories.wrong(policy, range(HISTORIES))) == []


@pytest.mark.nightly
@pytest.mark.parametrize("policy", histories.RULES)
def test_the_same_in_two_thousand_histories(policy: str) -> None:
    assert list(histories.wrong(policy, range(HISTORIES, 2000))) == []
