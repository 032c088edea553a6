"""What must never be of Kata pods on the simulated node, each broken once; the doubles say what is so."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest

from nodeward.doubles.kata import GO, MIB, ONLY
from nodeward.doubles.kernel import CGROUP_MOUNT, SimKernel
from nodeward.doubles.runtime import SimRuntime
from nodeward.model.sandbox_rows import DriftRow, FitRow, SandboxesView, SandboxRow, TaskRow
from nodeward.model.view import NodeView
from nodeward.proto import nri_pb2
from nodeward.sim.invariants import Judge
from nodeward.sim.katas import ELSEWHERE, KILLED, TRUTH, UNWRITTEN, WARNED, Katas
from nodeward.sim.shapes import KataPod

POD, ID = "/kubepods/poda", "s1"
VIEW = NodeView("", "", "", False, {}, {}, ())
OF_VMM = ("vmm", "vcpu", "io")
FAULT = DriftRow("outside-pod", "It is outside.", role="vmm")


@dataclass(slots=True)
class Node:
    """A node with one Kata pod, and how the daemon shows it. Its guest may have 320 MiB, and the pod 64 MiB and
    `beside`."""

    katas: Katas
    judge: Judge
    row: SandboxRow
    now_s: float = 100.0

    def asked(self) -> None:
        """The daemon is asked now, and has read a moment ago."""
        view = SandboxesView("observe", rows=(self.row,))
        self.katas.compare(replace(VIEW, sandboxes=view), self.now_s)


def node(folder: Path, beside: int = 512 * MIB) -> Node:
    kernel, judge = SimKernel({}), Judge(6.0)
    made: list[Node] = []
    katas = Katas(kernel, SimRuntime(folder / "nri", kernel), judge, lambda: made[0].now_s, Random(1))
    made.append(Node(katas, judge, SandboxRow(ID)))
    kata = KataPod(GO, {ONLY: "true"}, 64 * MIB, 1000, beside, 250, 1.0)
    katas.admit(POD, kata)
    pod = nri_pb2.PodSandbox(id=ID, runtime_handler=GO, annotations=kata.annotations)
    pod.linux.cgroup_parent = POD
    pod.linux.pod_resources.memory.limit.value = kata.memory
    katas.host.start(pod)
    katas.begun(ID, kata)
    vm = katas.host.vms[ID]
    tasks = tuple(TaskRow(role, 1, vm.home) for role in ("shim", "vmm", "vcpu", "io", "virtiofsd"))
    memory = sum(one.rss for one in vm.processes().values())
    fit = FitRow("fits" if beside > 256 * MIB else KILLED)
    there = made[0]
    there.row = SandboxRow(ID, tasks=tasks, memory=memory, guest_memory=vm.vmm.guest, oom_kills=0, fit=fit, age_ms=500)
    there.now_s += 10.0
    return there


def told(there: Node) -> str:
    """The first invariant that is said to be broken, or nothing."""
    return ([one.partition(":")[0] for one in there.judge.violations] or [""])[0]


Show = Callable[[SandboxRow], SandboxRow]


@pytest.mark.parametrize(
    "show",
    [
        pytest.param(lambda row: replace(row, id="s2"), id="not at all"),
        pytest.param(lambda row: replace(row, age_ms=4000), id="as it was long ago"),
        pytest.param(lambda row: replace(row, tasks=(TaskRow("shim", 1, "/x"),)), id="with its shim elsewhere"),
        pytest.param(lambda row: replace(row, tasks=row.tasks[1:]), id="without its shim"),
        pytest.param(lambda row: replace(row, memory=row.memory + 1), id="with more memory"),
        pytest.param(lambda row: replace(row, guest_memory=0), id="with no memory of its guest"),
        pytest.param(lambda row: replace(row, oom_kills=1), id="with a kill that never was"),
        pytest.param(lambda row: replace(row, fit=FitRow(KILLED)), id="as to be killed, and it fits"),
        pytest.param(lambda row: replace(row, drifts=(FAULT,)), id="with a drift that never was"),
    ],
)
def test_a_sandbox_that_is_shown_otherwise_than_it_is_is_told(show: Show, tmp_path: Path) -> None:
    there = node(tmp_path)
    there.asked()
    assert there.judge.violations == []
    there.row = show(there.row)
    there.asked()

    assert told(there) == TRUTH


@pytest.mark.parametrize(("later_s", "invariant"), [(0.5, ""), (3.0, TRUTH)])
def test_memory_may_be_shown_as_it_was_a_period_ago_and_not_longer(
    later_s: float, invariant: str, tmp_path: Path
) -> None:
    there = node(tmp_path)
    there.katas.use(ID, MIB)
    there.now_s += later_s
    there.asked()

    assert told(there) == invariant


@pytest.mark.parametrize(("drifts", "later_s", "invariant"), [((), 1.5, ""), ((), 3.0, TRUTH), ((FAULT,), 3.0, "")])
def test_a_vmm_that_was_moved_must_be_said_within_two_periods(
    drifts: tuple[DriftRow, ...], later_s: float, invariant: str, tmp_path: Path
) -> None:
    there = node(tmp_path)
    there.katas.move_vmm()
    tasks = [replace(one, where=ELSEWHERE) if one.role in OF_VMM else one for one in there.row.tasks]
    there.row = replace(there.row, tasks=tuple(tasks), drifts=drifts)
    there.now_s += later_s
    there.asked()

    assert told(there) == invariant


@pytest.mark.parametrize(
    ("path", "invariant"),
    [(f"{POD}/memory.max", UNWRITTEN), ("/kata_overhead/s1/cgroup.procs", UNWRITTEN), ("/kubepods/podab/misc.max", "")],
)
def test_no_cgroup_of_a_sandbox_is_written(path: str, invariant: str, tmp_path: Path) -> None:
    there = node(tmp_path)
    there.katas.written(f"{CGROUP_MOUNT}{path}", b"max")

    assert told(there) == invariant


@pytest.mark.parametrize(
    ("said", "invariant"),
    [
        pytest.param(FitRow(KILLED, killed_at=200 * MIB), "", id="of this much memory"),
        pytest.param(FitRow(KILLED, killed_at=300 * MIB), WARNED, id="of more memory"),
        pytest.param(FitRow("tight"), WARNED, id="not at all"),
    ],
)
def test_a_kill_of_a_vm_that_is_too_large_must_have_been_said_before(
    said: FitRow, invariant: str, tmp_path: Path
) -> None:
    there = node(tmp_path, beside=128 * MIB)
    there.row = replace(there.row, fit=said)
    there.asked()
    there.judge.violations.clear()  # that a wrong word stands is another invariant's
    there.katas.use(ID, 256 * MIB)

    assert there.katas.counts.killed == 1
    assert told(there) == invariant
