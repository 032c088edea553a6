"""The cases of VM sandboxes on a node with cgroup v2 and systemd. They run inside the guest, in this order. See
test_sandboxes.py.

What the daemon says is held to what the test itself reads in /proc and in the files of cgroups.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from nodeward.features.sandboxes.rows import SandboxRow
from tests.patience import patience
from tests.peers.katahost import MODE_ANNOTATION, thread_cgroups
from tests.vm.cpuset_writes import CpusetWrites
from tests.vm.inside import CGROUPS, until
from tests.vm.sandboxes_node import BASE_MIB, BUSY, MIB, PERIOD_S, PLAIN, STANDALONE, SandboxesNode, VmPod, Wanted

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_MAPPING: Final = re.compile(r"([0-9a-f]+)-([0-9a-f]+) ")


# ---- places


def both_modes(node: SandboxesNode) -> None:
    """A pod in mode true and one in mode false: each process is named where /proc has it; who said so; no drift."""
    inside = node.run("inside", Wanted(BUSY, pod_limit=512 * MIB))
    inside.limit("cpu.max", "20000 100000")  # its guest burns CPU time
    split = node.run("split", Wanted(annotations={MODE_ANNOTATION: "false"}))
    for pod, only, said in ((inside, True, "/configuration.toml"), (split, False, "annotation")):
        row = node.fresh(pod)
        assert (row.pod, row.handler, row.profile, row.vmm) == (pod.name, BUSY if only else "kata", "kata-go", "qemu")
        assert (row.only, row.only_from[-len(said) :]) == (only, said), row
        assert row.vm_memory == (BASE_MIB + 32) * MIB, row
        assert row.drifts == (), row.drifts
        assert ("the whole VMM is in" in row.note) == (not only), row.note
        _as_proc_says(row, pod)
        assert row.sandbox_cgroup == f"{pod.parent}/kata_{pod.seen.id}", row
        assert row.overhead_cgroup == ("" if only else f"/kata_overhead/{pod.seen.id}"), row


def _as_proc_says(row: SandboxRow, pod: VmPod) -> None:
    """Each task of the row is where /proc has it, and where it should be."""
    shim, vmm = thread_cgroups(pod.seen.shim), thread_cgroups(pod.seen.vmm)
    named = {tid: Path(f"/proc/{pod.seen.vmm}/task/{tid}/comm").read_text() for tid in vmm}
    seen = {
        "shim": {pod.seen.shim: shim[pod.seen.shim][""]},
        "vmm": {pod.seen.vmm: vmm[pod.seen.vmm][""]},
        "vcpu": {tid: vmm[tid][""] for tid in vmm if named[tid].startswith("CPU ")},
    }
    told = {role: {tid: one.where for one in row.tasks if one.role == role for tid in one.ids} for role in seen}
    assert told == seen, (told, seen)
    io = {tid: one.where for one in row.tasks if one.role == "io" for tid in one.ids if tid in vmm}  # they come and go
    assert io.items() <= {(tid, of[""]) for tid, of in vmm.items()}, (io, vmm)
    assert all(one.where == one.expected for one in row.tasks), row.tasks


# ---- figures


def figures(node: SandboxesNode) -> None:
    """While the VM stands still, every figure is within 2 % of what /proc and the pod's cgroup have; so is what was
    used from one such moment to the next. Guest memory that is anonymous is told apart by smaps each 15 s: until then
    what the VMM has grown by counts as the guest's."""
    pod = node.pods["inside"]
    with _standing_still(pod):
        first, used_first = node.fresh(pod), _cpu_ns(pod)
    until(lambda: _cpu_ns(pod)["cpu_ns"] > used_first["cpu_ns"] + 500_000_000, "the VM used CPU time", 60)
    with _standing_still(pod):
        own, told, off = dict[str, int](), dict[str, int](), dict[str, float]()

        def agree() -> bool:
            row = node.fresh(pod)
            own.update(_memory(pod) | _cpu_ns(pod))
            own.update({f"{name} since": own[name] - value for name, value in used_first.items()})
            shown = {name: getattr(row, name) for name in own if " " not in name}
            if None in shown.values():  # smaps was read before the VMM had its guest's memory
                return False
            told.update(shown)
            told.update({f"{name} since": told[name] - getattr(first, name) for name in used_first})
            off.update({name: abs(told[name] - value) * 100 / value for name, value in own.items()})
            return all(part <= 2 for part in off.values())

        try:
            until(agree, "smaps is read again", 90)
        except AssertionError as error:
            raise AssertionError(f"{off} {told} {own}") from error


