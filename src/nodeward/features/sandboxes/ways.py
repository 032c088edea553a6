"""How a runtime handler learns a size that the relay decides, and what is missing where it cannot. Pure.

Sources: kata-containers `pkg/oci/utils.go` (`SandboxConfig`, `CalculateSandboxSizing`) and runtime-rs
`cpu_mem/initial_size.rs`; containerd makes `io.kubernetes.cri.sandbox-*` for its pause container only, CRI-O never.
"""

from collections.abc import Mapping

from nodeward.core.annotations import KATA_QUEUES, KATA_SIZES
from nodeward.core.vms import Handler, Profile, Sized, VmReading, Way
from nodeward.core.workload import CpuRecord, HostShare, SandboxId
from nodeward.features.sandboxes.mode import handed_on, of_crio
from nodeward.features.sandboxes.settings import MOST_QUEUES
from nodeward.features.sandboxes.size import CPU_M, MIB, allowed, cpu_limit_m, grows, obeyed, size

_LEAST_GO, _LEAST_RS = 256 * MIB, 64 * MIB
"""Of `default_memory` as an annotation: below that Kata fails the pod (Firecracker under runtime-rs wants 128)."""
_NO_VM = VmReading(SandboxId(""), 0)


def way(handler: Handler) -> Way:
    """How it obeys. A VM of a fixed size reads what the runtime tells of the pod; one that grows reads its defaults
    only."""
    if not grows(handler):
        return Way.KEYS if of_crio(handler) or handler.serves else Way.RESOURCES
    return Way.DEFAULTS if all(obeyed(handler, key) for key in KATA_SIZES) else Way.NONE


def missing(handler: Handler) -> str:
    """What a handler lacks to obey."""
    return (
        f"VMs of the handler {handler.name} start small and grow: Kata reads no size at the start. Set "
        f"static_sandbox_resource_mgmt = true in {handler.config or 'its configuration'}, or have default_vcpus and "
        f"default_memory obeyed: {missing_defaults(handler)}"
    )


def missing_defaults(handler: Handler) -> str:
    """Why `default_vcpus` and `default_memory` are not obeyed as annotations; empty for nothing."""
    names = {key: key.rpartition(".")[2] for key in KATA_SIZES}
    lacks = [] if all(handed_on(handler, key) for key in names) else ["pod_annotations does not hand them on"]
    refused = [name for key, name in names.items() if not allowed(handler, key)]
    return "; ".join([*lacks, *([f"enable_annotations lacks {' and '.join(refused)}"] if refused else [])])


def least(handler: Handler) -> int:
    """The least bytes that Kata takes for `default_memory` as an annotation."""
    return _LEAST_RS if handler.profile is Profile.KATA_RS else _LEAST_GO


def no_queues(handler: Handler) -> str:
    """Why no queues can be said; empty where they can."""
    if handler.profile is not Profile.KATA_RS:
        return "only runtime-rs has them by annotation"
    refused = [key.rpartition(".")[2] for key in KATA_QUEUES if not obeyed(handler, key)]
    return f"{' and '.join(refused)} are not handed on, or not in enable_annotations" if refused else ""


def queues(handler: Handler, found: Sized, own: Mapping[str, str]) -> dict[str, str]:
    """A queue for each vCPU that the VM will have. They are fixed at the start of a VM; of Kata Go none can be said."""
    if handler.profile is not Profile.KATA_RS:
        return {}
    sent = HostShare(CpuRecord(quota=found.cpu_quota, period=found.cpu_period), found.memory_limit)
    vcpus = size(_NO_VM, handler, handler.profile, {**own, **found.annotations}, sent).vcpus
    if grows(handler) and vcpus is not None:  # containers' CPUs come later
        vcpus += -(-(cpu_limit_m(sent.cpu) or 0) // CPU_M)
    number = min(vcpus or 1, MOST_QUEUES)
    wanted = [key for key in KATA_QUEUES if key not in own and obeyed(handler, key)]
    return {key: str(number) for key in wanted} if number > 1 else {}
