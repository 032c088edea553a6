"""How many keys are free: the sums, and counters that lie. How a sample can be overtaken: together.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.engine.ledger import device_ids
from nodeward.engine.ledger.device_ids import GROW_NS
from nodeward.engine.ledger.rule import Claim, count, together
from nodeward.engine.state.ledger import Grant, Offer
from nodeward.model.workload import PodUid

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


# ---- what is offered ------------------------------------------------------------------------------------------------

A, B = PodUid("a"), PodUid("b")
NAMES = [device_ids.id_name("tdx", number) for number in range(16)]


def offer(granted: int = 0, published: int = 0, size: int = 16, held: device_ids.Held | None = None) -> Offer:
    grants = {name: Grant(1, 1) for name in NAMES[:granted]}
    return Offer(size, grants, published, held=held or {})


def test_a_view_that_says_what_the_one_before_said_leaves_the_tables_as_they_are() -> None:
    """So what was found by a walk over them is kept: a view comes every two seconds."""
    view = {A: (NAMES[0],), B: (NAMES[1],)}
    now = offer(granted=2)
    for second in range(2, 12, 2):
        now = device_ids.viewed(now, dict(view), [B], {}, second * 1_000_000_000, 2)
    after = device_ids.viewed(now, dict(view), [B], {}, 12_000_000_000, 2)
    assert (after.grants is now.grants, after.held is now.held, after.over is now.over) == (True, True, True)
    assert after.passed is now.passed
    assert device_ids.viewed(after, {A: (NAMES[0],)}, [], {}, 14_000_000_000, 2).grants is not now.grants


def test_what_is_published_shrinks_at_once_and_grows_after_samples_that_agree() -> None:
    now = device_ids.publish(offer(published=3), 16, 1, 10)
    assert now.published == 1
    now = device_ids.publish(now, 16, 8, 20)
    now = device_ids.publish(now, 16, 5, 30)
    assert now.published == 1
    assert device_ids.publish(now, 16, 9, 20 + GROW_NS - 1).published == 1
    assert device_ids.publish(now, 16, 9, 20 + GROW_NS).published == 5
    assert device_ids.publish(now, 16, 0, 20 + GROW_NS).published == 0


@given(
    st.integers(0, 5),
    st.integers(0, 6),
    st.dictionaries(st.integers(0, 6), st.integers(0, 2)),
)
def test_as_many_of_those_that_nobody_was_promised_are_healthy_as_are_published(
    size: int, published: int, times: dict[int, int]
) -> None:
    grants = {NAMES[number]: Grant(1, 1, amount) for number, amount in times.items()}
    listed = dict(device_ids.devices(Offer(size, grants, published), "tdx"))
    beyond = [number for number, amount in times.items() if number >= size and amount]
    assert list(listed) == [NAMES[number] for number in (*beyond, *range(size))]
    rest = [healthy for name, healthy in listed.items() if name not in grants or not grants[name].times]
    assert all(listed[NAMES[number]] for number, amount in times.items() if amount)
    assert rest == [place < published for place in range(len(rest))]
