"""Given containers that share CPUs and one that gets some alone, when its program may begin."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from nodeward.aio.clock import SystemClock
from nodeward.app.host.core import Core
from nodeward.app.host.facts import FactsByKind
from nodeward.app.host.slots import Slots
from nodeward.app.host.start_gate import StartGate
from nodeward.engine.state.root import State
from nodeward.model import events as ev
from nodeward.model.decision import Goal, Target
from nodeward.model.policy_rule import CpusSettings, OnLate
from nodeward.model.ports import Written
from nodeward.model.settings import EngineSettings
from nodeward.model.workload import ContainerId, Phase
from tests.lanes import InlineLane
from tests.unit.engine.cpus.build import STATIC_RULES, home, machine, one

ALONE = ContainerId("c-0")


class Desk:
    """A core whose goals are written when the test lets the lane run."""

    def __init__(self, cpus: CpusSettings) -> None:
        self.lane = InlineLane()
        self.written: dict[str, str] = {}
        slots = Slots(self.lane, dict.fromkeys(("cpuset", "misc.max", "subtree"), self._write), SystemClock())
        state = State(settings=EngineSettings(policy=STATIC_RULES, cpus=cpus))
        self.core = Core(state, SystemClock(), slots, FactsByKind(), _nothing)
        self.gate = StartGate(self.core, slots)
        self.core.tell(ev.TopologyRead(machine()))
        for pod, cpus_of, qos in (("a", 0, "burstable"), ("c", 2, "")):
            made = one(pod, cpus_of, qos)
            self.core.ask(ev.Creating(home(pod, qos), made), 1)
            self.core.tell(ev.Created(home(pod, qos), made))
            self.core.tell(ev.Started(home(pod, qos), made.in_phase(Phase.RUNNING)))

    def _write(self, target: Target, goal: Goal, _: bool) -> Written:
        before = self.written.get(target.where, "")
        self.written[target.where] = str(goal.value)
        return Written(before != goal.value, before)


async def _nothing(_: str) -> str:
    return ""


def story(tale: Callable[[Desk], Awaitable[None]], cpus: CpusSettings | None = None) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await tale(Desk(cpus or CpusSettings()))

    asyncio.run(bounded())


def test_a_program_begins_once_the_others_were_read_back() -> None:
    async def tale(desk: Desk) -> None:
        assert desk.gate.needed()
        waiting = asyncio.create_task(desk.gate.written(ALONE, 20.0))
        await asyncio.sleep(0)
        assert not waiting.done()
        desk.lane.drain()
        assert await waiting == ""
        assert desk.written["/kubepods/burstable/poda/a-0"] == "0-1,4-7"
        assert desk.core.state.cpus.late == 0

    story(tale)


@pytest.mark.parametrize("rule", list(OnLate), ids=lambda rule: rule.value)
def test_after_its_time_a_program_begins_or_is_refused_by_the_setting(rule: OnLate) -> None:
    async def tale(desk: Desk) -> None:
        why = await desk.gate.written(ALONE, 20.0)
        assert ("1 other container(s) could not be moved off its CPUs" in why) is (rule is OnLate.REFUSE)
        assert desk.core.state.cpus.late == 1

    story(tale, replace(CpusSettings(), on_late=rule, late_ms=1))


def test_a_refusal_names_the_pod_of_a_container_whose_cgroup_nobody_has_found() -> None:
    async def tale(desk: Desk) -> None:
        lost = replace(one("b", 0, "burstable"), cgroups_path="").in_phase(Phase.RUNNING)
        desk.core.tell(ev.Listed((home("b", "burstable"),), (lost,), desk.core.seq(), complete=False))
        desk.lane.drain()
        why = await desk.gate.written(ALONE, 20.0)
        assert "1 other container(s)" in why
        assert "shop/b/app b-0, whose cgroup was not found" in why

    story(tale, replace(CpusSettings(), on_late=OnLate.REFUSE, late_ms=1))
