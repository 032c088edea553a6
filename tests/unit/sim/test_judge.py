"""The simulation's judge in the time of each shipped scenario: whatever happens there, what stays broken is told."""

import pytest

from nodeward.model.view import NodeView
from nodeward.sim import scenario
from nodeward.sim.invariants import STUCK, Judge
from tests.disturbances import AWAY_S


@pytest.mark.parametrize("name", scenario.names())
def test_between_two_disturbances_of_all_there_is_time_to_judge(name: str) -> None:
    """The next comes no sooner than one and a half times the time away and the grace."""
    story = scenario.load(name)
    for event in story.events:
        if event.do in AWAY_S and event.every_s:
            assert event.every_s >= 1.5 * (AWAY_S[event.do] + story.grace_s), event


@pytest.mark.parametrize("name", scenario.names())
def test_some_pods_outlive_the_grace_by_half(name: str) -> None:
    story = scenario.load(name)
    assert story.life_s[1] >= 1.5 * story.grace_s


def test_a_job_that_is_late_while_the_node_is_starved_counts_for_nothing_and_a_stuck_one_does() -> None:
    """The daemon counts the jobs of its whole life."""
    judge = Judge(6.0)
    for number, (stuck, starved) in enumerate(((2, True), (2, False), (0, False), (1, False))):
        shown = NodeView("enforce", "sim", "answers", True, {}, {}, (), health={"lanes_stuck": stuck})
        judge.view(shown, [], number, starved=starved)
    assert judge.violations == [f"{STUCK}: the daemon reports 1 stuck job(s)"]