@contextmanager
def _standing_still(pod: VmPod) -> Iterator[None]:
    """The VMM's threads stop one by one, each once it runs: one whose cgroup is out of CPU time goes on for a while."""
    os.kill(pod.seen.vmm, signal.SIGSTOP)
    tasks = Path(f"/proc/{pod.seen.vmm}/task")
    try:
        until(
            lambda: all((one / "stat").read_text().rpartition(")")[2].split()[0] == "T" for one in tasks.iterdir()),
            "the VMM stands still",
            30,
        )
        yield
    finally:
        os.kill(pod.seen.vmm, signal.SIGCONT)


def _memory(pod: VmPod) -> dict[str, int]:
    guest = _guest_mapping(pod.seen.vmm, (BASE_MIB + 32) * MIB)[2]
    vmm, shim = _rss(pod.seen.vmm), _rss(pod.seen.shim)
    return {
        "memory": int(pod.file("memory.current")),
        "guest_memory": guest,
        "vmm_memory": vmm - guest,
        "shim_memory": shim,
        "overhead_memory": vmm - guest + shim,
    }


def _cpu_ns(pod: VmPod) -> dict[str, int]:
    lines = dict(line.split() for line in pod.file("cpu.stat").splitlines())
    ticks = 0
    for task in Path(f"/proc/{pod.seen.vmm}/task").iterdir():
        if (task / "comm").read_text().startswith("CPU "):
            ticks += sum(map(int, (task / "stat").read_text().rpartition(")")[2].split()[11:13]))
    return {"cpu_ns": int(lines["usage_usec"]) * 1000, "vcpu_ns": ticks * _TICK_NS}


def _rss(pid: int) -> int:
    found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def _guest_mapping(vmm: int, size: int) -> tuple[int, int, int]:
    """Where the guest's memory begins and ends in the VMM, and how much of it is there."""
    begin = end = 0
    for line in Path(f"/proc/{vmm}/smaps").read_text().splitlines():
        if (found := _MAPPING.match(line)) is not None:
            begin, end = int(found[1], 16), int(found[2], 16)
        elif line.startswith("Rss:") and end - begin == size:
            return begin, end, int(line.split()[1]) * 1024
    raise AssertionError(f"VMM {vmm} has no mapping of {size} bytes")


def nothing_is_written(node: SandboxesNode) -> None:
    """In the mode observe no file of any of their cgroups is written."""
    row = node.row(node.pods["split"])
    assert row is not None
    paths = [node.pods["inside"].parent, row.pod_cgroup, row.sandbox_cgroup, row.overhead_cgroup]
    with CpusetWrites([CGROUPS / path[1:] for path in paths], "") as writes:
        for pod in node.pods.values():
            node.fresh(pod)
        assert writes.taken() == {}, writes.taken()


def drift(node: SandboxesNode) -> None:
    """The VMM is moved out of its pod: said within two periods, with place; and gone when it is back."""
    pod = node.pods["inside"]
    elsewhere, home = CGROUPS / "elsewhere", CGROUPS / pod.parent[1:] / f"kata_{pod.seen.id}"
    elsewhere.mkdir()
    row: SandboxRow | None = node.fresh(pod)
    begin = time.monotonic()
    (elsewhere / "cgroup.procs").write_text(str(pod.seen.vmm))

    def codes() -> set[tuple[str, str]]:
        nonlocal row
        row = node.row(pod)
        return set() if row is None else {(one.code, one.seen) for one in row.drifts}

    until(lambda: ("outside-pod", "/elsewhere") in codes(), "the drift is said")
    assert row is not None
    took_s = time.monotonic() - begin - (row.age_ms or 0) / 1000
    assert took_s <= 2 * PERIOD_S * patience(), took_s
    (home / "cgroup.procs").write_text(str(pod.seen.vmm))
    until(lambda: codes() == set(), "the drift is gone")


# ---- two kills


def a_pod_too_small(node: SandboxesNode) -> None:
    """The pod's limit is its VM's size, as where the RuntimeClass's overhead only covers Kata's `default_memory`: the
    kill is said while the VM lives, and then the kernel's own count has it."""
    pod = node.run("small", Wanted(overhead_mib=BASE_MIB, pod_limit=(BASE_MIB + 32) * MIB))
    until(lambda: node.fresh(pod).fit.fit == "will be killed", "the overhead is measured, and the kill is said", 90)
    row = node.fresh(pod)
    assert (row.fit.fit, row.oom_kills, pod.oom_kills(), pod.lives()) == ("will be killed", 0, 0, True), row
    _touched(pod)
    until(lambda: pod.oom_kills() >= 1, "the kernel has killed")
    assert not pod.lives()
    assert row.fit.killed_at is not None


