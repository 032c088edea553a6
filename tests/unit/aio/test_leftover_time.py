"""A process that gets what others leave rests longer than it works; one that was given a share does not."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from nodeward.aio import leftover_time
from nodeward.aio.leftover_time import LEAST_REST_S, RESTS, SLICE_S, rested

BRIEF_S = LEAST_REST_S / RESTS / 2
LONG_S = 1.5 * SLICE_S / RESTS
IDLE, SHARE = os.SCHED_IDLE, os.SCHED_OTHER


@pytest.mark.parametrize(
    ("policies", "worked", "rests"),
    [
        pytest.param([IDLE, IDLE], [LONG_S], [SLICE_S, SLICE_S / 2], id="RESTS times as long as it worked, in slices"),
        pytest.param([IDLE], [BRIEF_S, BRIEF_S], [LEAST_REST_S], id="for brief work, once it is worth a sleep"),
        pytest.param([IDLE], [BRIEF_S], [], id="for less it is put off"),
        pytest.param([IDLE, SHARE], [LONG_S], [SLICE_S], id="not once it has a share"),
        pytest.param([SHARE, SHARE], [LONG_S, LONG_S], [], id="not with a share of its own"),
        pytest.param(
            [SHARE, IDLE], [LONG_S, SLICE_S / 2 / RESTS], [SLICE_S / 2], id="nor later for what it did with its share"
        ),
    ],
)
def test_who_gets_what_others_leave_rests(
    policies: list[int], worked: list[float], rests: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    spent, slept, policy = [0.0], list[float](), iter(policies)
    monkeypatch.setattr(leftover_time, "time", SimpleNamespace(thread_time=lambda: spent[0], sleep=slept.append))
    monkeypatch.setattr(os, "sched_getscheduler", lambda _: next(policy))
    take = rested(lambda most: most * 2)
    assert take(21) == 42
    for seconds in worked:
        spent[0] += seconds
        assert take(1) == 2
    assert slept == [pytest.approx(rest) for rest in rests]


def test_nobody_is_starved_who_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    assert leftover_time.starved_s(ended.pid) == 0.0
