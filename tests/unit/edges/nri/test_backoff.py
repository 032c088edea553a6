"""Given a neighbour that stays away, the waits grow and are never all the same."""

from hypothesis import given
from hypothesis import strategies as st

from nodeward.aio.backoff import Backoff


@given(st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=40))
def test_each_wait_is_between_half_and_all_of_a_doubling_bound(draws: list[float]) -> None:
    source = iter(draws)
    backoff = Backoff(0.5, 30.0, lambda: next(source))
    bound = 0.5
    for _ in draws:
        assert bound / 2 <= backoff.next_s() <= bound
        bound = min(30.0, bound * 2)


def test_after_success_the_first_wait_comes_again() -> None:
    backoff = Backoff(1.0, 8.0, lambda: 0.0)
    assert [backoff.next_s() for _ in range(5)] == [0.5, 1.0, 2.0, 4.0, 4.0]
    backoff.reset()
    assert backoff.next_s() == 0.5
