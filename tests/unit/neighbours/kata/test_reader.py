"""Processes and cgroups of VM sandboxes are read from plain files: who is what, where, and what is said of faults."""

import errno
from pathlib import Path

import pytest

from nodeward.core.events import VmsRead
from nodeward.core.modes import Mode
from nodeward.core.vms import UNLIMITED, CgroupDriver, Place, TaskRole
from nodeward.core.workload import SandboxId
from nodeward.features.root import State
from nodeward.features.sandboxes.settings import SandboxesSettings
from nodeward.features.sandboxes.view import sandboxes_view
from nodeward.features.settings import EngineSettings
from nodeward.neighbours.kata import finder
from nodeward.neighbours.kata.cgroups import Trees
from nodeward.neighbours.kata.reader import SEARCH_S, Reader
from nodeward.neighbours.kata.tasks import PAGE
from tests.unit.features.build import Told
from tests.unit.neighbours.kata.host import POD, V1, V2, A, B, Host, at, qemu, shim

TICK_NS = 10_000_000
MIB = 1 << 20
OWN, OUTSIDE = f"{POD}/kata_{A}", f"/kata_overhead/{A}"
V1_OUTSIDE = f"3:memory:{OUTSIDE}\n2:cpuacct:{OUTSIDE}\n1:cpu:{OUTSIDE}\n"
V1_OWN = f"3:memory:{OWN}\n2:cpuacct:{OWN}\n1:cpu:{OWN}\n"
NAMED = {21: ("CPU 0/KVM", 40), 22: ("CPU 1/KVM", 50), 23: ("IO iothread0", 5)}
PLAIN = {21: ("qemu-system-x86", 40), 22: ("qemu-system-x86", 50), 23: ("qemu-system-x86", 5)}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    made = Host(tmp_path)
    where = f"0::{OWN}\n"
    made.process(10, shim(A), ticks=7, pages=100, cgroup=where)
    made.process(20, qemu(A), parent=10, start=200, ticks=120, pages=5000, cgroup=where, threads=NAMED)
    made.process(
        30, f"/usr/libexec/virtiofsd\0--shared-dir\0/run/kata-containers/shared/sandboxes/{A}/shared\0".encode()
    )
    made.process(31, b"", name="vhost-20", parent=2, ticks=3)
    smaps = "7f0000000000-7f0004000000 rw-p 00000000 00:00 0 \nSize:  65536 kB\nRss:    8192 kB\n"
    made.write("/proc/20/smaps", smaps + "7f1000000000-7f1040000000 rwxp 00000000 00:00 0 \nRss:    4096 kB\n")
    for path, used in ((POD, 300), (OWN, 200)):
        made.write(f"/sys/fs/cgroup{path}/memory.current", f"{used}\n")
        made.write(f"/sys/fs/cgroup{path}/memory.max", "max\n" if path == OWN else "4096\n")
        made.write(f"/sys/fs/cgroup{path}/memory.events", "low 0\nmax 2\noom 1\noom_kill 1\n")
        made.write(f"/sys/fs/cgroup{path}/cpu.stat", "usage_usec 1500\nuser_usec 1000\n")
        made.write(f"/sys/fs/cgroup{path}/cpu.max", "max 100000\n" if path == OWN else "150000 100000\n")
    return made


def test_every_process_and_thread_has_its_role_time_memory_and_place(host: Host) -> None:
    reading = host.only()
    assert [(one.role, one.tid, one.cpu_ns, one.rss) for one in reading.tasks] == [
        (TaskRole.SHIM, 10, 7 * TICK_NS, 100 * PAGE),
        (TaskRole.VMM, 20, 25 * TICK_NS, 5000 * PAGE),
        (TaskRole.VCPU, 21, 40 * TICK_NS, None),
        (TaskRole.VCPU, 22, 50 * TICK_NS, None),
        (TaskRole.IO, 23, 5 * TICK_NS, None),
        (TaskRole.VIRTIOFSD, 30, 0, 990 * PAGE),
        (TaskRole.VHOST, 31, 3 * TICK_NS, None),
    ]
    assert {one.cgroup for one in reading.of(TaskRole.SHIM, TaskRole.VMM, TaskRole.VCPU)} == {OWN}
    assert (reading.namespace, reading.vmm, reading.vm_memory, reading.vm_vcpus) == ("k8s.io", "qemu", 64 * MIB, 2)
    assert reading.guest_ram == 8 * MIB
    assert reading.faults == ()


