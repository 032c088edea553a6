"""The daemon is stopped at every call of the host's files in a pod's life, started again, and all is right in the end.

Two stories without chance. The first: the daemon's own start, a pod with init container, sidecar and container, its
limits, a drift and its repair, an update, the end. The second: two pods with a key each, from when there is something
to be had to the last pod's end. Each is played once to count its calls, then once for each of them; every play ends in
the same judgement as the histories: limits in the kernel, the keys on record that were answered and no others, nothing
left, the record replays, the undo list is whole.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from nodeward.app.host.undo import UndoList
from nodeward.app.node.grants import Grants
from nodeward.model import events as ev
from nodeward.model.workload import ContainerSpec, PodSpec, PodUid, Role
from tests.unit.simulated import checks
from tests.unit.simulated.history import JOURNAL, KEYS, History, virtual_loop
from tests.unit.simulated.kubelet import LEDGER, with_key
from tests.unit.simulated.life import SETTINGS
from tests.unit.simulated.plans import EPC, PAGE, Kind, Plan, sidecar_before_init
from tests.unit.simulated.virtual import VirtualLoop
from tests.unit.simulated.world import ROOT, LiveContainer, LivePod

KIND = sidecar_before_init(2, 1, 3)
APP = ContainerSpec("app")
VM = Kind((APP,), {"app": None}, None)
VMS = [
    with_key(Plan(uid, PodSpec(uid, "shop", f"vm-{uid}", VM.containers), VM, f"/kubepods/pod{uid}", systemd=False))
    for uid in (PodUid("2"), PodUid("3"))
]
PLAN = Plan(PodUid("1"), PodSpec(PodUid("1"), "shop", "web", KIND.containers), KIND, "/kubepods/pod1", systemd=False)


class Story(History):
    """A pod's life. The daemon is stopped at call `stop_at` (0 for never), and once more `again` calls later. Where
    that writes grants, it dies once this is `done`, or halfway."""

    settings = SETTINGS

    def __init__(self, loop: VirtualLoop, stop_at: int, again: int = 0, *, done: bool = False) -> None:
        super().__init__(1, loop, settings=self.settings)
        self.trouble.weather.stop_in, self._again, self._done = stop_at, again, done
        self.world.serial = True
        self._calm_s = 2
        self._is_told = True
        self.stops = 0
        """The calls of the story at which the daemon can be stopped: all but those of quiet times."""
        self.writes = list[int]()
        """Those of them that write grants."""

    def _before_call(self, name: str, path: str) -> None:
        before = self.trouble.weather.stop_in
        if self._is_told:
            self.stops += 1
            if path == JOURNAL and name in ("append", "replace"):
                self.writes.append(self.stops)
        try:
            super()._before_call(name, path)
        finally:
            if before == 1:
                self.trouble.weather.stop_in, self._again = self._again, 0

    def _is_done(self) -> bool:
        return self._done

    async def play(self) -> None:
        daemon = asyncio.ensure_future(self.daemon())
        await asyncio.sleep(1.0)
        await self._pod()
        self._is_told = False
        await self.quiet("without the pod", (lambda: checks.nothing_left(self.world, self._life()), *self._hold()))
        await self._end(daemon, [])

    async def _quiet_between(self, what: str, holds: Iterable[Callable[[], list[str]]]) -> None:
        stop_in, self._is_told = self.trouble.weather.stop_in, False
        await self.quiet(what, holds)
        self.trouble.weather.stop_in, self._is_told = stop_in, True

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
        stop_in, before = self.trouble.weather.stop_in, self.calls.total()
        await self.quiet("with the pod", (lambda: checks.limits_in_kernel(world),))
        self.trouble.weather.stop_in = stop_in
        self.stops -= self.calls.total() - before
        await world.end_pod(pod, random)
        world.delete(PLAN.spec.uid)
        await asyncio.sleep(1.5)


class KeyedStory(Story):
    """Two pods are given a key each, of which there are no more; both start, take their keys, and end."""

    settings = replace(SETTINGS, ledger=LEDGER)
    offered = 0
    """The first call of the story by which there is something to be had."""

    async def _pod(self) -> None:
        world, random, kubelet = self.world, Random("story"), self.kubelet
        assert kubelet is not None
        kubelet.others_take(KEYS - len(VMS))
        while not kubelet.healthy():
            await asyncio.sleep(0.1)
        self.offered, pods = self.stops, list[LivePod]()
        for plan in VMS:
            world.put(plan.spec)
            while not await kubelet.admits(plan.uid):  # whoever wants the pod makes it again
                await asyncio.sleep(0.3)
            pods.append(world.start_pod(plan))
            await world.tell(ev.SandboxStarted(pods[-1].sandbox))
        for pod in pods:
            while await self._start(pod, APP, random) is None:
                await asyncio.sleep(0.1)
        await self._quiet_between("with keys", self._hold())
        for pod in pods:
            await world.end_pod(pod, random)
            world.delete(pod.plan.spec.uid)
            kubelet.ended(pod.plan.uid, 0.2)
        await asyncio.sleep(0.5)


def played(stop_at: int, again: int = 0, *, done: bool = False, story: type[Story] = Story) -> Story:
    with virtual_loop() as loop:
        play = story(loop, stop_at, again, done=done)
        loop.run_until_complete(play.play())
    return play


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


def test_a_daemon_that_is_stopped_at_any_call_has_the_keys_on_record_that_it_answered_and_no_others() -> None:
    whole = played(0, story=KeyedStory)
    assert isinstance(whole, KeyedStory)
    assert whole.world.violations == []
    assert whole.lives == 1
    granted = [call for call in whole.writes if call >= whole.offered]
    assert len(granted) == len(VMS)

    calls = range(whole.offered, whole.stops + 1)
    plays = {f"at {call}": played(call, story=KeyedStory) for call in calls}
    plays |= {f"after {call}": played(call, done=True, story=KeyedStory) for call in granted}

    assert {call: play.world.violations for call, play in plays.items() if play.world.violations} == {}
    assert [call for call, play in plays.items() if play.lives != 2] == [], "each of them stopped the daemon"


@pytest.mark.parametrize("done", [False, True], ids=["halfway", "done"])
def test_a_daemon_that_is_stopped_again_while_it_reads_what_it_granted_has_it_on_record(done: bool) -> None:
    second = played(0, story=KeyedStory).writes[-1]
    plays = {again: played(second, again, done=done, story=KeyedStory) for again in range(1, 24)}

    assert {again: play.world.violations for again, play in plays.items() if play.world.violations} == {}
    assert [again for again, play in plays.items() if play.lives != 3] == []


def test_a_grant_that_is_answered_before_it_is_on_record_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hasty(self: Grants, record: str) -> str:
        return ""

    monkeypatch.setattr(Grants, "commit", hasty)
    whole = played(0, story=KeyedStory)
    assert isinstance(whole, KeyedStory)
    plays = (played(call, story=KeyedStory) for call in range(whole.offered, whole.stops + 1))

    assert any("is not on record" in text for play in plays for text in play.world.violations)


def test_a_change_before_its_entry_on_the_undo_list_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UndoList, "remember", lambda *_: None)

    assert any("not on the undo list" in text for text in played(0).world.violations)
