"""What the simulation's judge says of keys: when free keys are too many, and when that cannot be said."""

from dataclasses import replace

import pytest

from nodeward.model.view import KeyRow, NodeView
from nodeward.sim.invariants import OVERSOLD, TOLD_S, UNREAD, Judge

GRACE_S = 6.0
ROW = KeyRow("tdx", (), 16, 0, free=8, age_ms=100)
NODE = NodeView("enforce", "sim", "answers", True, {}, {}, (), ready=True, keys=(ROW,))


def judge(*left: tuple[float, int]) -> Judge:
    """One that was told since when how many keys are left."""
    made = Judge(GRACE_S)
    for at_s, keys in left:
        made.left(keys, at_s)
    return made


def said(made: Judge, view: NodeView | None, asked_s: float) -> list[str]:
    """The invariants that broke."""
    made.keys(view, asked_s, asked_s + 0.01)
    return [violation.partition(":")[0] for violation in made.violations]


@pytest.mark.parametrize(
    ("left", "asked_s", "age_ms", "broken"),
    [
        pytest.param([(1.0, 8)], 50.0, 100, [], id="as many as are left"),
        pytest.param([(1.0, 9)], 50.0, 100, [], id="fewer"),
        pytest.param([(1.0, 7)], 50.0, 100, [OVERSOLD], id="more"),
        pytest.param([(1.0, 8), (50.0, 7)], 50.0 + TOLD_S - 0.1, 100, [], id="one taken just now"),
        pytest.param([(1.0, 8), (50.0, 7)], 50.0 + TOLD_S + 0.1, 100, [OVERSOLD], id="one taken long enough ago"),
        pytest.param([(1.0, 8), (50.0, 7)], 50.0 + TOLD_S + 0.1, 4000, [], id="one taken after the sample"),
        pytest.param([(1.0, 7), (50.0, 8), (50.2, 7)], 51.0, 100, [], id="one was left for a moment"),
        pytest.param([], 50.0, 100, [], id="nothing is known yet"),
    ],
)
def test_free_keys_are_never_more_than_were_left(
    left: list[tuple[float, int]], asked_s: float, age_ms: int, broken: list[str]
) -> None:
    view = replace(NODE, keys=(replace(ROW, age_ms=age_ms),))

    assert said(judge(*left), view, asked_s) == broken


def test_a_daemon_that_is_not_ready_or_has_no_api_server_is_not_judged_by_promises() -> None:
    assert said(judge((1.0, 7)), replace(NODE, ready=False), 50.0) == []
    made = judge((1.0, 7))
    made.lost_api(40.0)
    assert said(made, NODE, 50.0) == []
    made.restored_api(50.0)
    assert said(made, NODE, 50.0 + GRACE_S - 1.0) == []
    assert said(made, NODE, 50.0 + GRACE_S + 1.0) == [OVERSOLD]


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(None, id="no answer"),
        pytest.param(replace(NODE, keys=()), id="no row"),
        pytest.param(replace(NODE, keys=(KeyRow("tdx", (), 16, 0),)), id="never read"),
        pytest.param(replace(NODE, keys=(replace(ROW, age_ms=60_000),)), id="read long ago"),
    ],
)
def test_a_fresh_sample_must_be_shown_within_the_grace(view: NodeView | None) -> None:
    made = judge()

    assert said(made, NODE, 50.0) == []
    assert said(made, view, 50.0 + GRACE_S - 1.0) == []
    assert said(made, view, 50.0 + GRACE_S + 1.0) == [UNREAD]


def test_the_past_is_forgotten() -> None:
    made = judge(*((float(second), 8) for second in range(1, 500)))
    made.keys(NODE, 500.0, 500.0)
    assert len(made._left) < 10
