"""Pods come and go, and nothing stays behind."""

import pytest

from nodeward.app.host.slots import Slots
from tests.unit.simulated.lifetimes import Left, Lifetimes

AT_FIRST, PODS = 20, 500
CONTROLLERS = 3
"""The slots that outlive pods: misc switched on in the root and in the two cgroups above the pods."""


def test_five_hundred_pods_leave_nothing_behind() -> None:
    lifetimes = Lifetimes()
    try:
        lifetimes.live(AT_FIRST)
        first = lifetimes.left()
        lifetimes.live(PODS)

        assert lifetimes.left() == first == Left(0, CONTROLLERS, 0, 0, 0)
        assert lifetimes.reached > 3 * PODS, "each pod and container had its limit"
        assert lifetimes.refused > PODS, "and was held to it"
    finally:
        lifetimes.close()


def test_a_slot_that_is_not_forgotten_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Slots.set
    monkeypatch.setattr(Slots, "set", lambda slots, goals, forget=(): honest(slots, goals))
    lifetimes = Lifetimes()
    try:
        lifetimes.live(AT_FIRST)

        assert lifetimes.left().slots > AT_FIRST
    finally:
        lifetimes.close()