def test_the_cgroups_of_pod_and_sandbox_are_read_with_their_limits(host: Host) -> None:
    reading, found = host.only(), host.round()
    pod, own = at(Place.POD, reading), at(Place.SANDBOX, reading)
    assert (pod.path, pod.memory, pod.memory_limit, pod.cpu_ns, pod.cpu_limit_m, pod.oom_kills) == (
        *(POD, 300, 4096, 1_500_000, 1500, 1),
    )
    assert (own.path, own.memory_limit, own.cpu_limit_m) == (OWN, UNLIMITED, UNLIMITED)
    assert (found.version, found.driver) == (2, CgroupDriver.CGROUPFS)


def test_on_cgroup_v1_a_vcpu_is_told_by_the_cgroup_it_was_moved_to(tmp_path: Path) -> None:
    host = Host(tmp_path, V1)
    host.process(10, shim(A), cgroup=V1_OUTSIDE)
    host.process(20, qemu(A), parent=10, cgroup=V1_OUTSIDE, threads=PLAIN)
    host.moved(20, 21, f"3:memory:{OUTSIDE}\n2:cpuacct:{OWN}\n1:cpu:{OWN}\n")
    host.moved(20, 22, V1_OWN)
    host.write(f"{V1.memory}{POD}/memory.usage_in_bytes", "300\n")
    host.write(f"{V1.memory}{POD}/memory.limit_in_bytes", "9223372036854771712\n")
    host.write(f"{V1.memory}{POD}/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")
    host.write(f"{V1.memory}{OWN}/memory.usage_in_bytes", "200\n")
    host.write(f"{V1.memory}{OWN}/memory.oom_control", "oom_kill_disable 0\noom_kill 2\n")
    host.write(f"{V1.cpuacct}{OUTSIDE}/cpuacct.usage", "77\n")
    host.write(f"{V1.cpu}{POD}/cpu.cfs_quota_us", "-1\n")
    host.write(f"{V1.cpu}{POD}/cpu.cfs_period_us", "100000\n")

    reading = host.only()
    vcpus = reading.of(TaskRole.VCPU)
    assert [(one.tid, one.cgroup, one.cpu_cgroup) for one in vcpus] == [(21, OUTSIDE, OWN), (22, OWN, OWN)]
    assert {one.place: one.path for one in reading.cgroups} == {
        Place.POD: POD,
        Place.SANDBOX: OWN,
        Place.OVERHEAD: OUTSIDE,
    }
    pod, outside = at(Place.POD, reading), at(Place.OVERHEAD, reading)
    assert (pod.memory, pod.memory_limit, pod.cpu_limit_m) == (300, UNLIMITED, UNLIMITED)
    assert pod.oom_kills == 2, "cgroup v1 counts a kill only where the process was"
    assert (outside.memory, outside.cpu_ns, outside.oom_kills) == (None, 77, None)


def test_where_memory_is_counted_by_v2_and_cpu_by_v1_each_is_read_in_its_own_tree(tmp_path: Path) -> None:
    host = Host(tmp_path, Trees(2, "/sys/fs/cgroup/unified", V1.cpuacct, V1.cpu, cpu_version=1))
    host.process(10, shim(A), cgroup=f"2:cpuacct:{OWN}\n1:cpu:{OWN}\n0::{OWN}\n")
    host.write(f"/sys/fs/cgroup/unified{OWN}/memory.current", "200\n")
    host.write(f"{V1.cpuacct}{OWN}/cpuacct.usage", "77\n")
    own = at(Place.SANDBOX, host.only())
    assert (own.memory, own.cpu_ns) == (200, 77)


