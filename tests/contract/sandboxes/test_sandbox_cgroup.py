"""`nodeward vms cgroup` on this machine's own cgroups, with real processes that have threads.

Given a pod's cgroup, a shim and a VMM, when a runtime calls create, place and delete, then each thread is where the
plan says, in every hierarchy, and nothing is left.
"""

import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodeward.core.vms import CgroupDriver, Profile, TaskRole
from nodeward.features.sandboxes.expected import Paths, expected, threaded
from nodeward.features.sandboxes.values import Expected
from tests.pages import of_page
from tests.patience import scaled
from tests.peers.cgroups import CGROUP_ROOT, controllers_as_before, hierarchies, make_cgroup, remove_cgroups
from tests.peers.find import absent

WITHIN_S = scaled(30.0)
THREADS = """
import os, threading
wait = lambda: os.read(0, 1)
threads = [threading.Thread(target=wait) for _ in range(3)]
for thread in threads:
    thread.start()
print(*(thread.native_id for thread in threads), flush=True)
"""
"""Three threads beside the first, until standard input ends."""
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Vm:
    pod: str
    version: int
    shim: int
    vmm: int
    io: int
    vcpus: tuple[int, int]

    def call(self, word: str, *more: str) -> subprocess.CompletedProcess[str]:
        named = ("--sandbox", "s1", "--cgroups-path", f"{self.pod}/s1", "-o", "json", *more)
        command = [sys.executable, "-m", "nodeward", "vms", "cgroup", word, *named]
        return subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)

    def done(self, word: str, *more: str) -> None:
        finished = self.call(word, *more)
        assert finished.returncode == 0, finished.stderr

    def placed(self, *more: str) -> subprocess.CompletedProcess[str]:
        threads = [word for tid in self.vcpus for word in ("--vcpu", str(tid))]
        return self.call("place", "--shim", str(self.shim), "--vmm", str(self.vmm), *threads, *more)

    def expected(self, only: bool) -> Expected:
        paths = Paths("s1", f"{self.pod}/s1")
        return expected(Profile.DOCUMENT, only, self.version, CgroupDriver.CGROUPFS, paths)


