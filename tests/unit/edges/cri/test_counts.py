"""Calls are counted by method and result, and nobody can make the counters grow."""

from nodeward.edges.cri.counts import NO_STATUS, CallCounts
from nodeward.edges.cri.methods import BY_PATH, STREAMING
from nodeward.model.relayed import Call, Ended


def test_calls_are_counted_by_method_and_status_over_both_versions_of_cri() -> None:
    counts = CallCounts()
    for version in ("v1", "v1alpha2"):
        counts.ended(Call(1, 1, f"/runtime.{version}.RuntimeService/Version", 0), Ended(0, "", 1))
    counts.ended(Call(2, 1, "/runtime.v1.RuntimeService/CreateContainer", 0), Ended(8, "full", 1, refused=True))
    counts.ended(Call(3, 1, "/runtime.v1.ImageService/PullImage", 0), Ended(None, "the client cancelled", 1))
    assert counts.calls == {("Version", 0): 2, ("CreateContainer", 8): 1, ("PullImage", NO_STATUS): 1}
    assert counts.refused == 1
    assert counts.text() == "CreateContainer/8=1 PullImage/-1=1 Version=2"


def test_unknown_methods_and_statuses_share_one_counter() -> None:
    counts = CallCounts()
    for number in range(1000):
        counts.ended(Call(number, 1, f"/x/{number}", 0), Ended(17 + number, "", 1))
    assert counts.calls == {("other", 2): 1000}


def test_every_streaming_method_is_a_method_of_cri() -> None:
    assert set(STREAMING) < {method.name for method in BY_PATH.values()}
