"""The size of a sandbox's VM: by the VMM's command line, else by Kata's own formula.

Kata Go and runtime-rs make different sums; both are done here in thousandths of a CPU and whole MiB, never in floats.
Nothing here says what a VM should have: `features.sandboxes.headroom` compares it with the pod's limit.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodeward.core.annotations import KATA_SIZES
from nodeward.core.vms import Handler, Profile, VmReading
from nodeward.core.workload import NO_SHARE, Container, CpuRecord, HostShare
from nodeward.features.sandboxes.mode import handed_on
from nodeward.features.sandboxes.values import VmSize

MIB = 1 << 20
CPU_M = 1000
SHARES_OF_A_CPU = 1024
_VCPUS, _MEMORY = KATA_SIZES
_PREFIX = "io.katacontainers.config.hypervisor."
_DECIMAL = re.compile(r"([0-9]{1,6})(?:\.([0-9]{1,9}))?")
_MEBIBYTES = re.compile(r"[0-9]{1,9}")
_MAX_PATTERN = 256
NOT_KNOWN = VmSize(None, None, "")


@dataclass(frozen=True, slots=True)
class _Base:
    """What a VM has without what containers ask for."""

    memory: int | None
    vcpus_m: int | None
    annotated: bool = False

    @property
    def source(self) -> str:
        return "annotation" if self.annotated else "config"


def size(
    reading: VmReading,
    handler: Handler | None,
    profile: Profile | None,
    annotations: Mapping[str, str] | None = None,
    asked: HostShare = NO_SHARE,
    running: Sequence[Container] = (),
) -> VmSize:
    """The size of the VM. `asked`: what kubelet told the runtime of the whole pod; `running`: the containers that have
    not ended, whose limits Kata adds to a VM that grows."""
    if handler is None or profile is None or profile is Profile.DOCUMENT:
        return _by_vmm(reading, NOT_KNOWN)
    base = _base(handler, annotations or {})
    if grows(handler):
        return _grown(reading, base, running)
    if profile is Profile.KATA_RS:
        return _by_vmm(reading, _static_rs(handler, base, asked))
    return _by_vmm(reading, _static_go(base, asked))


def grows(handler: Handler) -> bool:
    """Whether Kata plugs memory and CPUs into the VM for each container (`static_sandbox_resource_mgmt` is false, which
    it also is where the configuration does not say)."""
    is_read = bool(handler.config) and not handler.fault
    return handler.static is False or (handler.static is None and is_read)


def cpu_limit_m(cpu: CpuRecord) -> int | None:
    """A limit in thousandths, rounded up; None for none."""
    return -(-cpu.quota * CPU_M // cpu.period) if cpu.quota > 0 and cpu.period > 0 else None


def obeyed(handler: Handler, key: str) -> bool:
    """Whether a pod's annotation of the VM reaches Kata (the container runtime hands it on) and Kata obeys it."""
    return handed_on(handler, key) and allowed(handler, key)


def allowed(handler: Handler, key: str) -> bool:
    """Whether `enable_annotations` of Kata's configuration has a pod's annotation of the VM."""
    name = key.removeprefix(_PREFIX)
    return any(_regex(one, name) for one in handler.enable_annotations)


def _by_vmm(reading: VmReading, planned: VmSize) -> VmSize:
    memory, vcpus = reading.vm_memory, reading.vm_vcpus
    if memory is None and vcpus is None:
        return planned
    return VmSize(
        planned.memory if memory is None else memory,
        planned.vcpus if vcpus is None else vcpus,
        planned.source if memory is None and planned.memory is not None else "vmm",
    )


def _static_go(base: _Base, asked: HostShare) -> VmSize:
    """`default_vcpus` and `default_memory`, and what the containers ask for on top."""
    cpu_m, memory = _workload_go(asked.cpu), _whole_mib(asked.memory)
    return _sum(base, memory, cpu_m)


