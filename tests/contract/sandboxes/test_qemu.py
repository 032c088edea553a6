"""A real QEMU under a stand-in for Kata's shim: what the reader says of them is what /proc and the cgroup files say.

QEMU interprets its guest (TCG), which has no kernel: its firmware runs for a moment. It is stopped before the two
readings, so that nothing moves between them.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodeward.core.vms import Place, TaskRole, VmReading
from nodeward.core.workload import SandboxId
from nodeward.host.hostfs import OsFiles
from nodeward.neighbours.cgroups.hierarchy import mounted
from nodeward.neighbours.kata.cgroups import trees
from nodeward.neighbours.kata.reader import Reader
from tests.patience import until

QEMU = shutil.which("qemu-system-x86_64")
pytestmark = [pytest.mark.skipif(QEMU is None, reason="qemu-system-x86_64 is not installed")]
ROOT = "/sys/fs/cgroup"
MIB = 1 << 20
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
SHARED = ("-object", "memory-backend-memfd,id=ram,size=64M,share=on,prealloc=on", "-machine", "memory-backend=ram")
WITHIN = 0.02
LONGEST_S = 60.0


@dataclass
class Sandbox:
    id: SandboxId
    shim: int
    vmm: int

    def reading(self) -> VmReading:
        files = OsFiles()
        reader = Reader(files, trees(mounted(files, ROOT), ROOT), lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME))
        try:
            return next(one for one in reader.read({}).readings if one.sandbox == self.id)
        finally:
            reader.close()

    def stat(self, thread: int | None = None) -> list[str]:
        """Fields of stat(5) from the third on, of the VMM or one of its threads."""
        base = f"/proc/{self.vmm}" if thread is None else f"/proc/{self.vmm}/task/{thread}"
        return Path(base, "stat").read_text().rpartition(")")[2].split()

    @property
    def ticks(self) -> int:
        return sum(int(field) for field in self.stat()[11:13])

    def threads(self) -> list[int]:
        return sorted(int(one.name) for one in Path(f"/proc/{self.vmm}/task").iterdir())

    def stop(self) -> None:
        """Once the firmware has run, nothing of the VMM moves any more."""
        until(lambda: self.ticks >= 5 and len(self.threads()) >= 4, "QEMU has its threads and has run")
        os.kill(self.vmm, signal.SIGSTOP)
        until(lambda: all(self.stat(one)[0] == "T" for one in self.threads()), "it is stopped")


@contextmanager
def running(name: str, *more: str) -> Iterator[Sandbox]:
    sandbox = SandboxId(os.urandom(32).hex())
    assert QEMU is not None
    vmm = (QEMU, "-name", f"sandbox-{sandbox}{name}", "-nodefaults", "-no-user-config", "-display", "none")
    guest = ("-machine", "q35", "-accel", "tcg,thread=multi", "-m", "64M,slots=2,maxmem=1G", "-smp", "2,cores=2")
    words = ("containerd-shim-kata-v2", str(Path(__file__).with_name("shim.py")), "-namespace", "k8s.io")
    process = subprocess.Popen(
        [*words, "-id", sandbox, "--", *vmm, *guest, *more],
        executable=sys.executable,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        made = Sandbox(sandbox, process.pid, int(process.stdout.readline()))
        made.stop()
        yield made
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(LONGEST_S)


def field(path: str, name: str) -> int:
    """Bytes of a `Name:   123 kB` line."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path(path).read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def cgroup_of(pid: int, controller: str) -> str:
    rows = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    unified = next((path for number, _, path in rows if number == "0"), "")
    return next((path for _, controllers, path in rows if controller in controllers.split(",")), unified)


