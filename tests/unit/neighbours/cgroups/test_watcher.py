"""The wait for refusals: what is told, what is waited for, and that descriptors are given back."""

import asyncio
import contextlib
import errno
from collections.abc import Callable, Sequence

import pytest

from nodeward.core import events as ev
from nodeward.host.lanes import GivenUpError
from nodeward.neighbours.cgroups import watcher
from nodeward.neighbours.cgroups.hierarchy import Tree
from nodeward.neighbours.cgroups.watcher import Watcher
from nodeward_sim.doubles.kernel import SimKernel
from tests.faults import FaultyFiles
from tests.lanes import Done, Ended, T
from tests.unit.features.build import ManualClock

ROOT = "/sys/fs/cgroup"
POD, APP = "/pod", "/pod/app"


@pytest.fixture(name="kernel")
def _kernel() -> SimKernel:
    kernel = SimKernel({"sgx_epc": 1 << 20})
    kernel.write(f"{ROOT}/cgroup.subtree_control", b"+misc")
    kernel.mkdir(ROOT + POD)
    kernel.write(f"{ROOT}{POD}/cgroup.subtree_control", b"+misc")
    kernel.mkdir(ROOT + APP)
    return kernel


def refuse(kernel: SimKernel, cgroup: str = APP) -> None:
    kernel.write(f"{ROOT}{cgroup}/misc.max", b"sgx_epc 0")
    with pytest.raises(OSError, match="busy"):
        kernel.charge(ROOT + APP, "sgx_epc", 1)


def test_a_refusal_is_told_for_each_level_that_counts_it(kernel: SimKernel) -> None:
    watch = Watcher(kernel, Tree(kernel, ROOT))
    assert watch.wait([POD, APP], 0) == (), "what was refused before is no news"

    refuse(kernel, POD)
    assert watch.wait([POD, APP], 0) == (POD,)
    assert watch.wait([POD, APP], 0) == ()
    refuse(kernel, APP)
    assert watch.wait([POD, APP], 0) == (POD, APP)


def test_many_refusals_are_one_piece_of_news(kernel: SimKernel) -> None:
    watch = Watcher(kernel, Tree(kernel, ROOT))
    watch.wait([APP], 0)
    for _ in range(100):
        refuse(kernel)

    assert watch.wait([APP], 0) == (APP,)
    assert watch.read([APP]).readings[APP].refusals == {"sgx_epc": 100}
    assert watch.open_files == 1, "one that waits; those that were read are given back"


def test_a_cgroup_that_is_gone_is_let_go_and_one_of_its_name_watched_anew(kernel: SimKernel) -> None:
    watch = Watcher(kernel, Tree(kernel, ROOT))
    watch.wait([APP], 0)
    kernel.rmdir(ROOT + APP)
    assert watch.wait([APP], 0) == ()
    assert watch.open_files == 0
    kernel.mkdir(ROOT + APP)
    watch.wait([APP], 0)
    refuse(kernel)
    assert watch.wait([APP], 0) == (APP,)


def test_what_is_not_wanted_any_more_is_let_go(kernel: SimKernel) -> None:
    watch = Watcher(kernel, Tree(kernel, ROOT))
    watch.wait([POD, APP], 0)
    watch.wait([APP], 0)
    assert watch.open_files == 1
    watch.close()
    assert (watch.open_files, kernel._handles) == (0, {})


def test_without_a_controller_there_is_nothing_to_wait_for() -> None:
    kernel = SimKernel({}, controllers=("cpu",))
    kernel.mkdir(ROOT + POD)
    assert Watcher(kernel, Tree(kernel, ROOT)).wait([POD], 0) == ()


class HealthyCloses(FaultyFiles):
    """Fails at any call but close, which frees the descriptor on Linux even if it fails."""

    def close(self, handle: int) -> None:
        self._inner.close(handle)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.ENODEV])
def test_any_call_may_fail_and_no_descriptor_is_lost(kernel: SimKernel, number: int) -> None:
    def work(files: FaultyFiles) -> None:
        watch = Watcher(files, Tree(files, ROOT))
        for act in (lambda: watch.wait([POD, APP], 0), lambda: watch.read([POD]), lambda: watch.wait([APP], 0)):
            with contextlib.suppress(OSError):
                act()
        watch.close()

    whole = HealthyCloses(kernel)
    work(whole)
    for call in range(1, whole.total + 1):
        work(HealthyCloses(kernel, fail_at=call, fail_errno=number))
        assert kernel._handles == {}


class ScriptedLane:
    """Runs each job at once, and gives up those whose number is named."""

    def __init__(self, give_up: Sequence[int] = ()) -> None:
        self.jobs: list[str] = []
        self._give_up = give_up

    def submit(self, name: str, job: Callable[[], T], done: Done[T], ended: Ended = None) -> bool:
        self.jobs.append(name)
        if len(self.jobs) in self._give_up:
            done(GivenUpError(name))
            if ended is not None:
                ended()
        else:
            done(job())
        return True


class EndError(Exception):
    pass


class ScriptedClock(ManualClock):
    things: list[Callable[[], None]]

    async def sleep(self, seconds: float) -> None:
        if not self.things:
            raise EndError
        self.things.pop(0)()


def story(kernel: SimKernel, lane: ScriptedLane, *things: Callable[[], None]) -> list[ev.Sampled]:
    """What was told while these things happened, one between two waits."""
    told: list[ev.Sampled] = []

    def tell(event: ev.Event) -> int:
        assert isinstance(event, ev.Sampled)
        told.append(event)
        return 5

    clock = ScriptedClock()
    clock.things = list(things)
    with pytest.raises(EndError):
        asyncio.run(watcher.run(lane, Watcher(kernel, Tree(kernel, ROOT)), lambda: [POD, APP], tell, lambda: 4, clock))
    return told


def nothing() -> None:
    """Time passes."""


def test_a_refusal_is_told_with_a_fresh_reading_of_both_levels(kernel: SimKernel) -> None:
    lane = ScriptedLane()
    told = story(kernel, lane, lambda: refuse(kernel), nothing)

    assert [(event.as_of, event.gone, list(event.readings)) for event in told] == [(4, (), [POD, APP])]
    assert told[0].readings[APP].refusals_local == {"sgx_epc": 1}
    assert lane.jobs == ["watch", "watch", "refusals", "watch"]


def test_a_wait_that_hangs_is_given_up_and_begun_anew(kernel: SimKernel) -> None:
    lane = ScriptedLane(give_up=[2])
    told = story(kernel, lane, nothing, lambda: refuse(kernel), nothing)

    assert len(told) == 1


def test_a_lane_that_takes_nothing_is_tried_again(kernel: SimKernel) -> None:
    class Full(ScriptedLane):
        def submit(self, *_: object) -> bool:
            self.jobs.append("")
            return False

    lane = Full()
    assert story(kernel, lane, nothing, nothing) == []
    assert len(lane.jobs) == 3
