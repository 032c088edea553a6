"""Calls are counted by method, result and fate, and nobody can make the counters grow."""

from nodeward.edges.cri.counts import BOUNDS_BITS, CallCounts
from nodeward.model.relayed import Call, Fate


def call(name: str, service: str = "runtime.v1.RuntimeService", held: bool = False) -> Call:
    return Call(1, 1, f"/{service}/{name}", 0, held)


def counted() -> CallCounts:
    counts = CallCounts()
    for version in ("v1", "v1alpha2"):
        counts.over(call("Version", f"runtime.{version}.RuntimeService"), 0, Fate.PASSED, 20_000)
    counts.over(call("CreateContainer", held=True), 8, Fate.REFUSED, 3_000_000)
    counts.over(call("CreateContainer", held=True), 0, Fate.CHANGED, 10**12)
    counts.over(call("PullImage", "runtime.v1.ImageService"), None, Fate.PASSED, 0)
    return counts


def test_calls_are_counted_by_method_and_status_over_both_versions_of_cri() -> None:
    counts = counted()
    assert counts.text() == "CreateContainer=1 CreateContainer/8=1 PullImage/-1=1 Version=2"
    assert {row.method: (row.results, row.fates) for row in counts.rows()} == {
        "CreateContainer": ({"OK": 1, "RESOURCE_EXHAUSTED": 1}, {"changed": 1, "refused": 1}),
        "PullImage": ({"none": 1}, {"passed": 1}),
        "Version": ({"OK": 2}, {"passed": 2}),
    }


def test_waits_are_counted_in_few_buckets_with_their_sum() -> None:
    """No time at all and 20 us twice; 3 ms, and a thousand seconds that are above every bound."""
    passed, held = counted().added()
    assert (passed.how, passed.count, passed.sum_ns) == ("passed", 3, 40_000)
    assert dict(passed.at_most) == {1 << bits: 1 if bits < 15 else 3 for bits in BOUNDS_BITS}
    assert (held.how, held.count, held.sum_ns) == ("held", 2, 10**12 + 3_000_000)
    assert dict(held.at_most) == {1 << bits: 0 if bits < 23 else 1 for bits in BOUNDS_BITS}


def test_unknown_methods_and_statuses_share_one_counter() -> None:
    counts = CallCounts()
    for number in range(1000):
        counts.over(call(str(number), "x"), 17 + number, Fate.PASSED, number)
    assert counts.calls == {("other", 2, Fate.PASSED): 1000}
