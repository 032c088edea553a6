"""The simulation's judge in the time of each shipped scenario: whatever happens there, what stays broken is told."""

import math
from dataclasses import dataclass, field
from random import Random

import pytest

from nodeward.model.rows import CgroupRow
from nodeward.model.view import KeyRow, NodeView
from nodeward.sim import scenario
from nodeward.sim.invariants import DRIFT, KILL_DAEMON, LOST, RESTART_RUNTIME, STUCK, UNLIMITED, UNREAD, UNSAID, Judge
from nodeward.sim.scenario import Happening, Scenario
from tests.disturbances import AWAY_S

SPAN_S = 120.0
"""So long a scenario is played; `make run` lasts until somebody ends it."""
STEP_S = 0.1
LOOK_S = 0.5
PROMISED = 4096
NO_LIMIT, NOT_SHOWN, SILENT, UNMENDED, KEYS_UNREAD, LOSS_UNSAID, RETURN_UNSAID = (
    *("limits never written", "one container in four never shown", "a silent daemon", "drift never mended"),
    *("keys never read", "a loss unsaid", "a return unsaid"),
)


@dataclass(slots=True)
class Node:
    """A node in virtual time, with pods of one container each, that has one fault from its begin."""

    story: Scenario
    fault: str
    now_s: float = 0.0
    random: Random = field(default_factory=lambda: Random(3))
    number: int = 0
    ends_s: dict[str, float] = field(default_factory=dict)
    """When each container ends, by cgroup."""
    mended_s: dict[str, float] = field(default_factory=dict)
    """When each cgroup that drifted has its limit again."""
    away_until_s: float = 0.0
    """Until when the daemon is away."""
    lost: bool = False
    """Whether the API server was ever away."""
    judge: Judge = field(init=False)

    def __post_init__(self) -> None:
        self.judge = Judge(self.story.grace_s, enforceable="sgx_epc" in self.story.capacity)

    def live(self) -> list[str]:
        """Plays the scenario; the violations."""
        due = sorted(self._due(), key=lambda one: one[0])
        for step in range(round(SPAN_S / STEP_S)):
            self.now_s = 1000.0 + step * STEP_S
            while due and due[0][0] <= self.now_s:
                self._happen(due.pop(0)[1])
            self._pods()
            self.judge.limits({cgroup: self._limit(cgroup) for cgroup in self.ends_s}, self.now_s)
            if step % round(LOOK_S / STEP_S) == 0 and self.now_s >= self.away_until_s:
                self._look()
        return self.judge.violations

    def _due(self) -> list[tuple[float, Happening]]:
        found = []
        for event in self.story.events:
            at_s, every_s = event.at_s, event.every_s + AWAY_S.get(event.do, 0.0) if event.every_s else math.inf
            while at_s < SPAN_S:
                found.append((1000.0 + at_s, event))
                at_s += every_s
        return found

    def _happen(self, event: Happening) -> None:
        if event.do == DRIFT:
            reached = [cgroup for cgroup, watched in self.judge.cgroups.items() if watched.reached]
            if reached:
                cgroup = self.random.choice(reached)
                self.mended_s[cgroup] = math.inf if self.fault == UNMENDED else self.now_s + 1.0
                self.judge.disturbed(DRIFT, self.now_s, cgroup)
        elif event.do in (KILL_DAEMON, RESTART_RUNTIME):
            back_s = self.now_s + AWAY_S[event.do]
            self.judge.disturbed(event.do, back_s)
            self.away_until_s = back_s if event.do == KILL_DAEMON else 0.0
        elif event.do == "lose-api":
            self.judge.lost_api(self.now_s)
            self.lost = True
        elif event.do == "restore-api":
            self.judge.restored_api(self.now_s)

    def _pods(self) -> None:
        for cgroup in [cgroup for cgroup, end_s in self.ends_s.items() if end_s <= self.now_s]:
            del self.ends_s[cgroup]
            self.judge.forget(cgroup)
        while len(self.ends_s) < self.story.pods + self.story.sandboxes + self.story.vms:
            self.number += 1
            cgroup = f"/kubepods/pod/{self.number % 4}-{self.number}"
            self.ends_s[cgroup] = self.now_s + self.random.uniform(*self.story.life_s)
            told_s = math.inf if self.judge.api_away else self.now_s + self.story.late_spec_s
            self.judge.watch(cgroup, PROMISED, told_s)

    def _limit(self, cgroup: str) -> int | None:
        return None if self.fault == NO_LIMIT or self.now_s < self.mended_s.get(cgroup, 0.0) else PROMISED

    def _look(self) -> None:
        shown = [
            cgroup for cgroup in self.ends_s if self.fault != NOT_SHOWN or not cgroup.startswith("/kubepods/pod/3")
        ]
        told = self.judge.api_away
        if self.lost and self.fault == (LOSS_UNSAID if told else RETURN_UNSAID):
            told = not told
        rows = tuple(CgroupRow("container", "", "", "", one, one, "enforced", "", "", ()) for one in shown)
        keys = (KeyRow("tdx", (), 16, 0, free=0, age_ms=600_000 if self.fault == KEYS_UNREAD else 100),)
        api = "stale" if told else "answers"
        view = NodeView("enforce", "sim", api, True, {}, {}, rows, ready=True, keys=keys)
        seen = None if self.fault == SILENT else view
        self.judge.view(seen, list(self.ends_s), self.now_s)
        if self.story.vms:
            self.judge.keys(seen, self.now_s, self.now_s)


@pytest.mark.parametrize("name", scenario.names())
def test_a_sound_node_is_not_told_of(name: str) -> None:
    assert Node(scenario.load(name), "").live() == []


def faults(name: str) -> list[tuple[str, str]]:
    """What can be broken in this scenario, and the invariant that must say so."""
    story = scenario.load(name)
    doing = {event.do for event in story.events}
    found = [(NOT_SHOWN, LOST), (SILENT, STUCK)]
    found += [(NO_LIMIT, UNLIMITED)] if "sgx_epc" in story.capacity else []
    found += [(UNMENDED, UNLIMITED)] if DRIFT in doing else []
    found += [(KEYS_UNREAD, UNREAD)] if story.vms else []
    return found + ([(LOSS_UNSAID, UNSAID), (RETURN_UNSAID, UNSAID)] if "lose-api" in doing else [])


@pytest.mark.parametrize(
    ("name", "fault", "invariant"),
    [
        pytest.param(name, fault, invariant, id=f"{name}: {fault}")
        for name in scenario.names()
        for fault, invariant in faults(name)
    ],
)
def test_what_stays_broken_is_told_in_each_shipped_scenario(name: str, fault: str, invariant: str) -> None:
    told = Node(scenario.load(name), fault).live()

    assert invariant in {violation.partition(":")[0] for violation in told}


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
