"""The limits that a pod should have, and whose cgroup may be given one."""

from dataclasses import replace

import pytest

from nodeward.engine.sandboxes.limits import LARGEST_PAGE, Overhead, declared, limits, own_cgroup, wish
from nodeward.engine.state.sandboxes import Limited, Vm
from nodeward.model.sandboxes import UNLIMITED, CgroupReading, Place
from nodeward.model.workload import (
    Container,
    ContainerId,
    ContainerSpec,
    CpuRecord,
    HostShare,
    PodSpec,
    PodUid,
    Role,
    Sandbox,
    WholePod,
)
from tests.unit.engine.sandboxes.build import GIB, ID, MIB, reading

SANDBOX = Sandbox(ID, PodUid("ab-cd-12"), "shop", "web")
MORE = Overhead(100 * MIB, 250)


def one(memory: int, cpu_m: int, name: str = "app") -> Container:
    return Container(ContainerId(name), ID, name, cpu=CpuRecord(0, cpu_m * 100, 100_000), memory=memory)


def spec(*containers: tuple[Role, int, int], pod_level: bool = False) -> PodSpec:
    every = tuple(ContainerSpec(str(at), role, memory_limit=mem, cpu_limit_m=cpu) for at, (role, mem, cpu) in
                  enumerate(containers))  # fmt: skip
    return PodSpec(PodUid("ab-cd-12"), "shop", "web", every, pod_level=pod_level)


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        pytest.param([one(GIB, 500), one(GIB, 1000)], (2 * GIB + 100 * MIB, 1750), id="sum and overhead"),
        pytest.param([one(GIB, 500), one(0, 500)], (None, 1250), id="one without a memory limit"),
        pytest.param([one(GIB, 500), one(GIB, 0)], (2 * GIB + 100 * MIB, None), id="one without a CPU limit"),
        pytest.param([], (None, None), id="no container yet"),
    ],
)
def test_a_limit_is_the_sum_where_every_container_has_one(
    containers: list[Container], expected: tuple[int | None, int | None]
) -> None:
    assert limits(None, containers, MORE) == expected


def test_by_a_spec_init_containers_count_as_kubelet_counts_them() -> None:
    of = spec((Role.INIT, 3 * GIB, 100), (Role.SIDECAR, GIB, 100), (Role.REGULAR, GIB, 300), (Role.EPHEMERAL, 0, 0))
    assert limits(of, [one(0, 0)], Overhead()) == (3 * GIB, 400)


def test_a_pods_own_limits_are_not_guessed() -> None:
    of = spec((Role.REGULAR, GIB, 1), pod_level=True)
    assert limits(of, [], MORE) == (None, None), "an old source does not tell them"
    assert limits(replace(of, whole=WholePod(memory_limit=2 * GIB)), [], Overhead()) == (2 * GIB, 1)


def test_an_overhead_is_the_specs_else_what_kubelet_told_the_runtime() -> None:
    told = replace(SANDBOX, overhead=HostShare(CpuRecord(0, 25_000, 100_000), 130 * MIB))
    assert declared(None, told) == Overhead(130 * MIB, 250)
    assert declared(replace(spec(), overhead_memory=7), told) == Overhead(7, 0)
    assert declared(None, None) == Overhead()


def test_a_cgroup_of_which_the_runtime_does_not_tell_or_with_a_short_uid_in_its_name_is_not() -> None:
    vm = Vm(reading(cgroups=(CgroupReading(Place.POD, "/mypods"),)))
    assert own_cgroup(vm, replace(SANDBOX, pod_uid=PodUid("pods"))) is None
    assert own_cgroup(Vm(reading(cgroups=(CgroupReading(Place.SANDBOX, "/s1"),))), None) is None


@pytest.mark.parametrize(
    ("has", "should", "ours", "step", "is_due"),
    [
        pytest.param(UNLIMITED, 100, None, 1, True, id="missing"),
        pytest.param(UNLIMITED, None, None, 1, False, id="missing, and none is wanted"),
        pytest.param(None, 100, None, 1, False, id="not read"),
        pytest.param(None, 100, 100, 1, True, id="ours, and not to be read any more"),
        pytest.param(90, 100, None, 1, False, id="somebody else's"),
        pytest.param(90, 100, 90, 1, True, id="ours, and another one now"),
        pytest.param(90, None, 90, 1, True, id="ours, and none any more"),
        pytest.param(8192, 8200, 8200, LARGEST_PAGE, False, id="ours, in whole pages"),
        pytest.param(80_000, 90_000, 80_000, 1, True, id="of a large machine's CPUs"),
    ],
)
def test_a_limit_is_due_where_it_is_missing_or_ours(
    has: int | None, should: int | None, ours: int | None, step: int, is_due: bool
) -> None:
    by_cpu = step == 1
    cgroup = CgroupReading(Place.POD, "/own", 0, *((None, None, has) if by_cpu else (has, None, None)))
    vm = Vm(reading(), limits=(None, should) if by_cpu else (should, None))
    known = () if ours is None else (ours,)
    found = wish(vm, cgroup, Limited("/own", cpu=known) if by_cpu else Limited("/own", known))
    assert bool(found.values) is is_due


@pytest.mark.parametrize(
    ("pod", "inside", "place"),
    [
        pytest.param("/pods/podab-cd-12", "/pods/podab-cd-12/kata_s1", Place.POD, id="named after the pod"),
        pytest.param("/x.slice/x-podab_cd_12.slice", "/s1", Place.POD, id="as systemd spells it"),
        pytest.param("/docker", "/docker/kata_s1", Place.SANDBOX, id="the folder of all containers"),
        pytest.param("/docker", "/docker/other", None, id="neither is its own"),
        pytest.param("", "/s1", Place.SANDBOX, id="no pod"),
        pytest.param("/kubepods/burstable/podab-cd-12", "/kubepods/burstable/podab-cd-12/s1", None, id="kubelet's"),
        pytest.param("/kubepods.slice/kubepods-podab_cd_12.slice", "/s1", None, id="kubelet's, by systemd"),
        pytest.param("/a/root/kubepods/podab-cd-12", "/s1", None, id="kubelet's, below a root of its own"),
    ],
)
def test_only_a_cgroup_of_this_sandbox_alone_may_be_limited(pod: str, inside: str, place: Place | None) -> None:
    both = (CgroupReading(Place.POD, pod), CgroupReading(Place.SANDBOX, inside))
    found = own_cgroup(Vm(reading(cgroups=both if pod else both[1:])), SANDBOX)
    assert (found.place if found is not None else None) is place


def test_no_memory_limit_is_set_while_it_is_not_known_whether_the_vm_fits() -> None:
    cgroup = CgroupReading(Place.POD, "/own", 0, UNLIMITED, None, UNLIMITED)
    found = wish(Vm(reading(cgroups=(cgroup,)), limits=(256 * MIB, 1000)), cgroup, None)
    assert found.values == {"cpu": 1000}
    assert "is not known" in found.why_not
