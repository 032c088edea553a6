"""The daemon is stopped at every call of the host's files in a pod's life, started again, and all is right in the end.

One story without chance: the daemon's own start, a pod with init container, sidecar and container, its limits, a drift
and its repair, an update, the end. It is played once to count its calls, then once for each of them; every play ends in
the same judgement as the histories: limits in the kernel, nothing left, the record replays, the undo list is whole.
"""

import asyncio
from contextlib import suppress
from random import Random

import pytest

from nodeward.app.undo import UndoList
from nodeward.model import events as ev
from nodeward.model.workload import PodSpec, PodUid, Role
from tests.unit.simulated import checks
from tests.unit.simulated.history import History, virtual_loop
from tests.unit.simulated.life import SETTINGS
from tests.unit.simulated.plans import EPC, PAGE, Plan, sidecar_before_init
from tests.unit.simulated.virtual import VirtualLoop
from tests.unit.simulated.world import ROOT, LiveContainer

KIND = sidecar_before_init(2, 1, 3)
PLAN = Plan(PodUid("1"), PodSpec(PodUid("1"), "shop", "web", KIND.containers), KIND, "/kubepods/pod1", systemd=False)


class Story(History):
    """A pod's life. The daemon is stopped at call `stop_at` (0 for never), and once more `again` calls later."""

    def __init__(self, loop: VirtualLoop, stop_at: int, again: int = 0) -> None:
        super().__init__(1, loop, settings=SETTINGS)
        self.weather.stop_in, self._again = stop_at, again
        self.world.serial = True
        self._calm_s = 2
        self.stops = 0
        """The calls of the story at which the daemon can be stopped: all but those of quiet times."""

    def _before_call(self, name: str, path: str) -> None:
        before = self.weather.stop_in
        try:
            super()._before_call(name, path)
        finally:
            if before == 1:
                self.weather.stop_in, self._again = self._again, 0

    async def play(self) -> None:
        daemon = asyncio.ensure_future(self.daemon())
        await asyncio.sleep(1.0)
        await self._pod()
        self.stops += self.calls.total()
        await self.quiet("without the pod", (lambda: checks.nothing_left(self.world, self._life()),))
        await self._end(daemon, [])

    async def _pod(self) -> None:
        world, random = self.world, Random("story")
        world.put(PLAN.spec)
        pod = world.start_pod(PLAN)
        await world.tell(ev.SandboxStarted(pod.sandbox))
        lives: dict[str, LiveContainer] = {}
        for spec in KIND.containers:
            await asyncio.sleep(0.05)
            live = None
            while live is None:  # kubelet tries again
                live = await world.start_container(pod, spec, random)
            lives[spec.name] = live
            if spec.role is Role.INIT:
                await asyncio.sleep(0.1)
                await world.end_container(live, random)
        await asyncio.sleep(1.2)
        world.reached.pop(lives["app"].container.cgroups_path, None)
        with suppress(FileNotFoundError):  # misc is not on yet
            self.kernel.write(f"{ROOT}{lives['app'].container.cgroups_path}/misc.max", f"{EPC} max".encode())
        await asyncio.sleep(2.2)
        await world.update_container(lives["app"])
        world.charge(lives["app"], 9 * PAGE)
        stop_in, before = self.weather.stop_in, self.calls.total()
        await self.quiet("with the pod", (lambda: checks.limits_in_kernel(world),))
        self.weather.stop_in = stop_in
        self.stops -= self.calls.total() - before
        await world.end_pod(pod, random)
        world.delete(PLAN.spec.uid)
        await asyncio.sleep(1.5)


def played(stop_at: int, again: int = 0) -> Story:
    with virtual_loop() as loop:
        story = Story(loop, stop_at, again)
        loop.run_until_complete(story.play())
    return story


def test_a_daemon_that_is_stopped_at_any_call_is_right_after_its_restart() -> None:
    whole = played(0)
    assert whole.world.violations == []
    assert whole.lives == 1
    assert {"append", "replace", "write", "read", "pread", "open", "close", "stat", "mkdir"} <= set(whole.calls)

    plays = {call: played(call) for call in range(1, whole.stops + 1)}

    assert {call: play.world.violations for call, play in plays.items() if play.world.violations} == {}
    assert [call for call, play in plays.items() if play.lives != 2] == [], "each of them stopped the daemon"


@pytest.mark.parametrize("again", [1, 6, 14])
def test_a_daemon_that_is_stopped_twice_is_right_too(again: int) -> None:
    plays = {call: played(call, again) for call in range(again, played(0).stops, 7)}

    assert {call: play.world.violations for call, play in plays.items() if play.world.violations} == {}


def test_a_change_before_its_entry_on_the_undo_list_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UndoList, "remember", lambda *_: None)

    assert any("not on the undo list" in text for text in played(0).world.violations)