def _static_rs(handler: Handler, base: _Base, asked: HostShare) -> VmSize:
    """The defaults where nothing is limited; else what is, and the overhead of the configuration. Memory is rounded up
    to an even number of MiB, and there is one vCPU at least."""
    cpu_m, memory = _quota_m(asked.cpu), _whole_mib(asked.memory)
    if not cpu_m and not memory:
        return _sum(base, 0, 0)
    memory += memory // MIB % 2 * MIB
    more, more_m = handler.overhead_memory, handler.overhead_vcpus_m
    return VmSize(
        None if more is None else more + memory,
        None if more_m is None else _whole(max(more_m + cpu_m, CPU_M)),
        "config+limits",
    )


def _grown(reading: VmReading, base: _Base, running: Sequence[Container]) -> VmSize:
    """A VM that grows starts with the defaults, which is what its VMM's command line says, and gets the limits of all
    its containers."""
    memory = _whole_mib(sum(one.memory for one in running))
    cpu_m = sum(cpu_limit_m(one.cpu) or 0 for one in running)
    starts = reading.vm_memory if reading.vm_memory is not None else base.memory
    if base.vcpus_m is not None:
        vcpus: int | None = _whole(base.vcpus_m + cpu_m)
    else:
        vcpus = None if reading.vm_vcpus is None else reading.vm_vcpus + _whole(cpu_m)
    said = _by_vmm(reading, VmSize(base.memory, vcpus, base.source if base.memory is not None else ""))
    if not memory and not cpu_m:
        return said
    return VmSize(None if starts is None else starts + memory, vcpus, "config+limits" if starts is not None else "")


def _sum(base: _Base, memory: int, cpu_m: int) -> VmSize:
    source = "config+limits" if memory or cpu_m else base.source
    if base.memory is None and base.vcpus_m is None:
        return NOT_KNOWN
    return VmSize(
        None if base.memory is None else base.memory + memory,
        None if base.vcpus_m is None else max(_whole(base.vcpus_m + cpu_m), 1),
        source,
    )


def _base(handler: Handler, annotations: Mapping[str, str]) -> _Base:
    memory, vcpus_m = handler.default_memory, handler.default_vcpus_m
    annotated = False
    if _MEMORY in annotations and obeyed(handler, _MEMORY):
        memory, annotated = _mebibytes(annotations[_MEMORY]), True
    if _VCPUS in annotations and obeyed(handler, _VCPUS):
        vcpus_m, annotated = _thousandths(annotations[_VCPUS]), True
    return _Base(memory, vcpus_m, annotated)


def _workload_go(cpu: CpuRecord) -> int:
    """By quota and period; by shares where the quota says unlimited (-1, as the static CPU manager has it). The 2
    shares of a pod that requests nothing are none."""
    if cpu.quota >= 0:
        return _quota_m(cpu)
    return -(-cpu.shares // SHARES_OF_A_CPU) * CPU_M if cpu.shares > 2 else 0


def _quota_m(cpu: CpuRecord) -> int:
    return cpu_limit_m(cpu) or 0


def _whole_mib(amount: int) -> int:
    return max(amount, 0) // MIB * MIB


def _whole(cpu_m: int) -> int:
    return -(-cpu_m // CPU_M)


def _mebibytes(text: str) -> int | None:
    """A plain number, which is MiB in both runtimes. Another form is not read: Kata refuses it, or the sum is its."""
    return int(text) * MIB if _MEBIBYTES.fullmatch(text) else None


def _thousandths(text: str) -> int | None:
    found = _DECIMAL.fullmatch(text)
    if found is None:
        return None
    below = (found[2] or "").ljust(9, "0")
    return int(found[1]) * CPU_M + -(-int(below) // 10**6)


def _regex(pattern: str, name: str) -> bool:
    try:
        return len(pattern) <= _MAX_PATTERN and re.search(pattern, name) is not None
    except re.error:
        return False
