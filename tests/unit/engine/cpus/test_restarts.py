"""Given random lives of containers, the daemon dies at any write and comes back: who may stay where it is stays.

The world of these histories is a kernel (each cgroup's set), a runtime (its record of each container) and the goals
that were not written when the daemon died.
"""

import random
from dataclasses import dataclass, field

import pytest

from nodeward.engine.cpus.place import wanted
from nodeward.engine.cpus.pools import apart
from nodeward.model import events as ev
from nodeward.model.cpuset import parse
from nodeward.model.decision import Decision
from nodeward.model.policy_rule import PolicySettings
from nodeward.model.pool_rule import BalloonsSettings, BalloonType, Expression, Within
from nodeward.model.workload import Phase
from tests.unit.engine.build import Told
from tests.unit.engine.cpus.build import RESERVED_ONE, given, home, machine, one, refused, told

HISTORIES = 60
STEPS = 30
SIZES = (("burstable", 0), ("besteffort", 0), ("", 1), ("", 2), ("", 3))


@dataclass(slots=True)
class World:
    """What outlives the daemon."""

    rules: PolicySettings
    engine: Told
    kernel: dict[str, int] = field(default_factory=dict)
    """By cgroup; 0 for no set of its own."""
    pods: dict[str, tuple[str, int]] = field(default_factory=dict)
    writes: int = 0
    changes: int = 0

    def path(self, pod: str) -> str:
        qos, cpus = self.pods[pod]
        return one(pod, cpus, qos).cgroups_path

    def write(self, decision: Decision, most: int) -> bool:
        """Performs the goals, so many places at most; whether all were."""
        left = most
        for goal in decision.goals:
            for target in goal.targets():
                if left == 0:
                    return False
                left -= 1
                to = parse(str(goal.value))
                assert to, "an empty set is never sent"
                if target.where in self.kernel:
                    self.writes += 1
                    self.changes += self.kernel[target.where] != to
                    self.kernel[target.where] = to
                self.engine(ev.Reached((target,), (target,)))
        return True

    def restart(self) -> None:
        """A daemon that knows nothing hears what the runtime has, with the kernel's sets."""
        self.engine = told(self.rules, of=machine(8))
        homes = tuple(home(pod, qos) for pod, (qos, _) in self.pods.items())
        ones = tuple(
            one(pod, cpus, qos, now=self.kernel[self.path(pod)]).in_phase(Phase.RUNNING)
            for pod, (qos, cpus) in self.pods.items()
        )
        self.write(self.engine(ev.Listed(homes, ones, as_of=0)), 10_000)

    def own(self) -> dict[str, int]:
        """The CPUs that are exclusive, by pod; not of balloons that are lent others, which may be exchanged."""
        pools = self.engine.state.cpus.pools
        ones = {key: grant for key, grant in pools.grants.items() if not grant.pool.startswith("idle")}
        return {key.partition("/")[0]: own for key, grant in ones.items() if (own := apart(pools, grant))}


BALLOONS = (
    BalloonType(
        "one", match_expressions=(Expression("qosclass", "Equals", ("Guaranteed",)),), prefer_new_balloons=True
    ),
    BalloonType("idle", ("shop",), share_idle_cpus_in_same=Within.SYSTEM),
)


@pytest.mark.parametrize("policy", ["static", "static-plus", "balloons"])
@pytest.mark.parametrize("killed", [False, True], ids=["quiet", "killed at a write"])
def test_who_may_stay_stays_whatever_dies_when(policy: str, killed: bool) -> None:
    balloons = BalloonsSettings(balloon_types=BALLOONS)
    rules, kills = PolicySettings(policy, reserved=RESERVED_ONE, balloons=balloons), 0
    for history in range(HISTORIES):
        choose = random.Random(history)
        world = World(rules, told(rules, of=machine(8)))
        for step in range(STEPS):
            pod = f"p{choose.randrange(8)}"
            if pod in world.pods:
                del world.kernel[world.path(pod)]
                qos, _ = world.pods.pop(pod)
                decision = world.engine(ev.SandboxRemoved(home(pod, qos)))
            else:
                qos, cpus = choose.choice(SIZES)
                made = one(pod, cpus, qos)
                decision = world.engine(ev.Creating(home(pod, qos), made, ask_id=world.engine.state.seq + 1))
                if refused(decision) is not None:
                    world.engine(ev.SandboxRemoved(home(pod, qos)))
                    continue
                world.pods[pod] = qos, cpus
                world.kernel[made.cgroups_path] = parse(given(decision))
                world.engine(ev.Created(home(pod, qos), made))
                world.engine(ev.Started(home(pod, qos), made.in_phase(Phase.RUNNING)))
            before = world.own()
            dies = killed and choose.random() < 0.3
            if not world.write(decision, choose.randrange(4) if dies else 10_000) or dies:
                kills += 1
                world.restart()
            assert world.own() == before, (history, step)
            _consistent(world)
    assert (kills > HISTORIES) is killed


def _consistent(world: World) -> None:
    """The kernel has what is wanted, and nobody is on another's own CPUs."""
    cpus = world.engine.state.cpus
    for held in cpus.held.values():
        assert world.kernel[held.path] == wanted(cpus.pools, held.key)
    for key, grant in cpus.pools.grants.items():
        others = [
            other
            for other, its in cpus.pools.grants.items()
            if other != key and (not its.pool or its.pool != grant.pool)
        ]
        assert not any(apart(cpus.pools, grant) & wanted(cpus.pools, other) for other in others)


def test_each_set_that_changes_is_written_once_and_no_other() -> None:
    rules = PolicySettings("static", reserved=RESERVED_ONE)
    world = World(rules, told(rules, of=machine(8)))
    for number, (qos, cpus) in enumerate([*SIZES, *SIZES]):
        made = one(f"p{number}", cpus, qos)
        decision = world.engine(ev.Creating(home(f"p{number}", qos), made, ask_id=number + 1))
        world.kernel[made.cgroups_path] = parse(given(decision))
        world.engine(ev.Created(home(f"p{number}", qos), made))
        world.write(decision, 10_000)
        world.write(world.engine(ev.Started(home(f"p{number}", qos), made.in_phase(Phase.RUNNING))), 10_000)
    assert world.writes == world.changes > 0