def test_vcpus_whose_names_are_all_alike_are_told_by_kvms_debugfs_else_said_to_be_unknown(host: Host) -> None:
    host.process(20, qemu(A), parent=10, start=200, ticks=120, cgroup=f"0::{OWN}\n", threads=PLAIN)
    reading = host.only()
    assert (reading.of(TaskRole.VCPU), len(reading.of(TaskRole.IO))) == ((), 3)
    assert [fault for fault in reading.faults if "which threads of VMM 20 are vCPUs is not known" in fault]
    for number, tid in enumerate((22, 23)):
        host.write(f"/sys/kernel/debug/kvm/20-14/vcpu{number}/pid", f"{tid}\n")
    host.write("/sys/kernel/debug/kvm/99-14/vcpu0/pid", "21\n")
    assert [one.tid for one in host.only(after_s=SEARCH_S).of(TaskRole.VCPU)] == [22, 23]
    host.reader = Reader(host.files, V2, host.clock.now_ns)
    assert [one.tid for one in host.only().of(TaskRole.VCPU)] == [22, 23], "at its first look too"


def test_a_move_and_a_new_thread_are_seen_within_two_rounds(host: Host) -> None:
    host.only()
    host.process(10, shim(A), ticks=7, pages=100, cgroup="0::/system.slice/containerd.service\n")
    more = {**NAMED, 24: ("CPU 2/KVM", 1)}
    host.process(20, qemu(A), parent=10, start=200, ticks=121, cgroup=f"0::{OWN}\n", threads=more)
    readings = [host.only(), host.only()]
    assert readings[-1].of(TaskRole.SHIM)[0].cgroup == "/system.slice/containerd.service"
    assert len(readings[-1].of(TaskRole.VCPU)) == 3


def test_a_vmm_that_has_ended_is_not_counted_and_that_is_said(host: Host) -> None:
    host.only()
    host.ended(20)
    reading = host.only()
    assert reading.of(TaskRole.VMM, TaskRole.VCPU, TaskRole.IO) == ()
    assert reading.guest_ram is None
    assert "vmm process 20 has ended, or its number is another's by now; it is not counted" in reading.faults


def test_a_vmm_that_ends_while_it_is_read_takes_no_other_sandbox_with_it(host: Host) -> None:
    host.process(11, shim(B))
    host.process(21, qemu(B), parent=11)
    host.files.faults["/proc/20/stat"] = errno.ESRCH
    found = {one.sandbox: one for one in host.round().readings}
    assert found[B].of(TaskRole.VMM)


def test_a_vmm_that_could_not_be_read_once_is_there_again_in_the_next_round(host: Host) -> None:
    host.only()
    host.files.faults["/proc/20/stat"] = errno.EMFILE
    reading = host.only()
    assert reading.of(TaskRole.VMM) == ()
    assert "vmm process 20 is not read in this round; it is not counted" in reading.faults
    del host.files.faults["/proc/20/stat"]
    assert [one.pid for one in host.only().of(TaskRole.VMM)] == [20]


def test_a_number_that_was_given_to_another_process_is_not_counted(host: Host) -> None:
    host.only()
    host.process(20, b"/bin/sh\0", start=999, ticks=120, pages=9, cgroup="0::/other\n")
    reading = host.only()
    assert reading.of(TaskRole.VMM, TaskRole.VCPU) == ()
    assert host.only().vmm == "", "the next search does not find it either"


def test_a_sandbox_whose_processes_have_all_ended_is_gone_and_its_descriptors_are_given_back(host: Host) -> None:
    host.only()
    host.ended(10, 20, 30, 31)
    assert host.round().readings == ()
    assert host.reader.open_files == 0


