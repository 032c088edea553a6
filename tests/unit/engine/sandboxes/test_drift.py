"""What of a VM sandbox is said to be in the wrong place, and what is not."""

from dataclasses import replace

import pytest

from nodeward.engine.sandboxes import drift as codes
from nodeward.engine.sandboxes.drift import Rules, drift
from nodeward.engine.sandboxes.expected import Paths, expected
from nodeward.model.sandboxes import UNLIMITED, CgroupReading, Drift, Place, Profile, Task, TaskRole, VmReading
from nodeward.model.workload import SandboxId
from tests.sandbox_cells import CELLS, DOCUMENT, FS, GO, ID, LITERAL, OUTSIDE, RS, SYSTEMD, Cell

SERVICE = "/system.slice/containerd.service"


def cell(profile: Profile, only: bool, version: int = 2, driver: object = FS) -> Cell:
    wanted = (profile, only, version, driver)
    return next(one for one in CELLS if (one.profile, one.only, one.version, one.driver) == wanted)


def placed(at: Cell) -> VmReading:
    """A sandbox whose processes are all where this cell has them."""
    tasks = (
        Task(TaskRole.SHIM, 10, 10, 100, cgroup=at.shim),
        Task(TaskRole.VIRTIOFSD, 11, 11, 101, cgroup=at.virtiofsd),
        Task(TaskRole.VMM, 12, 12, 102, cgroup=at.vmm),
        Task(TaskRole.IO, 12, 13, 103, cgroup=at.vmm),
        Task(TaskRole.VCPU, 12, 14, 104, cgroup=at.vmm if at.version == 1 else at.vcpu, cpu_cgroup=at.vcpu),
        Task(TaskRole.VHOST, 15, 15, 105, cgroup=at.vmm),
    )
    return VmReading(SandboxId(ID), 1, tasks)


def found(reading: VmReading, at: Cell, other: bool = True) -> tuple[Drift, ...]:
    asked = [expected(at.profile, only, at.version, at.driver, at.paths) for only in (at.only, not at.only)]
    pod = "" if at.paths.no_pod else at.paths.pod
    return drift(reading, asked[0], asked[1] if other else None, Rules(at.profile, at.version, pod))


def moved(reading: VmReading, to: str, *roles: TaskRole, start: int | None = None) -> VmReading:
    """The reading, with the tasks of these roles in another cgroup."""
    tasks = [
        replace(task, cgroup=to, cpu_cgroup=to, start=task.start if start is None else start)
        if task.role in roles
        else task
        for task in reading.tasks
    ]
    return replace(reading, tasks=tuple(tasks))


LITERALS = [one for one in CELLS if one.sandbox == LITERAL]


@pytest.mark.parametrize("at", [one for one in CELLS if one not in LITERALS], ids=str)
def test_nothing_is_said_where_all_is_in_its_place(at: Cell) -> None:
    assert found(placed(at), at) == ()


@pytest.mark.parametrize("at", LITERALS, ids=str)
def test_a_folder_named_like_a_scope_is_said_even_where_the_runtime_always_makes_it(at: Cell) -> None:
    roles = ["vcpu"] if at.version == 1 else ["vmm", "io", "vcpu", "vhost"]
    assert [(one.code, one.role) for one in found(placed(at), at)] == [(codes.LITERAL_SCOPE, role) for role in roles]


@pytest.mark.parametrize("profile", [GO, RS])
def test_a_vmm_outside_its_pod(profile: Profile) -> None:
    at = cell(profile, True)
    assert found(moved(placed(at), "/elsewhere", TaskRole.VMM), at) == (
        Drift(codes.OUTSIDE_POD, "vmm", "/elsewhere", at.vmm, 1),
    )


def test_a_vmm_that_belongs_outside_is_only_elsewhere() -> None:
    at = cell(GO, False, 1)
    assert found(moved(placed(at), "/elsewhere", TaskRole.VMM, TaskRole.IO), at) == (
        Drift(codes.ELSEWHERE, "vmm", "/elsewhere", OUTSIDE, 1),
        Drift(codes.ELSEWHERE, "io", "/elsewhere", OUTSIDE, 1),
    )


