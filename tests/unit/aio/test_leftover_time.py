"""A process that gets what others leave rests as long as it has worked; one that was given a share does not."""

import os
from types import SimpleNamespace

import pytest

from nodeward.aio import leftover_time
from nodeward.aio.leftover_time import MOST_REST_S, rested


@pytest.mark.parametrize(
    ("policy", "worked", "rests"),
    [
        pytest.param(os.SCHED_IDLE, [0.004, 0.001], [0.004, 0.001], id="as long as it worked"),
        pytest.param(os.SCHED_IDLE, [5.0, 0.0], [MOST_REST_S, 0.0], id="not for long"),
        pytest.param(os.SCHED_OTHER, [0.004, 0.001], [], id="not with a share of its own"),
    ],
)
def test_who_gets_what_others_leave_rests(
    policy: int, worked: list[float], rests: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    spent, slept = [0.0], list[float]()
    monkeypatch.setattr(leftover_time, "time", SimpleNamespace(thread_time=lambda: spent[0], sleep=slept.append))
    monkeypatch.setattr(os, "sched_getscheduler", lambda _: policy)
    take = rested(lambda most: most * 2)
    assert take(21) == 42
    for seconds in worked:
        spent[0] += seconds
        assert take(1) == 2
    assert slept == [pytest.approx(rest) for rest in ([0.0, *rests] if rests else [])]