def test_roles_threads_and_figures_are_those_of_proc() -> None:
    with running(",debug-threads=on") as sandbox:
        reading = sandbox.reading()
        (vmm,), (shim,) = reading.of(TaskRole.VMM), reading.of(TaskRole.SHIM)
        names = {one: Path(f"/proc/{sandbox.vmm}/task/{one}/comm").read_text().strip() for one in sandbox.threads()}

        assert (shim.pid, vmm.pid, reading.vmm, reading.namespace) == (sandbox.shim, sandbox.vmm, "qemu", "k8s.io")
        assert (reading.vm_memory, reading.vm_vcpus, reading.faults) == (64 * MIB, 2, ())
        assert {one.tid: one.name for one in reading.tasks if one.pid == sandbox.vmm} == names
        assert sorted(one.name for one in reading.of(TaskRole.VCPU)) == ["CPU 0/TCG", "CPU 1/TCG"]
        assert vmm.start == int(sandbox.stat()[19])
        assert (vmm.cgroup, vmm.cpu_cgroup) == (cgroup_of(vmm.pid, "memory"), cgroup_of(vmm.pid, "cpuacct"))

        assert vmm.rss == pytest.approx(field(f"/proc/{vmm.pid}/status", "VmRSS"), rel=WITHIN)
        spent = [one.cpu_ns for one in reading.tasks if one.pid == vmm.pid and one.cpu_ns is not None]
        assert sum(spent) == sandbox.ticks * TICK_NS
        for one in reading.of(TaskRole.VCPU):
            assert one.cpu_ns == sum(int(ticks) for ticks in sandbox.stat(one.tid)[11:13]) * TICK_NS


def test_guest_memory_is_the_mapping_that_backs_it() -> None:
    with running("") as sandbox:
        reading = sandbox.reading()
        text = Path(f"/proc/{sandbox.vmm}/smaps").read_text()
        sizes = re.findall(r"^\S+ rw-p .*\nSize:\s+65536 kB\n(?:.*\n)*?Rss:\s+(\d+) kB", text, re.MULTILINE)
        assert [int(kib) * 1024 for kib in sizes] == [reading.guest_ram]
        assert reading.of(TaskRole.VCPU) == (), "without debug-threads nothing tells here"
        assert any("vCPUs is not known" in fault for fault in reading.faults)


def test_guest_memory_in_a_memfd_is_all_there_once_it_is_allocated() -> None:
    with running("", *SHARED) as sandbox:
        assert sandbox.reading().guest_ram == pytest.approx(64 * MIB, rel=WITHIN)


def test_on_cgroup_v1_threads_in_a_pod_are_vcpus_and_its_figures_are_those_of_its_files() -> None:
    """As Kata's Go runtime places them with `sandbox_cgroup_only` false."""
    files = OsFiles()
    where = trees(mounted(files, ROOT), ROOT)
    folders = list(dict.fromkeys((where.memory, where.cpu, where.cpuacct)))
    if where.version != 1 or not all(os.access(one, os.W_OK) for one in folders):
        pytest.skip("needs cgroup v1 with memory and cpu, writable")
    with running("") as sandbox:
        pod = f"/nodeward-test-{os.getpid()}/podc0ffee00-0000-4000-8000-000000000000"
        own = f"{pod}/kata_{sandbox.id}"
        made = [Path(folder + path) for folder in folders for path in (pod.rpartition("/")[0], pod, own)]
        vcpus = sandbox.threads()[-2:]
        try:
            for folder in made:
                folder.mkdir()
            for tree in folders:
                for tid in vcpus:
                    Path(tree + own, "tasks").write_text(str(tid))
            Path(where.memory + pod, "memory.limit_in_bytes").write_text(str(256 * MIB))
            reading = sandbox.reading()
            found, inside = reading.cgroup(Place.POD), reading.cgroup(Place.SANDBOX)
            assert [one.tid for one in reading.of(TaskRole.VCPU)] == vcpus
            assert found is not None
            assert inside is not None
            assert (found.path, found.memory_limit, inside.path) == (pod, 256 * MIB, own)
            assert found.memory == int(Path(where.memory + pod, "memory.usage_in_bytes").read_text())
            assert inside.cpu_ns == int(Path(where.cpuacct + own, "cpuacct.usage").read_text())
        finally:
            os.kill(sandbox.vmm, signal.SIGKILL)
            until(lambda: not any(Path(one, "tasks").read_text() for one in made if one.is_dir()), "all have left")
            for folder in reversed(made):
                folder.rmdir()