def test_on_v1_a_vcpu_thread_is_judged_by_where_its_cpu_counts() -> None:
    at = cell(GO, False, 1)
    assert found(moved(placed(at), OUTSIDE, TaskRole.VCPU), at) == (
        Drift(codes.OUTSIDE_POD, "vcpu", OUTSIDE, at.vcpu, 1),
    )


def test_a_shim_that_was_never_moved() -> None:
    at = cell(RS, True, driver=SYSTEMD)
    assert found(moved(placed(at), SERVICE, TaskRole.SHIM), at) == (
        Drift(codes.RUNTIME_SERVICE, "shim", SERVICE, at.shim, 1),
    )


def test_a_sandbox_without_an_oci_spec() -> None:
    at = cell(RS, True)
    reading = moved(placed(at), f"/kata_sandboxed_pod/{ID}", *TaskRole)

    assert [one.code for one in found(reading, at)] == [codes.SANDBOXED_POD_CODE] * 6


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("only", [True, False])
def test_one_that_was_started_under_the_other_mode_is_no_fault(profile: Profile, version: int, only: bool) -> None:
    at, started = cell(profile, only, version), cell(profile, not only, version)

    assert found(placed(started), at) == (Drift(codes.OTHER_MODE, seen=started.sandbox, expected=at.sandbox),)
    assert codes.OTHER_MODE not in codes.FAULTS


def test_places_that_are_not_known_are_no_other_mode() -> None:
    reading = moved(placed(cell(GO, True)), LITERAL, TaskRole.VMM)
    unknown = expected(GO, True, 2, FS, Paths(ID))

    assert [one.code for one in drift(reading, unknown, unknown, Rules(GO, 2))] == [codes.LITERAL_SCOPE]


def test_one_task_of_the_other_mode_is_a_fault_all_the_same() -> None:
    at = cell(GO, True)
    assert found(moved(placed(at), OUTSIDE, TaskRole.VIRTIOFSD), at) == (
        Drift(codes.ELSEWHERE, "virtiofsd", OUTSIDE, at.virtiofsd, 1),
    )


@pytest.mark.parametrize("to", ["/elsewhere", ""])
def test_a_task_without_its_start_or_place_is_not_judged(to: str) -> None:
    at = cell(GO, True)
    assert found(moved(placed(at), to, *TaskRole, start=None if to == "" else 0), at) == ()


def test_a_cgroup_below_the_right_one_is_right() -> None:
    at = cell(GO, True)
    assert found(moved(placed(at), f"{at.sandbox}/vcpu", TaskRole.VCPU), at) == ()


def test_a_vhost_thread_stays_where_the_vmm_was_when_it_started() -> None:
    at = cell(GO, False)
    assert found(moved(placed(at), OUTSIDE, TaskRole.VHOST), at) == ()


def test_a_shim_may_be_in_its_containers_cgroup() -> None:
    at = cell(DOCUMENT, False, 1)
    asked = expected(DOCUMENT, False, 1, FS, at.paths)
    reading = moved(placed(at), "/kubepods/pod6d1c/kata_c1", TaskRole.SHIM)

    assert drift(reading, asked, None, Rules(DOCUMENT, 1, at.paths.pod, ("/kubepods/pod6d1c/kata_c1",))) == ()


def with_cgroup(reading: VmReading, place: Place, path: str, memory_limit: int = UNLIMITED) -> VmReading:
    return replace(reading, cgroups=(CgroupReading(place, path, memory_limit=memory_limit, cpu_limit_m=UNLIMITED),))


@pytest.mark.parametrize(("profile", "said"), [(GO, True), (RS, True), (DOCUMENT, False)])
def test_a_limit_of_the_sandboxs_own(profile: Profile, said: bool) -> None:
    at = cell(profile, False)
    limited = with_cgroup(placed(at), Place.SANDBOX, at.sandbox, 1 << 30)

    assert found(limited, at) == ((Drift(codes.SANDBOX_LIMIT, seen=at.sandbox),) if said else ())


def test_no_more_is_said_of_one_sandbox_than_can_be_read() -> None:
    at = cell(GO, True)
    tasks = tuple(Task(TaskRole.IO, 12, 100 + n, 5, cgroup=f"/elsewhere/{n}") for n in range(500))

    assert len(found(VmReading(SandboxId(ID), 1, tasks), at)) == codes.MAX_DRIFTS
