"""Containers found by their cgroups: which are told of, and how few calls that takes."""

import asyncio

import pytest

from nodeward.core import events as ev
from nodeward.core.workload import ContainerId, PodUid
from nodeward.neighbours.cgroups import sampler
from nodeward.neighbours.cgroups.finder import LIST_AGAIN, RUNTIME_AWAY_S, Finder, Turn
from nodeward.neighbours.cgroups.hierarchy import Tree
from nodeward_sim.doubles.kernel import SimKernel
from tests.faults import FaultyFiles
from tests.lanes import InlineLane
from tests.rigs.turned import TurnedClock
from tests.unit.features.build import SECOND, ManualClock

ROOT = "/sys/fs/cgroup"
ONE, TWO, THREE = (digit * 64 for digit in "123")
SLICE = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice"


@pytest.fixture(name="kernel")
def _kernel() -> SimKernel:
    return SimKernel({"sgx_epc": 1 << 20})


def nobody(_: str) -> bool:
    return False


@pytest.mark.parametrize(
    ("path", "uid"),
    [
        (f"/kubepods/podX/{ONE}", "X"),
        (f"/kubepods/besteffort/podX/{ONE}", "X"),
        (f"{SLICE}/cri-containerd-{ONE}.scope", "a-b"),
    ],
)
def test_a_container_is_found_in_every_form_of_path(kernel: SimKernel, path: str, uid: str) -> None:
    kernel.make_cgroup(ROOT + path)

    assert Finder(kernel, Tree(kernel, ROOT)).find([], nobody) == (ev.FoundCgroup(path, ContainerId(ONE), PodUid(uid)),)


def test_a_pod_elsewhere_is_searched_with_its_neighbours(kernel: SimKernel) -> None:
    kernel.make_cgroup(f"{ROOT}/mine/first/{ONE}")
    kernel.make_cgroup(f"{ROOT}/mine/podY/{TWO}")

    found = Finder(kernel, Tree(kernel, ROOT)).find(["/mine/first"], nobody)

    assert [(one.path, one.pod_uid) for one in found] == [(f"/mine/first/{ONE}", ""), (f"/mine/podY/{TWO}", "Y")]


@pytest.mark.parametrize(
    "pod",
    [
        "/my-own/pods/kubepods/podX",
        "/my_own.slice/my_own-pods.slice/my_own-pods-kubepods.slice/my_own-pods-kubepods-podX.slice",
    ],
)
def test_pods_below_a_cgroup_root_of_kubelets_own_are_found(kernel: SimKernel, pod: str) -> None:
    kernel.make_cgroup(f"{ROOT}{pod}/{ONE}")
    tree = Tree(kernel, ROOT)

    found = Finder(kernel, tree, "/my-own/pods").find([], nobody)

    assert found == (ev.FoundCgroup(f"{pod}/{ONE}", ContainerId(ONE), PodUid("X")),)
    assert Finder(kernel, tree, "/my-own/pods").anew().find([], nobody) == found
    assert Finder(kernel, tree).find([], nobody) == ()


def test_a_known_id_is_no_news(kernel: SimKernel) -> None:
    for name in (ONE, TWO):
        kernel.make_cgroup(f"{ROOT}/kubepods/podX/{name}")

    assert [one.id for one in Finder(kernel, Tree(kernel, ROOT)).find([], ONE.__eq__)] == [TWO]


def test_one_stat_a_folder_while_nothing_changes(kernel: SimKernel) -> None:
    for number in range(10):
        kernel.make_cgroup(f"{ROOT}/kubepods/podX{number}/{number:064x}")
    files = FaultyFiles(kernel)
    finder = Finder(files, Tree(files, ROOT))
    finder.find([], nobody)
    files.calls.clear()

    finder.find([], nobody)

    assert files.calls == {"stat": 12}, "ten pods, /kubepods and /kubepods.slice"


def test_a_new_child_is_seen_at_once_and_an_exchanged_one_soon(kernel: SimKernel) -> None:
    finder = Finder(kernel, Tree(kernel, ROOT))
    kernel.make_cgroup(f"{ROOT}/kubepods/podX/{ONE}")
    finder.find([], nobody)
    kernel.make_cgroup(f"{ROOT}/kubepods/podX/{TWO}")
    assert [one.id for one in finder.find([], nobody)] == [ONE, TWO]
    kernel.rmdir(f"{ROOT}/kubepods/podX/{TWO}")
    kernel.make_cgroup(f"{ROOT}/kubepods/podX/{THREE}")

    searches = [[one.id for one in finder.find([], nobody)] for _ in range(LIST_AGAIN)]

    assert searches[-1] == [ONE, THREE]


def test_a_pod_made_anew_under_the_same_path_is_listed_anew(kernel: SimKernel) -> None:
    finder = Finder(kernel, Tree(kernel, ROOT))
    for name in (ONE, TWO):
        kernel.make_cgroup(f"{ROOT}/kubepods/podX/{name}")
        assert [one.id for one in finder.find([], nobody)] == [name]
        kernel.rmdir(f"{ROOT}/kubepods/podX/{name}")
        kernel.rmdir(f"{ROOT}/kubepods/podX")


def test_a_cgroup_that_vanishes_during_the_search_ends_nothing(kernel: SimKernel) -> None:
    kernel.make_cgroup(f"{ROOT}/kubepods/podX/{ONE}")
    for number in range(1, 20):
        files = FaultyFiles(kernel, fail_at=number, fail_errno=2)
        Finder(files, Tree(files, ROOT)).find([], nobody)


def test_a_pass_tells_of_what_it_found_after_what_it_read(kernel: SimKernel) -> None:
    kernel.make_cgroup(f"{ROOT}/kubepods/podX/{ONE}")
    lane, told = InlineLane(), list[ev.Event]()

    def tell(event: ev.Event) -> int:
        told.append(event)
        return 8

    scope = sampler.Scope(["/kubepods/podX"], ["/kubepods/podX"], nobody)
    reader, finder = sampler.Reader(kernel, Tree(kernel, ROOT)), Finder(kernel, Tree(kernel, ROOT))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(sampler.run(lane, reader, finder, lambda: scope, dict, tell, lambda: 7, TurnedClock(lane, 1), 1.0))

    assert [type(event).__name__ for event in told] == ["CapacityRead", "Sampled", "CgroupsFound"]
    last = told[-1]
    assert isinstance(last, ev.CgroupsFound)
    assert (last.as_of, [one.id for one in last.found]) == (7, [ONE])


def test_no_search_while_the_runtime_is_about_to_tell_what_it_has() -> None:
    clock, waited_for = ManualClock(), [True]
    turn = Turn(lambda: waited_for[0], clock)
    clock.ns += SECOND
    assert not turn.has_come()
    waited_for[0] = False
    assert turn.has_come()
    waited_for[0] = True
    clock.ns += SECOND
    assert not turn.has_come()
    clock.ns += int(RUNTIME_AWAY_S * SECOND)
    assert turn.has_come(), "the runtime stays away"
    clock.ns += SECOND
    assert turn.has_come()
    waited_for[0] = False
    assert turn.has_come()