def a_pod_with_the_recommended_overhead(node: SandboxesNode) -> None:
    """The VM's size and the overhead that was recommended by what was measured: the guest uses all of its memory, and
    nothing is killed."""
    until(lambda: _recommended(node) is not None, "an overhead is recommended", 60)
    more = _recommended(node)
    assert more is not None
    pod = node.run("sized", Wanted(pod_limit=(BASE_MIB + 32) * MIB + more))
    assert _touched(pod) == (BASE_MIB + 32) * MIB
    until(lambda: node.fresh(pod).guest_memory == (BASE_MIB + 32) * MIB, "smaps is read again", 90)
    row = node.fresh(pod)
    assert row.fit.fit in ("fits", "tight"), row.fit
    assert (row.oom_kills, pod.oom_kills(), pod.lives()) == (0, 0, True), row


def _recommended(node: SandboxesNode) -> int | None:
    return next((one.recommended_memory for one in node.view().classes if one.name == "kata"), None)


def _touched(pod: VmPod) -> int:
    """Writes to each page of the guest's memory, as the guest would; how much until its VMM was killed."""
    begin, end, _ = _guest_mapping(pod.seen.vmm, (BASE_MIB + 32) * MIB)
    with open(f"/proc/{pod.seen.vmm}/mem", "r+b", buffering=0) as memory:
        for at in range(begin, end, _PAGE):
            try:
                memory.seek(at)
                if not memory.write(b"x"):
                    return at - begin
            except OSError:
                return at - begin
    return end - begin


# ---- enforce


def a_limit_where_nobody_sets_one(node: SandboxesNode) -> None:
    """In the mode enforce, a pod that kubelet has not made gets the sum of its containers' limits and its overhead; no
    file of a pod of kubelet's is written, though it has no limit either."""
    split = node.pods["split"]
    assert split.file("memory.max") == "max"
    node.enforce()
    with CpusetWrites([CGROUPS / split.parent[1:]], "") as writes:
        wanted = Wanted(above=STANDALONE, cpu_m=500, overhead_mib=256, overhead_cpu_m=250)
        pod = node.run("alone", wanted)
        limits = (str((32 + 256) * MIB), "75000 100000")
        until(lambda: (pod.file("memory.max"), pod.file("cpu.max")) == limits, "both limits are there", 20)
        node.fresh(split)
        assert writes.taken() == {}, writes.taken()
        assert (split.file("memory.max"), split.file("cpu.max")) == ("max", "max 100000")
    with CpusetWrites([CGROUPS / pod.parent[1:]], "") as again:
        pod.limit("memory.max", "max")  # so a write is seen, and somebody's own choice stays
        assert sum(again.taken().values()) == 1
    view = node.view()
    assert view.writes == 2, view


# ---- systemd


def slices_of_systemd(node: SandboxesNode) -> None:
    """Pods in slices. Mode true: a scope, nothing wrong. Mode false: Kata Go makes a folder named `slice:prefix:id` at
    the root, which is said; Kata's own names of threads tell no vCPU, which is said too."""
    node.remove(*node.pods)
    for handler, codes in (("kata", set[str]()), (PLAIN, {"literal-scope"})):
        pod = node.run(f"slice-{handler}", Wanted(handler, "/kubepods.slice"))
        row = node.fresh(pod)
        assert {one.code for one in row.drifts} == codes, row
        name = f"cri-containerd-{pod.seen.id}.scope"
        where = row.sandbox_cgroup
        assert where == (f"{pod.parent}/{name}" if not codes else f"/{_literal(pod)}"), row
        assert {one.where for one in row.tasks if one.role == "vmm"} == set(pod.seen.vmm_in()) == {where}, row
        assert any("vCPUs is not known" in fault for fault in row.faults) == (handler == PLAIN), row.faults


def _literal(pod: VmPod) -> str:
    return f"{pod.parent.rpartition('/')[2]}:cri-containerd:{pod.seen.id}"


CASES: Final[Mapping[str, Callable[[SandboxesNode], None]]] = {
    "both modes: every process where /proc has it": both_modes,
    "figures are within 2 % of /proc and cgroup files": figures,
    "nothing is written in the mode observe": nothing_is_written,
    "a VMM that was moved out of its pod is said within two periods": drift,
    "a pod that is too small is said before the kernel kills": a_pod_too_small,
    "a pod with the recommended overhead lives": a_pod_with_the_recommended_overhead,
    "enforce limits a pod that kubelet has not made, and no other": a_limit_where_nobody_sets_one,
    "slices of systemd": slices_of_systemd,
}
"""By what each holds."""
