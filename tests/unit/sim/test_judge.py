"""What the simulated node's clock leaves out, and what its judge counts for nothing."""

import pytest

from nodeward.model.view import NodeView
from nodeward.sim.clock import LEAST_PACE, NodeClock
from nodeward.sim.invariants import STUCK, Judge

STORIES: dict[str, tuple[list[tuple[float, float]], float]] = {
    "a machine with time to spare": ([(1.0, 0.0), (9.0, 0.0)], 10.0),
    "a wait that is told when it has ended": ([(6.0, 4.0)], 2.0),
    "a wait told late": ([(1.0, 0.0), (1.0, 4.0), (8.0, 0.0)], 6.0),
    "more waits than time, as of several processes": ([(10.0, 30.0)], 10 * LEAST_PACE),
}
"""By turns, seconds that pass and seconds of waiting that the kernel tells then; and what has passed on the node."""


@pytest.mark.parametrize(("turns", "passed_s"), STORIES.values(), ids=STORIES)
def test_the_clock_of_the_node_leaves_out_what_its_processes_wait_for_a_processor(
    turns: list[tuple[float, float]], passed_s: float
) -> None:
    wall_s, starved_s = 100.0, 7.0
    clock = NodeClock(lambda: starved_s, lambda: wall_s)
    began_s = told_s = clock.time()
    for seconds, waited in turns:
        wall_s, starved_s = wall_s + seconds, starved_s + waited
        before_s, told_s = told_s, clock.time()
        assert told_s > before_s, "it never stands still"
    assert told_s - began_s == pytest.approx(passed_s)


def test_a_job_that_is_late_while_the_node_is_starved_counts_for_nothing_and_a_stuck_one_does() -> None:
    """The daemon counts the jobs of its whole life."""
    judge = Judge(6.0)
    for number, (stuck, starved) in enumerate(((2, True), (2, False), (0, False), (1, False))):
        shown = NodeView("enforce", "sim", "answers", True, {}, {}, (), health={"lanes_stuck": stuck})
        judge.view(shown, [], number, starved=starved)
    assert judge.violations == [f"{STUCK}: the daemon reports 1 stuck job(s)"]
