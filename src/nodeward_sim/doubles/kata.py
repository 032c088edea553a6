"""Kata's side of a simulated node: configuration files, and the processes and cgroups of each VM that it starts.

Two handlers, `kata-qemu` of the Go runtime and `kata-rs` of runtime-rs, place as these do on cgroup v2 with cgroupfs:
all of a sandbox in one cgroup of the pod, or (`sandbox_cgroup_only` false) shim and virtiofsd in `/kata_overhead/ID`
and the VMM, which has started there, moved into the pod. Memory that was charged before stays outside.

No guest runs: who uses this says how much memory it touches and how long its CPUs run.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from nodeward.contracts import nri_pb2
from nodeward_sim.doubles.kernel import CGROUP_MOUNT, SimKernel
from nodeward_sim.doubles.processes import Process, Processes

MIB: Final = 1024 * 1024
GO, RS = "kata-qemu", "kata-rs"
ONLY: Final = "io.katacontainers.config.runtime.sandbox_cgroup_only"
MEMORY: Final = "io.katacontainers.config.hypervisor.default_memory"
OVERHEAD: Final = "/kata_overhead"
DEFAULT_MIB: Final = 256
"""Of the Go runtime: what a VM has beside what its containers may use."""
ADDED_MIB: Final = 32
"""The same of runtime-rs."""
FIRST: Final = 16 * MIB
"""So much of the guest's memory is touched before its VMM is moved."""
VMM, SHIM, VIRTIOFSD = 40 * MIB, 20 * MIB, 6 * MIB
"""What each process has for itself."""
CONTROLLERS: Final = ("cpuset", "cpu", "memory", "misc")
_FOLDER: Final = "/opt/kata/share/defaults/kata-containers"
_FILES: Final = {
    "/etc/containerd/config.toml": f"""version = 3
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{GO}]
runtime_type = "io.containerd.kata-qemu.v2"
pod_annotations = ["io.katacontainers.*"]
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{GO}.options]
ConfigPath = "{_FOLDER}/configuration-qemu.toml"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{RS}]
runtime_type = "io.containerd.kata-qemu-runtime-rs.v2"
pod_annotations = ["io.katacontainers.*"]
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{RS}.options]
ConfigPath = "{_FOLDER}/runtime-rs/configuration-qemu.toml"
""",
    f"{_FOLDER}/configuration-qemu.toml": f"""[hypervisor.qemu]
default_vcpus = 1
default_memory = {DEFAULT_MIB}
enable_annotations = ["default_memory"]
[runtime]
sandbox_cgroup_only = false
static_sandbox_resource_mgmt = true
""",
    f"{_FOLDER}/runtime-rs/configuration-qemu.toml": f"""[hypervisor.qemu]
default_vcpus = 1.0
default_memory = 2048
overhead_vcpus = 0.2
overhead_memory = {ADDED_MIB}
[runtime]
name = "virt_container"
hypervisor_name = "qemu"
static_sandbox_resource_mgmt = true
sandbox_cgroup_only = false
""",
    f"{_FOLDER}/runtime-rs/config.d/50-deploy.toml": "[runtime]\nsandbox_cgroup_only = true\n",
}
"""Of runtime-rs the drop-in says another mode than the file, as kata-deploy's do."""
_SHIM: Final = "/opt/kata/bin/containerd-shim-kata-v2 -namespace k8s.io -address /run/containerd/containerd.sock"
_ONLY: Final = {GO: False, RS: True}


@dataclass(slots=True, eq=False)
class KataVm:
    """A sandbox. `pod`, `home` and `outside` are cgroups from the tree's root: the pod's, the sandbox's, and the one
    for what is not to count in the pod, where there is one."""

    sandbox: str
    pod: str
    home: str
    outside: str
    memory: int
    shim: Process
    virtiofsd: Process
    vmm: Process
    killed: list[Process] = field(default_factory=list)

    def processes(self) -> dict[str, Process]:
        """Those that live, by their role."""
        every = {"shim": self.shim, "virtiofsd": self.virtiofsd, "vmm": self.vmm}
        return {role: one for role, one in every.items() if one.alive}

    @property
    def untouched(self) -> int:
        """Memory of the guest that it has not used yet."""
        return self.memory - self.vmm.guest