@pytest.mark.parametrize(
    ("second", "counted"),
    [pytest.param(1, 20, id="none-is-the-shims-child"), pytest.param(10, 19, id="the-other-is-the-shims-child")],
)
def test_of_two_vmms_of_a_sandbox_one_is_counted_and_both_are_named(tmp_path: Path, second: int, counted: int) -> None:
    host = Host(tmp_path)
    host.process(10, shim(A))
    host.process(20, qemu(A), start=200, pages=5)
    host.process(19, qemu(A), start=300, pages=5, parent=second)
    reading = host.only()
    assert [one.pid for one in reading.of(TaskRole.VMM)] == [counted]
    assert [fault for fault in reading.faults if "19" in fault and "20" in fault and f"only {counted}" in fault]


def test_of_two_shims_with_one_id_the_older_is_counted_and_one_called_to_start_is_none(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.process(9, shim(A, "start"), start=40)
    host.process(12, shim(A), start=50)
    host.process(10, shim(A), start=60)
    reading = host.only()
    assert [one.pid for one in reading.of(TaskRole.SHIM)] == [12]
    assert reading.faults == ("processes 12 and 10 both claim to be its shim; only 12 is counted",)


def test_a_shim_whose_child_is_anothers_vmm_by_name_says_so(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.process(10, shim(A))
    host.process(20, qemu(B), parent=10)
    reading = host.only()
    assert reading.sandbox == A
    assert [fault for fault in reading.faults if f"VMM of sandbox {B}" in fault]


def test_a_command_line_of_megabytes_and_one_with_line_breaks_are_read_like_others(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.process(10, shim(A), name="sh) S 1\nx")
    host.process(20, qemu(A, "-append", "a\nb\n" * (1 << 20)), parent=10)
    host.process(40, b"sandbox-\n\0-name\0sandbox-../../x\0")
    reading = host.only()
    assert (reading.of(TaskRole.SHIM)[0].name, reading.vm_memory) == ("sh) S 1\nx", 64 * MIB)


def test_a_cgroup_path_that_climbs_out_is_not_followed(host: Host) -> None:
    host.process(10, shim(A), ticks=7, cgroup="0::/../../../etc\n")
    reading = host.only()
    assert reading.of(TaskRole.SHIM)[0].cgroup == ""
    assert [fault for fault in reading.faults if "/proc/10/cgroup is not followed" in fault]
    assert not [path for path in host.files.reads if "etc" in path]


SLICE = r"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2\x2d3.slice"
PLACES: dict[str, tuple[str, dict[SandboxId, str], list[tuple[Place, str]]]] = {
    "escapes are taken as they are": (f"{SLICE}/cri-containerd-{A}.scope", {}, [(Place.POD, SLICE)]),
    "without a pod the cgroup above is no pod's": (f"/docker/kata_{A}", {}, [(Place.SANDBOX, f"/docker/kata_{A}")]),
    "by the runtime's word": ("/system.slice/x.service", {A: "/pods/one"}, [(Place.POD, "/pods/one")]),
}
"""Where the shim is, what the runtime has told, and the cgroups that are read."""


@pytest.mark.parametrize("case", PLACES)
def test_the_pods_cgroup_is_found_above_the_shims_or_by_the_runtimes_word(tmp_path: Path, case: str) -> None:
    home, told, places = PLACES[case]
    host = Host(tmp_path)
    host.process(10, shim(A), cgroup=f"0::{home}\n")
    for path in (SLICE, "/docker", f"/docker/kata_{A}", "/pods/one"):
        host.write(f"/sys/fs/cgroup{path}/memory.current", "5\n")
    found = host.round(told)
    assert [(one.place, one.path) for one in found.readings[0].cgroups] == places
    assert (found.driver is CgroupDriver.SYSTEMD) is (SLICE in home)


def test_files_that_cannot_be_read_are_unknown_and_never_zero(host: Host) -> None:
    for path in (f"/sys/fs/cgroup{POD}/memory.current", "/proc/20/smaps"):
        host.files.faults[path] = errno.EACCES
    host.write(f"/sys/fs/cgroup{OWN}/cpu.stat", "usage_usec many\n")
    reading = host.only()
    pod, own = at(Place.POD, reading), at(Place.SANDBOX, reading)
    assert (pod.memory, pod.cpu_ns, own.cpu_ns, reading.guest_ram) == (None, 1_500_000, None, None)
    said = " ".join(reading.faults)
    assert f"{POD}/memory.current" in said
    assert "/proc/20/smaps" in said
    assert "usage_usec many" in said


def test_smaps_is_read_again_when_it_is_old_or_the_memory_has_moved_and_followed_in_between(host: Host) -> None:
    def smaps_read() -> int:
        return host.files.reads.count("/proc/20/smaps")

    host.only()
    grown = 5000 + 1000
    host.process(20, qemu(A), parent=10, start=200, ticks=120, pages=grown, cgroup=f"0::{OWN}\n", threads=NAMED)
    assert host.only().guest_ram == 8 * MIB + 1000 * PAGE
    assert smaps_read() == 1
    host.only(after_s=14)
    assert smaps_read() == 2
    host.process(20, qemu(A), parent=10, start=200, ticks=120, pages=grown + 5000, cgroup=f"0::{OWN}\n", threads=NAMED)
    host.only()
    assert smaps_read() == 3


def test_smaps_of_each_vmm_has_its_turn_if_there_is_time_for_one(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.process(11, shim(B))
    host.process(40, qemu(B), parent=11)
    host.write("/proc/40/smaps", "")
    host.round()
    monkeypatch.setattr(host.files, "on_read", lambda: setattr(host.clock, "ns", host.clock.ns + 100_000_000))
    for _ in range(2):
        host.round(after_s=100)
    assert [host.files.reads.count(f"/proc/{pid}/smaps") for pid in (20, 40)] == [2, 2]


def test_guest_memory_in_shared_memory_is_read_without_smaps(host: Host) -> None:
    backend = "memory-backend-file,id=dimm1,size=64M,mem-path=/dev/shm,share=on"
    host.process(20, qemu(A, "-object", backend), parent=10, start=200, threads=NAMED, cgroup=f"0::{OWN}\n")
    host.write("/proc/20/status", "Name:\tq\nVmRSS:\t  3000 kB\nRssShmem:\t  1024 kB\nHugetlbPages:\t  0 kB\n")
    reading = host.only()
    assert (reading.guest_ram, reading.of(TaskRole.VMM)[0].rss) == (MIB, 3000 * 1024)
    assert "/proc/20/smaps" not in host.files.reads


def test_dragonballs_vcpus_are_threads_of_the_shim(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.process(10, shim(A), ticks=50, threads={11: ("db_vcpu0", 30), 12: ("tokio", 5)})
    host.only()
    reading = host.only()
    assert [(one.role, one.cpu_ns) for one in reading.tasks] == [
        (TaskRole.SHIM, 20 * TICK_NS),
        (TaskRole.VCPU, 30 * TICK_NS),
    ]
    assert reading.vmm == "dragonball"


def test_proc_is_searched_seldom_and_at_once_for_a_sandbox_that_is_expected(host: Host) -> None:
    def searched() -> int:
        return host.files.reads.count("/proc/30/cmdline")

    host.only()
    host.only()
    assert searched() == 1
    host.round({B: ""})
    host.round({B: ""})
    assert searched() == 2
    host.only(after_s=SEARCH_S)
    assert searched() == 3


def test_of_too_many_those_that_the_runtime_told_of_come_first(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finder, "MOST_SANDBOXES", 1)
    host.process(11, shim(B), start=900)
    assert [one.sandbox for one in host.round({B: ""}).readings] == [B]


def test_a_vmm_that_starts_after_its_shim_was_found_is_seen_in_the_next_round(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.process(10, shim(A))
    assert host.only().of(TaskRole.VMM) == ()
    host.process(20, qemu(A), parent=10)
    assert len(host.only().of(TaskRole.VMM)) == 1


HUGE = ("-object", "memory-backend-file,id=dimm1,size=64M,mem-path=/dev/hugepages,share=on,prealloc=on")


@pytest.mark.parametrize("version", [1, 2])
def test_a_vm_on_huge_pages_is_judged_by_hugetlb_and_not_by_memory(tmp_path: Path, version: int) -> None:
    """The reading, and what `nodeward vms` says of it: 64 MiB of VM beside a memory limit of 40 MiB."""
    v1 = Trees(1, "/v1/memory", "/v1/cpu", "/v1/cpu", hugetlb="/v1/hugetlb")
    host = Host(tmp_path, v1 if version == 1 else V2)
    where = f"2:memory:{OWN}\n1:cpuacct,cpu:{OWN}\n" if version == 1 else f"0::{OWN}\n"
    host.process(10, shim(A), pages=100, cgroup=where)
    host.process(20, qemu(A, *HUGE), parent=10, cgroup=where, threads=NAMED)
    host.write("/proc/20/status", "Name:\tx\nVmRSS:\t 8192 kB\nHugetlbPages:\t 65536 kB\n")
    for size in ("hugepages-2048kB", "hugepages-1048576kB"):
        host.write(f"/sys/kernel/mm/hugepages/{size}/nr_hugepages", "64\n")
    used, limit = ("usage_in_bytes", "limit_in_bytes") if version == 1 else ("current", "max")
    memory, huge = ("/v1/memory", "/v1/hugetlb") if version == 1 else ("/sys/fs/cgroup", "/sys/fs/cgroup")
    for path in (POD, OWN):
        host.write(f"{memory}{path}/memory.{used}", "9000000\n")
        host.write(f"{memory}{path}/memory.{limit}", f"{40 * MIB}\n")
    for size, has in (("2MB", 64 * MIB), ("1GB", 0)):  # the sandbox's own cgroup has no hugetlb
        host.write(f"{huge}{POD}/hugetlb.{size}.{used}", f"{has}\n")
        host.write(f"{huge}{POD}/hugetlb.{size}.{limit}", f"{has}\n")
    assert "huge pages 64Mi - VM 64Mi = 0 left: fits" in fit(host)
    host.write(f"{huge}{POD}/hugetlb.2MB.{limit}", f"{32 * MIB}\n")
    assert "VM 64Mi exceeds the limit of huge pages 32Mi by 32Mi: will be killed at 32Mi of guest memory" in fit(host)
    host.write(f"{huge}{POD}/hugetlb.2MB.{limit}", "garbage\n")
    assert "unknown: the pod's limit of huge pages (hugetlb) is not known" in fit(host)


def fit(host: Host) -> str:
    """The sentence about the one sandbox, once limits are read again."""
    for _ in range(5):
        reading = host.only()
    told = Told(State(EngineSettings(sandboxes=SandboxesSettings(Mode.OBSERVE))))
    told(VmsRead((reading,), host.reader.read({}).version))
    view = sandboxes_view(told.state, reading.at_ns)
    assert view is not None
    return view.rows[0].fit.sentence


def test_huge_pages_of_a_vm_whose_command_line_tells_none_are_found_in_smaps(host: Host) -> None:
    guest = "7f0000000000-7f0004000000 rw-p 00000000 00:00 0 \nSize: 65536 kB\nRss: 0 kB\nPrivate_Hugetlb: 65536 kB\n"
    host.write("/proc/20/smaps", guest)
    reading = host.only()
    (vmm,) = reading.of(TaskRole.VMM)
    assert (reading.on_huge_pages, reading.guest_ram, vmm.rss) == (True, 64 * MIB, 5000 * PAGE + 64 * MIB)
