"""Given random lives of containers, the daemon dies at any moment and comes back: nobody moves without need."""

import random

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


def test_a_daemon_without_a_record_moves_somebody() -> None:
    """Else these histories would show nothing."""
    moved = 0
    for seed in range(100):
        world = histories.World(histories.RULES["balloons"], random.Random(f"balloons/{seed}"), forgets=True)
        try:
            world.play()
        except histories.WrongError:
            moved += 1
    assert moved > 0
