"""The steps that place a VM sandbox by Kata's page, and what no step is made of."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from nodeward.core.vms import CgroupDriver, TaskRole
from nodeward.features.sandboxes import plan
from nodeward.features.sandboxes.expected import Paths
from tests.sandbox_cells import FS, SYSTEMD

PATHS = Paths("s1", "/p/s1", containers=(("c1", "/p/c1"),))
RUNNING = plan.Processes(20, (21, 22), (("s1", 10), ("c1", 11)), 30)
SPLIT_V1 = plan.Wanted(PATHS, False, 1, FS, 1 << 30, 1500)
SPLIT_V2 = replace(SPLIT_V1, version=2)
THREADED = replace(SPLIT_V2, threaded=True)
ONLY_V1 = replace(SPLIT_V1, only=True)


def made(steps: Sequence[plan.Step]) -> list[str]:
    return [step.cgroup for step in steps if step.act is plan.Act.MAKE]


def limits(steps: Sequence[plan.Step]) -> list[tuple[str, str, str]]:
    return [(step.cgroup, step.file, step.value) for step in steps if step.act is plan.Act.LIMIT]


def moves(steps: Sequence[plan.Step]) -> list[tuple[int, str, int, str, plan.Trees]]:
    return [(step.number, step.file, step.tid, step.cgroup, step.trees) for step in steps if step.act is plan.Act.MOVE]


V1_LIMITS = [("memory.limit_in_bytes", str(1 << 30)), ("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "150000")]


def test_mode_false_has_the_documents_seven_steps() -> None:
    steps = plan.create(SPLIT_V1)

    assert made(steps) == ["/p/kata_s1", "/p/kata_c1", "/kata"]
    assert steps[-1].trees is plan.Trees.MEMORY
    assert limits(steps) == [("/p/kata_s1", file, value) for file, value in V1_LIMITS]
    assert moves(plan.place(SPLIT_V1, RUNNING)) == [
        (5, "tasks", 21, "/p/kata_s1", plan.Trees.BUT_MEMORY),
        (5, "tasks", 22, "/p/kata_s1", plan.Trees.BUT_MEMORY),
        (6, "cgroup.procs", 10, "/p/kata_s1", plan.Trees.ALL),
        (6, "cgroup.procs", 11, "/p/kata_c1", plan.Trees.ALL),
        (7, "cgroup.procs", 20, "/kata", plan.Trees.MEMORY),
        (7, "cgroup.procs", 30, "/kata", plan.Trees.MEMORY),
    ]


def test_mode_true_has_one_cgroup_and_the_limits_on_the_pod() -> None:
    pods = replace(ONLY_V1, paths=Paths("s1", "/any/pod-1/s1"))
    assert made(plan.create(pods)) == ["/any/pod-1/kata-sandbox-s1"]
    assert limits(plan.create(pods)) == [("/any/pod-1", file, value) for file, value in V1_LIMITS]
    assert moves(plan.place(ONLY_V1, RUNNING)) == [
        (0, "cgroup.procs", pid, "/p/kata-sandbox-s1", plan.Trees.ALL) for pid in (10, 11, 20, 30)
    ]


def test_the_pods_limit_has_room_for_the_overhead_and_kubelets_is_left() -> None:
    steps = plan.create(replace(ONLY_V1, paths=Paths("s1", "/pod1/s1"), overhead=1 << 20))
    assert limits(steps)[0] == ("/pod1", "memory.limit_in_bytes", str((1 << 30) + (1 << 20)))
    assert {step.if_unset for step in steps if step.act is plan.Act.LIMIT} == {True}

    kubelets = replace(ONLY_V1, paths=Paths("s1", "/kubepods/p/s1"))
    assert limits(plan.create(kubelets)) == []
    assert plan.note(kubelets) == "kubelet sets the limits of /kubepods/p: none is set here"


@pytest.mark.parametrize(
    ("path", "driver", "limited"),
    [
        ("system.slice:cri:s1", SYSTEMD, "/system.slice/kata-sandbox-s1"),
        ("a-podb.slice:cri:s1", SYSTEMD, "/a.slice/a-podb.slice"),
        ("/pods/s1", FS, "/pods/kata-sandbox-s1"),
        ("/s1", FS, "/kata-sandbox-s1"),
        ("podman.slice:libpod:s1", SYSTEMD, "/podman.slice/kata-sandbox-s1"),
        ("/mykubepods-tools/s1", FS, "/mykubepods-tools/kata-sandbox-s1"),
        ("/x/pod7/s1", FS, "/x/pod7"),
    ],
)
def test_a_limit_is_set_on_the_sandboxes_cgroup_or_a_pods_alone(path: str, driver: CgroupDriver, limited: str) -> None:
    wanted = replace(ONLY_V1, paths=Paths("s1", path), driver=driver)
    assert {at for at, _, _ in limits(plan.create(wanted))} == {limited}


def test_without_a_pod_the_limits_are_the_containers_own() -> None:
    docker = replace(ONLY_V1, paths=Paths("s1", "system.slice:docker:s1", no_pod=True), driver=SYSTEMD)

    assert made(plan.create(docker)) == ["/system.slice", "/system.slice/docker-s1.scope"]
    assert {at for at, _, _ in limits(plan.create(docker))} == {"/system.slice/docker-s1.scope"}


def test_on_v2_controllers_are_passed_on_before_a_limit_is_set_the_whole_vmm_moves_and_a_note_says_so() -> None:
    acts = [(step.act, step.cgroup) for step in plan.create(SPLIT_V2)]
    assert acts.index((plan.Act.PASS_ON, "/p")) < acts.index((plan.Act.LIMIT, "/p/kata_s1"))
    assert moves(plan.place(SPLIT_V2, RUNNING))[0] == (5, "cgroup.procs", 20, "/p/kata_s1", plan.Trees.ALL)
    assert all(step.role is not TaskRole.VCPU for step in plan.place(SPLIT_V2, RUNNING))
    assert limits(plan.create(SPLIT_V2)) == [
        ("/p/kata_s1", "memory.max", str(1 << 30)),
        ("/p/kata_s1", "cpu.max", "150000 100000"),
    ]
    assert "cgroup v2" in plan.note(SPLIT_V2)
    assert plan.note(SPLIT_V1) == plan.note(THREADED) == ""


def test_a_threaded_subtree_limits_the_vcpus_apart() -> None:
    steps = plan.create(THREADED)

    order = [(step.act, step.cgroup.removeprefix("/p/kata_s1")) for step in steps if "/p/kata_s1" in step.cgroup]
    assert order == [
        *((plan.Act.MAKE, ""), (plan.Act.MAKE, "/vcpu"), (plan.Act.THREADED, "/vcpu"), (plan.Act.MAKE, "/overhead")),
        *((plan.Act.THREADED, "/overhead"), (plan.Act.PASS_ON, ""), (plan.Act.LIMIT, ""), (plan.Act.LIMIT, "/vcpu")),
    ]
    assert [at for at, file, _ in limits(steps) if file == "cpu.max"] == ["/p/kata_s1/vcpu"]
    assert moves(plan.place(THREADED, RUNNING))[:2] == [
        (5, "cgroup.procs", 20, "/p/kata_s1/overhead", plan.Trees.ALL),
        (5, "cgroup.threads", 21, "/p/kata_s1/vcpu", plan.Trees.ALL),
    ]


@pytest.mark.parametrize("wanted", [SPLIT_V1, SPLIT_V2, THREADED, ONLY_V1])
def test_what_is_removed_is_what_was_made_and_nobody_elses(wanted: plan.Wanted) -> None:
    removed = [step.cgroup for step in plan.delete(wanted)]

    assert all(path in removed for path in made(plan.create(wanted)) if path != "/kata")
    assert all(path.startswith("/p/kata") for path in removed)
    assert removed == sorted(removed, key=lambda path: -path.count("/"))
    assert wanted.version == 2 or {*removed, "/kata"} == {*made(plan.create(wanted)), "/kata"}


def test_nothing_moves_where_nothing_runs() -> None:
    assert plan.place(SPLIT_V1, plan.Processes()) == plan.place(ONLY_V1, plan.Processes()) == ()


@pytest.mark.parametrize(
    ("wanted", "running", "said"),
    [
        (SPLIT_V1, plan.Processes(vcpus=(21,)), "give --vmm"),
        (SPLIT_V1, plan.Processes(shims=(("c9", 5),)), "'c9' has no cgroup"),
        (SPLIT_V1, plan.Processes(20, tuple(range(30, 2000))), "more than 1024"),
        (replace(SPLIT_V1, memory=0), plan.Processes(), "--memory 0"),
        (replace(SPLIT_V1, overhead=1), plan.Processes(), "--overhead is added"),
        (replace(SPLIT_V1, cpu_m=9), plan.Processes(), "--cpu-m 9"),
        (replace(SPLIT_V1, memory=2**63), plan.Processes(), "--memory"),
        (replace(SPLIT_V1, threaded=True), plan.Processes(), "--threaded"),
        (replace(THREADED, only=True), plan.Processes(), "--threaded"),
        (replace(SPLIT_V1, paths=Paths("s1", "a--b.slice:p:s1")), plan.Processes(), "cannot be read"),
    ],
)
def test_what_cannot_be_planned_is_refused(wanted: plan.Wanted, running: plan.Processes, said: str) -> None:
    with pytest.raises(plan.PlanError, match=said):
        plan.place(wanted, running)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/p/../../etc", "climbs out"),
        ("kubepods.slice:..:s1", "climbs out"),
        ("p/s1", "neither absolute"),
        ("", "neither absolute"),
        ("/", "neither absolute"),
        ("/./", "neither absolute"),
        ("p:cri:s1", "neither absolute"),
        ("kubepods-pod\\x2d1.slice:cri:s1", "escape"),
        ("a--b.slice:cri:s1", "empty part"),
        ("a.slice:cri:", "a part is empty"),
        ("a.slice:c/d:s1", "has a slash"),
        ("/a\nb", "line's end"),
        ("/" + "a" * 5000, "longer than 4096"),
    ],
)
def test_a_path_that_no_cgroup_should_have_is_refused(path: str, said: str) -> None:
    with pytest.raises(plan.PlanError, match=said):
        plan.checked_path("--cgroups-path", path)


@pytest.mark.parametrize("path", ["/kubepods/pod1/s1", "/s1", "kubepods-pod1.slice:cri-containerd:s1"])
def test_a_path_of_a_runtime_is_taken(path: str) -> None:
    assert plan.checked_path("--cgroups-path", path) == path


@pytest.mark.parametrize("name", ["", "..", "a/b", "-x", "a\n", "x" * 129, "é"])
def test_an_id_that_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(plan.PlanError, match="--sandbox"):
        plan.checked_id("--sandbox", name)
