"""The double of Kata's host side: places as the real libraries have them, memory as the kernel counts it."""

import pytest

from nodeward.doubles.kata import FIRST, GO, MEMORY, MIB, ONLY, RS, VMM, KataHost
from nodeward.doubles.kernel import CGROUP_MOUNT, SimKernel
from nodeward.model.sandboxes import Profile
from nodeward.proto import nri_pb2
from tests.sandbox_cells import FS, ID, OUTSIDE, POD, REACHED, Cell

HERE = [cell for cell in REACHED if cell.version == 2 and cell.driver is FS and cell.profile is not Profile.DOCUMENT]
LIMIT = 400 * MIB


def started(
    handler: str = GO, only: bool = True, asked: int = 64 * MIB, memory: str = ""
) -> tuple[SimKernel, KataHost]:
    """A sandbox of which kubelet has asked so much memory, in a pod that may have LIMIT."""
    kernel = SimKernel({})
    host = KataHost(kernel)
    host.make(POD[FS])
    kernel.write(f"{CGROUP_MOUNT}{POD[FS]}/memory.max", f"{LIMIT}".encode())
    pod = nri_pb2.PodSandbox(id=ID, runtime_handler=handler, annotations={ONLY: str(only).lower(), MEMORY: memory})
    pod.linux.cgroup_parent = POD[FS]
    pod.linux.pod_resources.memory.limit.value = asked
    host.start(pod)
    return kernel, host


def held(kernel: SimKernel, cgroup: str) -> int:
    return int(kernel.read(f"{CGROUP_MOUNT}{cgroup}/memory.current", 64))


def kills(kernel: SimKernel, cgroup: str) -> bytes:
    return kernel.read(f"{CGROUP_MOUNT}{cgroup}/memory.events", 4096).splitlines()[4]


@pytest.mark.parametrize("cell", HERE, ids=str)
def test_processes_are_where_the_real_libraries_have_them(cell: Cell) -> None:
    _, host = started(GO if cell.profile is Profile.KATA_GO else RS, cell.only)
    vm = host.vms[ID]

    places = {role: host.processes.cgroup(one) for role, one in vm.processes().items()}
    assert places == {"shim": cell.shim, "virtiofsd": cell.virtiofsd, "vmm": cell.vmm}


@pytest.mark.parametrize(("handler", "memory", "mib"), [(GO, "", 320), (GO, "512", 576), (RS, "", 96), (RS, "512", 96)])
def test_a_vm_is_as_large_as_its_runtime_makes_it(handler: str, memory: str, mib: int) -> None:
    _, host = started(handler, memory=memory)

    assert host.vms[ID].memory == mib * MIB


def test_memory_stays_charged_where_it_was_touched() -> None:
    """Given a VMM that was moved into its pod, what it had before counts outside, what its guest uses later inside."""
    kernel, host = started(only=False)
    outside, inside = held(kernel, OUTSIDE), held(kernel, POD[FS])
    host.touch(host.vms[ID], MIB)

    assert outside >= VMM + FIRST
    assert inside == 0
    assert (held(kernel, OUTSIDE), held(kernel, POD[FS])) == (outside, MIB)


def test_a_vmm_that_grows_above_its_pods_limit_is_killed_and_counted_there() -> None:
    kernel, host = started(asked=512 * MIB)
    vm = host.vms[ID]
    handle = kernel.open(f"/proc/{vm.vmm.pid}/stat")

    assert host.touch(vm, 256 * MIB)
    assert not host.touch(vm, 256 * MIB)
    assert list(vm.processes()) == ["shim"]
    assert kills(kernel, POD[FS]) == kills(kernel, vm.home) == b"oom_kill 1"
    assert held(kernel, POD[FS]) == vm.shim.rss
    with pytest.raises(ProcessLookupError):
        kernel.pread(handle, 4096)


def test_nothing_of_a_sandbox_is_left_when_it_has_ended() -> None:
    kernel, host = started(only=False)
    vm = host.vms[ID]
    host.stop(ID)

    assert held(kernel, POD[FS]) == held(kernel, "/kata_overhead") == 0
    for path in (f"{CGROUP_MOUNT}{vm.home}", f"{CGROUP_MOUNT}{OUTSIDE}", f"/proc/{vm.vmm.pid}", f"/proc/{vm.shim.pid}"):
        with pytest.raises(FileNotFoundError):
            kernel.stat(path)
