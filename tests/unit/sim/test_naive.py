"""The public proposal's rule and the record that is kept of each rule."""

import pytest

from nodeward.sim.naive import Column, proposed


def test_the_proposals_own_example() -> None:
    """Of 16 keys 4 are handed out and charged, and 6 are used: 14 are healthy."""
    assert proposed(16, 6, 4) == 14


@pytest.mark.parametrize(("pending", "foreign"), [(0, 5), (3, 0), (3, 2), (4, 4), (1, 6)])
def test_it_oversells_what_is_both_pending_and_foreign(pending: int, foreign: int) -> None:
    capacity, charged = 16, 2
    granted = charged + pending
    for_sale = proposed(capacity, charged + foreign, granted) - granted

    assert for_sale - (capacity - granted - foreign) == min(pending, foreign)


def test_a_rule_is_told_by_its_worst_sample_and_its_first() -> None:
    column = Column()
    assert column.told() == "oversold 0 keys in 0 samples"
    for for_sale, left, at_s in ((3, 3, 1.0), (4, 3, 2.0), (5, 2, 3.0), (0, 4, 4.0)):
        column.note(for_sale, left, at_s)

    assert column.told() == ("oversold up to 3 key(s) in 2 of 4 samples, first after 2.0 s (4 for sale, 3 left)")
