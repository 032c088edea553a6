"""How long decisions took: counted by event, in buckets that only grow."""

from nodeward.app.host.core import MOST_BITS
from nodeward.app.node.answers import BOUNDS_BITS, decided_rows
from nodeward.model import events as ev


def test_each_decision_is_in_every_bucket_that_is_large_enough_for_it() -> None:
    counts = [0] * (MOST_BITS + 2)
    for spent_ns in (0, 8191, 8192, 100_000, 10**12):
        counts[min(spent_ns.bit_length(), MOST_BITS)] += 1
    counts[-1] = 7
    (row,) = decided_rows({ev.Tick: counts})
    assert (row.event, row.count, row.sum_ns) == ("Tick", 5, 7)
    assert [bound for bound, _ in row.at_most] == [1 << bits for bits in BOUNDS_BITS]
    assert [count for _, count in row.at_most] == [2, 3, 4, 4, 4, 4, 4, 4]
