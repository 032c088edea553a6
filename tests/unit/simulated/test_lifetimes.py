"""Pods come and go, and nothing stays behind."""

from tests.unit.simulated.keyed import KEYS, KeyedLifetimes
from tests.unit.simulated.lifetimes import Left

CONTROLLERS = 3
"""The slots that outlive pods: misc switched on in the root and in the two cgroups above the pods."""


def test_a_hundred_and_twenty_pods_with_a_key_each_leave_no_grant_and_no_descriptor_behind() -> None:
    lifetimes = KeyedLifetimes()
    try:
        lifetimes.live(20)
        first = lifetimes.left()
        lifetimes.live(120)
        left = lifetimes.keys_left()

        assert lifetimes.left() == first == Left(0, CONTROLLERS, 0, 1, 0)
        assert (left.granted, left.entries) == (0, 0), lifetimes.why
        assert left.journal_bytes < 16 * 1024
        assert lifetimes.granted == 20 + 120 > 2 * KEYS
    finally:
        lifetimes.close()
