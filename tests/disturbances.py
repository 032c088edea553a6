"""What a shipped scenario disturbs, and for how long."""

from dataclasses import replace

from nodeward_sim.scenario import Happening, Scenario

AWAY_S = {"kill-daemon": 4.0, "kill-relay": 2.0, "restart-runtime": 1.0, "restart-kubelet": 1.0, "kill-between": 6.0}
"""So long each takes at most until that is back which it takes away, on a machine with something to do."""
JUDGED = (*AWAY_S, "drift", "change-policy", "lose-api", "restore-api")
"""What somebody has to answer for within the grace."""


def once(story: Scenario) -> Scenario:
    """The same, but each judged event happens once, early and three seconds after the one before."""
    doing = list(dict.fromkeys(event.do for event in story.events if event.do in JUDGED))
    early = [Happening(2.0 + 3.0 * place, action) for place, action in enumerate(doing)]
    return replace(story, events=(*early, *(event for event in story.events if event.do not in JUDGED)))


def judged_s(story: Scenario) -> float:
    """When the last judged event, each taken once, is long enough ago that what it left broken is told; 0 for none."""
    ends = [event.at_s + AWAY_S.get(event.do, 0.0) for event in story.events if event.do in JUDGED]
    return max(ends) + story.grace_s + 1.0 if ends else 0.0
