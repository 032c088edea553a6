"""What is left once pods with keys have come and gone: nothing, and a journal that does not grow."""

from tests.unit.simulated.keyed import KEYS, KeyedLifetimes
from tests.unit.simulated.lifetimes import Left

AT_FIRST, PODS = 40, 200
CONTROLLERS = 3


def test_two_hundred_pods_with_a_key_each_leave_no_grant_and_no_descriptor_behind() -> None:
    """Given 64 keys and pods that are admitted, start, take their key and end, then each key was sold again and again,
    and nothing of it stays; a read descriptor of the root's counters is kept."""
    lifetimes = KeyedLifetimes()
    try:
        lifetimes.live(AT_FIRST)
        first = lifetimes.left()
        lifetimes.live(PODS)
        left = lifetimes.keys_left()

        assert lifetimes.left() == first == Left(0, CONTROLLERS, 0, 1, 0)
        assert (left.granted, left.entries) == (0, 0), lifetimes.why
        assert left.journal_bytes < 16 * 1024
        assert lifetimes.granted == AT_FIRST + PODS > 3 * KEYS
    finally:
        lifetimes.close()
