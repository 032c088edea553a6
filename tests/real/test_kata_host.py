"""Kata's own host side: a real containerd starts pods whose VMM, vCPU threads and shim Kata's libraries place."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.peers.cgroups import CGROUP_ROOT, hierarchies, remove_cgroups
from tests.peers.containerd import IMAGE, Containerd, running_containerd
from tests.peers.cri import Cri, container_config, pod_config, remove_pod
from tests.peers.katahost import (
    MODE_ANNOTATION,
    OVERHEAD,
    PASSED_ON,
    KataCell,
    KataOptions,
    kata_cgroups_as_before,
    kata_paths,
    kata_sizes,
    placing,
    thread_cgroups,
    write_kata,
)
from tests.peers.nriside import Record, text

MEMORY_MIB = 64
VCPUS = 2
UNIFIED = (CGROUP_ROOT / "cgroup.procs").exists()
HANDLERS = {"kata": True, "kata-overhead": False}
"""Runtime handlers, and the mode in the configuration of each."""


@pytest.fixture(name="containerd", scope="module")
def _containerd() -> Iterator[Containerd]:
    """One containerd with both handlers; each VM uses its whole memory."""
    with tempfile.TemporaryDirectory(prefix="ctd") as folder, kata_cgroups_as_before():
        options = {
            name: KataOptions(only, VCPUS, MEMORY_MIB, prealloc=True, named_threads=True)
            for name, only in HANDLERS.items()
        }
        kata = {name: write_kata(Path(folder) / name, each) for name, each in options.items()}
        with running_containerd(Path(folder), handlers=kata, annotations=(PASSED_ON,)) as runtime:
            yield runtime


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A running pod, and its processes on this host."""

    id: str
    parent: str
    shim: int
    vmm: int

    def paths(self, pid: int, comm: str = "") -> list[str]:
        """The cgroups, each once, of a process's threads that are called so, without the v2 half of a hybrid host."""
        threads = {
            tid: cgroups
            for tid, cgroups in thread_cgroups(pid).items()
            if Path(f"/proc/{pid}/task/{tid}/comm").read_text().startswith(comm)
        }
        return sorted({path for cgroups in threads.values() for key, path in cgroups.items() if key or UNIFIED})


def processes(*words: str) -> list[int]:
    """The processes whose command line has all these words."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if all(word in line for word in words):
            found.append(int(file.parent.name))
    return found


@contextmanager
def running_pod(containerd: Containerd, cri: Cri, handler: str, annotations: Record | None = None) -> Iterator[Sandbox]:
    """A pod with one container; it is gone after the block."""
    pod = pod_config(handler, containerd.cgroup_parent, containerd.folder / "logs") | {"annotations": annotations or {}}
    sandbox = text(cri.call("RunPodSandbox", {"config": pod, "runtime_handler": handler}), "pod_sandbox_id")
    container: Record = {"pod_sandbox_id": sandbox, "config": container_config("c", IMAGE), "sandbox_config": pod}
    created = text(cri.call("CreateContainer", container), "container_id")
    cri.call("StartContainer", {"container_id": created})
    (shim,) = processes("containerd-shim-kata-v2 ", f"-id {sandbox}")
    (vmm,) = processes("qemu-system", f"-name sandbox-{sandbox}")
    try:
        yield Sandbox(sandbox, f"{containerd.cgroup_parent}/pod{handler}", shim, vmm)
    finally:
        remove_pod(cri, sandbox)


def memory_bytes(path: str) -> int:
    """What that cgroup is charged with."""
    file = f"{path.lstrip('/')}/memory.current" if UNIFIED else f"memory{path}/memory.usage_in_bytes"
    return int((CGROUP_ROOT / file).read_text())


@pytest.mark.parametrize(
    ("handler", "annotations", "only"),
    [
        pytest.param("kata", {}, True, id="sandbox cgroup only"),
        pytest.param("kata-overhead", {}, False, id="with an overhead cgroup"),
        pytest.param("kata", {MODE_ANNOTATION: "false"}, False, id="the pod's annotation against the configuration"),
    ],
)
def test_where_kata_puts_a_sandbox(containerd: Containerd, handler: str, annotations: Record, only: bool) -> None:
    with containerd.cri() as cri, running_pod(containerd, cri, handler, annotations) as pod:
        sandbox, overhead = f"{pod.parent}/kata_{pod.id}", f"/{OVERHEAD}/{pod.id}"
        charged = sandbox if only or UNIFIED else overhead
        assert pod.paths(pod.shim) == [sandbox if only else overhead]
        assert pod.paths(pod.vmm, "qemu-system") == [charged]
        assert pod.paths(pod.vmm, "CPU ") == [sandbox]
        if not UNIFIED or only:  # with cgroup v2 what was charged before the move stays where it was
            assert memory_bytes(charged) > MEMORY_MIB << 20
            assert memory_bytes(sandbox) > MEMORY_MIB << 20 or not only
    assert processes(pod.id) == []
    assert [path for root in hierarchies() for path in root.rglob(f"*{pod.id}*")] == []


@pytest.mark.parametrize("only", [True, False], ids=["only", "overhead"])
def test_the_library_goes_where_it_says(only: bool) -> None:
    parent = f"/nodeward-test-{os.getpid()}"
    cell = KataCell(f"{parent}/pod/one", only, f"one-{os.getpid()}")
    (paths,) = kata_paths([cell])
    with placing(cell) as (process, placed):
        where = {one.role: {path for key, path in one.cgroups.items() if key or UNIFIED} for one in placed.threads}
        assert placed.error == ""
        assert where["vcpu"] == {paths.v2 if UNIFIED else paths.v1}
        assert where["shim"] == {paths.overhead or paths.v1}
        assert process.tell("delete").error == ""
    remove_cgroups(parent)


def test_the_size_of_a_vm_keeps_a_part_of_a_cpu() -> None:
    keys = {"cpu-quota": "220000", "cpu-period": "100000", "memory": str((1 << 30) + 1)}
    (size,) = kata_sizes([{f"io.kubernetes.cri.sandbox-{key}": value for key, value in keys.items()}])
    assert (size.cpus, size.memory_mib) == (2.2, 1024)
