"""The daemon is stopped at calls of the host's files in a pod's life, started again, and all is right in the end.

A story without chance: the daemon's own start, a pod with init container, sidecar and container, its limits, a drift
and its repair, an update, the end. It is played once to note its calls, then once for each different one of them (`make
deep`: for each); every play ends in the same judgement as the histories: limits in the kernel, nothing left, the record
replays, the undo list is whole. Grants: tests/unit/features/keys/test_grants.py.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from nodeward.core import events as ev
from nodeward.core.workload import PodSpec, PodUid, Role
from nodeward.neighbours.cgroups import sampler
from tests.unit.simulated import checks
from tests.unit.simulated.history import History, run, virtual_loop
from tests.unit.simulated.keyed import CAPACITY, KeyedLifetimes
from tests.unit.simulated.life import SETTINGS
from tests.unit.simulated.lifetimes import Left
from tests.unit.simulated.plans import EPC, PAGE, Plan, sidecar_before_init
from tests.unit.simulated.virtual import VirtualLoop
from tests.unit.simulated.world import ROOT, LiveContainer

KIND = sidecar_before_init(2, 1, 3)
PLAN = Plan(PodUid("1"), PodSpec(PodUid("1"), "shop", "web", KIND.containers), KIND, "/kubepods/pod1", systemd=False)


class Story(History):
    """A pod's life. The daemon is stopped at call `stop_at` (0 for never), and once more `again` calls later."""

    def __init__(self, loop: VirtualLoop, stop_at: int, again: int = 0) -> None:
        super().__init__(1, loop, settings=SETTINGS)
        self.trouble.weather.stop_in, self._again = stop_at, again
        self.world.serial = True
        self._calm_s = 2
        self._is_told = True
        self.stops = list[tuple[str, str]]()
        """The calls of the story at which the daemon can be stopped: all but those of quiet times."""

    def _before_call(self, name: str, path: str) -> None:
        before = self.trouble.weather.stop_in
        if self._is_told:
            self.stops.append((name, path))
        try:
            super()._before_call(name, path)
        finally:
            if before == 1:
                self.trouble.weather.stop_in, self._again = self._again, 0

    async def play(self) -> None:
        daemon = asyncio.ensure_future(self.daemon())
        await asyncio.sleep(1.0)
        await self._pod()
        self._is_told = False
        await self.quiet("without the pod", (lambda: checks.nothing_left(self.world, self._life()), self._settled))
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
        stop_in, self._is_told = self.trouble.weather.stop_in, False
        await self.quiet("with the pod", (lambda: checks.limits_in_kernel(world),))
        self.trouble.weather.stop_in, self._is_told = stop_in, True
        await world.end_pod(pod, random)
        world.delete(PLAN.spec.uid)
        await asyncio.sleep(1.5)


def played(stop_at: int, again: int = 0) -> Story:
    with virtual_loop() as loop:
        play = Story(loop, stop_at, again)
        loop.run_until_complete(play.play())
    return play


def is_right(calls: Iterable[int], again: int = 0) -> None:
    plays = {call: played(call, again) for call in calls}
    assert {call: play.world.violations for call, play in plays.items() if play.world.violations} == {}
    if not again:
        assert [call for call, play in plays.items() if play.lives != 2] == [], "each of them stopped the daemon"


def test_a_daemon_that_is_stopped_at_a_call_of_any_kind_is_right_after_its_restart_and_after_a_second_one() -> None:
    whole = played(0)
    assert whole.world.violations == []
    assert whole.lives == 1
    assert {"append", "replace", "write", "read", "pread", "open", "close", "stat", "mkdir"} <= set(whole.calls)

    kinds = ((number, (name, Path(path).name)) for number, (name, path) in reversed(list(enumerate(whole.stops, 1))))
    firsts = sorted({kind: number for number, kind in kinds}.values())
    is_right(firsts)
    is_right(firsts[::8], again=6)


@pytest.mark.nightly
@pytest.mark.parametrize("again", [0, 1, 6, 14])
def test_a_daemon_that_is_stopped_at_any_call_is_right_after_its_restart(again: int) -> None:
    is_right(range(1, len(played(0).stops) + 1), again)


SEEDS = range(1000, 1006)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_violates_nothing(seed: int) -> None:
    outcome = run(seed)

    assert list(outcome.violations) == [], f"make simtest SEED={seed} tells all of it"
    assert outcome.events > 50
    assert outcome.pods > 0


@pytest.mark.nightly
def test_many_histories_violate_nothing() -> None:
    first, number = int(os.environ.get("NODEWARD_SEED", "1")), int(os.environ.get("NODEWARD_HISTORIES", "200"))
    assert [seed for seed in range(first, first + number) if run(seed).violations] == []


def test_a_history_in_which_passes_are_told_cgroup_by_cgroup_violates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "MOST_TOLD", 1)
    assert list(run(SEEDS[0]).violations) == []


def test_a_seed_is_one_run_in_any_process_and_a_wall_clock_that_is_set_changes_no_decision() -> None:
    play = [sys.executable, "-c", "from tests.unit.simulated.history import run; print(run(11).digest)"]
    root, env = Path(__file__).parents[3], {**os.environ, "PYTHONHASHSEED": "4711"}
    digest = subprocess.check_output(play, env=env, cwd=root, text=True, timeout=120)
    jumped, straight = run(11), run(11, wall_jumps=False)

    assert digest.split() == [jumped.digest]
    assert jumped.digest != straight.digest, "the clock was not set in this history: choose another seed"
    assert jumped.decisions == straight.decisions


CONTROLLERS = 3
"""The slots that outlive pods: misc switched on in the root and in the two cgroups above the pods."""


def test_a_hundred_and_twenty_pods_with_a_key_each_leave_no_grant_and_no_descriptor_behind() -> None:
    lifetimes = KeyedLifetimes()
    try:
        lifetimes.live(20)
        first = lifetimes.left()
        lifetimes.live(120)
        left = lifetimes.keys_left()

        assert lifetimes.left() == first == Left(0, CONTROLLERS, 0, 1, 0)
        assert (left.granted, left.entries) == (0, 0), lifetimes.why
        assert left.journal_bytes < 16 * 1024
        assert lifetimes.granted == 20 + 120 > 2 * CAPACITY
    finally:
        lifetimes.close()