@contextlib.contextmanager
def process() -> Iterator[tuple[int, list[int]]]:
    running = subprocess.Popen(
        [sys.executable, "-c", THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert running.stdout is not None
        yield running.pid, [int(word) for word in running.stdout.readline().split()]
    finally:
        running.communicate(timeout=WITHIN_S)


@pytest.fixture
def pod() -> Iterator[str]:
    if os.geteuid() != 0 or not hierarchies():
        absent("no cgroups can be made here: run as root, where cgroups are mounted")
    shared = [root / "kata" for root in hierarchies() if not (root / "kata").exists()]
    name = f"/nodeward-test-{os.getpid()}"
    with controllers_as_before():
        make_cgroup(name, ("cpu", "cpuset", "memory"))
        make_cgroup(f"{name}/pod1", ())
        pass_on(name)
        yield f"{name}/pod1"
        remove_cgroups(name)
        for folder in shared:
            with contextlib.suppress(OSError):
                folder.rmdir()


def pass_on(name: str) -> None:
    """The pod has controllers, as a kubelet's has; with cgroup v1 a cpuset takes no process before it is filled."""
    at = CGROUP_ROOT / name[1:] / "cgroup.subtree_control"
    if at.exists():
        at.write_text("+cpu +cpuset +memory")
    for path in (name, f"{name}/pod1"):
        for file in ("cpuset.cpus", "cpuset.mems"):
            at = CGROUP_ROOT / "cpuset" / path[1:] / file
            if at.exists():
                at.write_text((at.parent.parent / file).read_text())


@contextlib.contextmanager
def running_vm(pod: str) -> Iterator[Vm]:
    version = 2 if hierarchies() == [CGROUP_ROOT] else 1
    with process() as (shim, _), process() as (vmm, threads):
        yield Vm(pod, version, shim, vmm, threads[0], (threads[1], threads[2]))


@pytest.fixture
def vm(pod: str) -> Iterator[Vm]:
    with running_vm(pod) as vm:
        yield vm


def cgroups(pid: int, tid: int) -> Mapping[str, str]:
    """By controllers ("" for v2) the cgroup of a thread, but of the hierarchies that limit nothing."""
    lines = Path(f"/proc/{pid}/task/{tid}/cgroup").read_text().splitlines()
    found = {line.split(":", 2)[1]: line.split(":", 2)[2] for line in lines}
    return {one: path for one, path in found.items() if "name=" not in one and (one or len(found) == 1)}


def text(pod: str, controller: str, path: str) -> str:
    root = CGROUP_ROOT if hierarchies() == [CGROUP_ROOT] else CGROUP_ROOT / controller
    return (root / f"{pod}/{path}".lstrip("/")).read_text().strip()


def leftovers(names: Sequence[str]) -> list[Path]:
    return [root / name.lstrip("/") for root in hierarchies() for name in names if (root / name.lstrip("/")).exists()]


@pytest.mark.parametrize("only", [True, False], ids=["only", "split"])
def test_each_thread_is_where_its_mode_has_it_and_an_ended_sandbox_leaves_only_what_is_shared(
    pod: str, only: bool
) -> None:
    mode = ("--only" if only else "--split",)
    with running_vm(pod) as vm:
        before, where = cgroups(vm.vmm, vm.vmm), vm.expected(only)
        for _ in range(2):  # again, as after a runtime's restart
            vm.done("create", *mode, "--container", f"c1={pod}/c1", "--memory", str(512 * MIB), "--cpu-m", "1500")
        assert vm.placed(*mode).returncode == 0

        assert set(cgroups(vm.shim, vm.shim).values()) == {where.of(TaskRole.SHIM)}
        for tid, role in ((vm.vmm, TaskRole.VMM), (vm.io, TaskRole.IO), *((one, TaskRole.VCPU) for one in vm.vcpus)):
            found = cgroups(vm.vmm, tid)
            cpu, memory = found.get("cpu", found.get("")), found.get("memory", found.get(""))
            unlimited = where.vmm if only else before.get("cpu", where.vmm)
            assert cpu == (where.vcpu if role is TaskRole.VCPU else unlimited), role
            assert memory == where.vmm, role  # of a process, all threads' memory counts where its first thread is
            assert not only or set(found.values()) == {where.sandbox}, role
        if only:
            assert text(pod, "memory", "memory." + ("limit_in_bytes" if vm.version == 1 else "max")) == str(512 * MIB)
        elif vm.version == 1:
            assert text(pod, "cpu", "kata_s1/cpu.cfs_quota_us") == "150000"
        busy = vm.call("delete", *mode)
        assert busy.returncode == 1
        assert "still used" in busy.stderr
        assert str(vm.shim) in busy.stderr

    for _ in range(2):
        vm.done("delete", *mode, "--container", f"c1={pod}/c1")

    assert leftovers([f"{pod}/kata-sandbox-s1", f"{pod}/kata_s1", f"{pod}/kata_c1"]) == []
    assert len(leftovers([pod])) == len(hierarchies())


if hierarchies() == [CGROUP_ROOT]:  # cgroup v1 splits threads without it

    def test_a_threaded_subtree_holds_the_vcpus_apart(vm: Vm) -> None:
        more = ("--split", "--threaded")
        vm.done("create", *more, "--memory", str(512 * MIB), "--cpu-m", "1500")
        done = vm.placed(*more)
        assert done.returncode == 0, done.stderr

        where = threaded(vm.expected(only=False))
        assert set(cgroups(vm.vmm, vm.io).values()) == {where.overhead}
        assert [set(cgroups(vm.vmm, one).values()) for one in vm.vcpus] == [{where.vcpu}] * 2
        assert text(vm.pod, "", "kata_s1/vcpu/cpu.max") == "150000 100000"
        assert text(vm.pod, "", "kata_s1/memory.max") == str(512 * MIB)


def test_the_commands_of_the_page_place_a_sandbox_and_take_it_away(pod: str) -> None:
    def typed(text: str, *own: tuple[str, str]) -> None:
        for name, value in (("/pods/podUID", pod), ("nodeward ", f"{sys.executable} -m nodeward "), *own):
            text = text.replace(name, value)
        subprocess.run(shlex.split(text), timeout=WITHIN_S, check=True)

    typed(of_page("sandboxes.md", "nodeward vms cgroup create"))
    with process() as (shim, _), process() as (vmm, _):
        started = Path(f"/proc/{vmm}/stat").read_text().rpartition(")")[2].split()[19]
        place = of_page("sandboxes.md", "nodeward vms cgroup place")
        typed(place, ("4711", str(shim)), ("4712:123456", f"{vmm}:{started}"))
        assert len(leftovers([f"{pod}/kata-sandbox-ID"])) > 0
    typed(of_page("sandboxes.md", "nodeward vms cgroup delete"))
    assert leftovers([f"{pod}/kata-sandbox-ID"]) == []


def test_a_thread_of_another_process_is_not_moved(vm: Vm) -> None:
    if vm.version == 2:
        pytest.skip("cgroup v2 moves no thread")
    vm.done("create", "--split")

    refused = vm.call("place", "--split", "--vmm", str(vm.shim), "--vcpu", str(vm.vcpus[0]))

    assert f"thread {vm.vcpus[0]} of process {vm.shim} is not there" in refused.stderr


def test_a_placement_without_its_cgroups_says_what_to_run(vm: Vm) -> None:
    assert "run nodeward vms cgroup create first" in vm.placed().stderr


def test_a_plan_writes_nothing(vm: Vm) -> None:
    planned = vm.call("plan", "--split", "--memory", str(MIB), "--vmm", str(vm.vmm))

    steps = json.loads(planned.stdout)["steps"]
    assert {step["phase"] for step in steps} == {"create", "place", "delete"}
    assert leftovers([f"{vm.pod}/kata_s1"]) == []