class KataHost:
    """Kata on this kernel. `understated`: a VMM says a quarter of the memory that it takes, the mutant of a size that
    nobody can see."""

    def __init__(self, kernel: SimKernel, *, understated: bool = False) -> None:
        self._kernel, self._understated = kernel, understated
        self.processes = Processes(kernel)
        self.vms: dict[str, KataVm] = {}
        kernel.lay(_FILES)

    def serves(self, handler: str) -> bool:
        """Whether this runtime handler is Kata's."""
        return handler in _ONLY

    def start(self, pod: nri_pb2.PodSandbox) -> None:
        """The sandbox's cgroups and processes, as the shim makes them."""
        above, asked = pod.linux.cgroup_parent, pod.linux.pod_resources
        home = f"{above}/{'kata_' if pod.runtime_handler == GO else ''}{pod.id}"
        only = _only(pod.runtime_handler, pod.annotations)
        outside = "" if only else f"{OVERHEAD}/{pod.id}"
        for cgroup in filter(None, (home, outside)):
            self.make(cgroup)
        memory = _memory(pod.runtime_handler, pod.annotations, asked.memory.limit.value)
        quota, period = asked.cpu.quota.value, asked.cpu.period.value or 1
        vcpus = 1 + -(-max(quota, 0) // period)
        begins = outside or home
        words = "-namespace k8s.io -address /run/containerd/containerd.sock -id"
        shim = self.processes.start(
            begins, ("/opt/kata/bin/containerd-shim-kata-v2", *words.split(), pod.id), threads=8
        )
        shares = f"source=/run/kata-containers/shared/sandboxes/{pod.id}/shared"
        virtiofsd = self.processes.start(begins, ("/opt/kata/libexec/virtiofsd", "-o", shares), shim.pid, threads=2)
        shared = pod.runtime_handler == RS or self._understated
        qemu = _qemu(pod.id, memory // 4 if self._understated else memory, vcpus, shared=shared)
        vmm = self.processes.start(begins, qemu, shim.pid, vcpus + 2, guest=memory, shared=shared)
        self.vms[pod.id] = vm = KataVm(pod.id, above, home, outside, memory, shim, virtiofsd, vmm)
        for place, thread in enumerate(vmm.threads[1 : vcpus + 1]):
            self._kernel.lay({f"{_debugged(vmm)}/vcpu{place}/pid": f"{thread.tid}\n"})
        for one, amount in ((shim, SHIM), (virtiofsd, VIRTIOFSD), (vmm, VMM)):
            vm.killed += self.processes.take(one, amount)
        self.touch(vm, FIRST)
        if not only and vmm.alive:
            self.processes.move(vmm, home)

    def stop(self, sandbox: str) -> None:
        """The sandbox ends: its processes, then its cgroups."""
        vm = self.vms.pop(sandbox, None)
        if vm is None:
            return
        for one in vm.processes().values():
            self.processes.end(one)
        self._kernel.untell(_debugged(vm.vmm))
        for cgroup in filter(None, (vm.home, vm.outside)):
            with contextlib.suppress(OSError):  # somebody else has put a process there
                self._kernel.rmdir(CGROUP_MOUNT + cgroup)

    def touch(self, vm: KataVm, amount: int) -> bool:
        """The guest uses more memory; whether its VMM lives on. One that was killed leaves shim and cgroups."""
        taken = min(amount, vm.untouched)
        if taken and vm.vmm.alive:
            vm.killed += self.processes.take(vm.vmm, taken, guest=True)
        if not vm.vmm.alive and vm.virtiofsd.alive:
            self.processes.end(vm.virtiofsd)  # its only client is gone
        return vm.vmm.alive

    def run(self, vm: KataVm, spent_us: int) -> None:
        """The guest's CPUs run so long together, and a hundredth of it everything else."""
        if vm.vmm.alive:
            self.processes.run(vm.vmm, vm.vmm.threads[1], spent_us)
            self.processes.run(vm.vmm, vm.vmm.threads[0], spent_us // 100)
        self.processes.run(vm.shim, vm.shim.threads[0], spent_us // 100)

    def make(self, cgroup: str) -> None:
        """A cgroup with every controller, and those above it."""
        here = CGROUP_MOUNT
        for name in cgroup.strip("/").split("/"):
            for controller in CONTROLLERS:
                with contextlib.suppress(OSError):  # this kernel may be without it
                    self._kernel.write(f"{here}/cgroup.subtree_control", f"+{controller}".encode())
            here = f"{here}/{name}"
            with contextlib.suppress(FileExistsError):
                self._kernel.mkdir(here)


def _only(handler: str, annotations: Mapping[str, str]) -> bool:
    said = annotations.get(ONLY, "")
    return said == "true" if said in ("true", "false") else _ONLY[handler]


def _memory(handler: str, annotations: Mapping[str, str], asked: int) -> int:
    """By the sums of the two runtimes, with `static_sandbox_resource_mgmt`."""
    mib = max(asked, 0) // MIB
    if handler == RS:
        return (ADDED_MIB + mib + mib % 2) * MIB
    said = annotations.get(MEMORY, "")
    return (mib + (int(said) if said.isdecimal() else DEFAULT_MIB)) * MIB


def _qemu(sandbox: str, memory: int, vcpus: int, *, shared: bool) -> tuple[str, ...]:
    mib = memory // MIB
    backing = (f"memory-backend-memfd,id=dimm1,size={mib}M,share=on",) if shared else ()
    return (
        *("/opt/kata/bin/qemu-system-x86_64", "-name", f"sandbox-{sandbox}", "-machine", "q35,accel=kvm"),
        *("-m", f"{mib}M,slots=10,maxmem={4 * mib}M", "-smp", f"{vcpus},cores=1,threads=1,sockets={vcpus}"),
        *(word for one in backing for word in ("-object", one)),
    )


def _debugged(vmm: Process) -> str:
    """Where KVM shows its vCPUs."""
    return f"/sys/kernel/debug/kvm/{vmm.pid}-12"
