"""Pods come and go by NRI, and nothing stays behind."""

import pytest

from tests.unit.simulated import told_by_nri
from tests.unit.simulated.lifetimes import Left
from tests.unit.simulated.told_by_nri import NriLifetimes

AT_FIRST, PODS = 20, 100
CONTROLLERS = 2
"""The slots that outlive pods: misc switched on in the root and in the cgroup above the pods."""


def test_a_hundred_pods_and_a_restart_of_the_runtime_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told_by_nri, "RESTARTS_AFTER", 70)
    lifetimes = NriLifetimes()
    try:
        lifetimes.live(AT_FIRST)
        first = lifetimes.left()
        lifetimes.live(PODS)

        assert lifetimes.left() == first == Left(0, CONTROLLERS, 0, 0, 0)
        assert lifetimes.faults == {}
        assert lifetimes.restarts == 1
        assert lifetimes.created == 3 * (AT_FIRST + PODS)
        assert lifetimes.refused > PODS, "and each container was held to its limit"
    finally:
        lifetimes.close()
