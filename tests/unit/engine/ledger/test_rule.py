"""How many keys are free: the sums, and counters that lie. How a sample can be overtaken: together.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.engine.ledger.rule import Claim, count, together

NEGATIVE = -1
"""What the kernel's counter is after a refused charge was taken back twice (2**64 - 1 in the file)."""


def claims(*pods: tuple[int, int]) -> list[Claim]:
    """Pods by what they were promised and hold."""
    return [Claim(entitled, (charged, charged)) for entitled, charged in pods]


@pytest.mark.parametrize(
    ("pods", "used", "foreign", "free"),
    [
        pytest.param([], 0, 0, 16, id="nobody"),
        pytest.param([(1, 1)] * 4, 4, 0, 12, id="four-promised-and-charged"),
        pytest.param([(1, 1)] * 4, 6, 2, 10, id="two-foreign-beside-four-charged"),
        pytest.param([(1, 0)] * 4, 6, 6, 6, id="four-pending-beside-six-foreign"),
        pytest.param([(1, 3)], 3, 0, 13, id="more-charged-than-promised"),
        pytest.param([(0, 2)], 2, 0, 14, id="charged-without-a-promise"),
        pytest.param([(1, 0)] * 20, 0, 0, 0, id="more-promised-than-there-are"),
        pytest.param([(1, 1)], 0, 0, 15, id="a-charge-that-the-root-does-not-show-yet"),
    ],
)
def test_what_is_free_is_what_nobody_holds_and_nobody_was_promised(
    pods: list[tuple[int, int]], used: int, foreign: int, free: int
) -> None:
    sums = count(16, 0, (used, used), claims(*pods))
    assert (sums.foreign, sums.free) == (foreign, free)


def test_the_public_proposal_sells_what_is_pending_and_foreign_twice() -> None:
    """Given 31 keys, 10 promised and not charged yet, 10 in foreign use: its rule has 21 to sell."""
    capacity, pending, foreign = 31, 10, 10
    proposal = capacity - max(pending, foreign)

    ours = count(capacity, 0, (foreign, foreign), claims(*[(1, 0)] * pending)).free

    assert (proposal, ours) == (21, 11)


def test_the_reserve_is_never_free() -> None:
    assert count(4, 3, (0,), ()).free == 1
    assert count(4, 9, (0,), ()).free == 0


def test_reads_that_differ_are_taken_as_whatever_leaves_less() -> None:
    sums = count(10, 0, (3, 5), [Claim(1, (0, 2)), Claim(0, (1, 1))])
    assert (sums.used, sums.charged, sums.claimed, sums.foreign) == (5, 1, 3, 4)
    assert sums.free == 3


def test_the_keys_of_a_pod_that_cannot_be_read_count_twice_rather_than_not_at_all() -> None:
    assert count(10, 0, (1, 1), [Claim(1, ())]).free == 8


def test_no_use_is_taken_for_a_pods_after_one_of_their_counters_went_below_zero() -> None:
    sums = count(10, 1, (3, 3), [Claim(1, (NEGATIVE, 0)), Claim(2, (2, 2))])
    assert sums.blind
    assert not sums.wrapped
    assert sums.free == 10 - 3 - 3 - 1


def test_nothing_is_free_after_the_nodes_own_counter_went_below_zero() -> None:
    sums = count(10, 0, (NEGATIVE, 0), [])
    assert sums.wrapped
    assert sums.free == 0


amounts = st.integers(0, 6)


@given(
    st.integers(0, 20),
    st.lists(amounts, min_size=1, max_size=3).map(tuple),
    st.lists(st.builds(Claim, amounts, st.lists(amounts, max_size=3).map(tuple)), max_size=5),
    st.integers(0, 3),
)
def test_one_more_promise_charge_or_foreign_key_never_frees_one(
    capacity: int, roots: tuple[int, ...], pods: list[Claim], reserve: int
) -> None:
    free = count(capacity, reserve, roots, pods).free
    assert 0 <= free <= capacity
    assert count(capacity, reserve, (*roots, max(roots) + 1), pods).free <= free
    assert count(capacity, reserve, roots, [*pods, Claim(1, ())]).free <= free
    assert count(capacity, reserve + 1, roots, pods).free <= free
    for place, pod in enumerate(pods):
        more = Claim(pod.entitled + 1, pod.charged)
        assert count(capacity, reserve, roots, [*pods[:place], more, *pods[place + 1 :]]).free <= free


@given(
    st.lists(st.builds(Claim, amounts, st.lists(st.integers(NEGATIVE, 6), max_size=3).map(tuple)), max_size=5),
    st.lists(st.integers(NEGATIVE, 20), min_size=1, max_size=3).map(tuple),
    st.integers(0, 5),
)
def test_pods_counted_together_count_as_each_by_itself(pods: list[Claim], roots: tuple[int, ...], cut: int) -> None:
    assert count(20, 1, roots, [together(pods[:cut]), *pods[cut:]]) == count(20, 1, roots, pods)
