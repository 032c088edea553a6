"""What a running VM sandbox cannot do: be checkpointed, and, if its size is fixed, be resized. Pure.

Each function returns why not, in the words that the client of CRI gets; empty where it can, and where that is unknown.
"""

from collections.abc import Iterator

from nodeward.core.vms import Handler
from nodeward.core.workload import HostShare


def why_no_checkpoint(handler: Handler) -> str:
    """Why no container of this handler's sandboxes can be checkpointed."""
    return (
        f"a container of the runtime handler {handler.name} runs in a VM: CRIU on the host sees the VM's processes and "
        "not the container's. relay.vm_checkpoint is refuse; with pass the runtime answers"
    )


def resizes(handler: Handler) -> bool | None:
    """Whether VMs of this handler change their size while they run; None where its configuration does not say."""
    return None if handler.static is None else not handler.static


def why_no_resize(handler: Handler, before: HostShare | None, asked: HostShare) -> str:
    """Why these resources cannot be given to a VM of a fixed size. `before`: what the runtime has of the container;
    None for a change of the pod as a whole."""
    what = "the resources of the pod" if before is None else "; ".join(changes(before, asked))
    if not what:
        return ""
    return (
        f"infeasible: VMs of the runtime handler {handler.name} have a fixed size (static_sandbox_resource_mgmt = true "
        f"in {handler.config}), so {what} cannot change while the VM runs. Make the pod anew. relay.vm_resize is "
        "refuse; with pass the runtime answers"
    )


def changes(before: HostShare, asked: HostShare) -> Iterator[str]:
    """What of CPU and memory is asked to be other than before. In CRI 0 says nothing, and a limit below 0 is none. A
    period says nothing where there is no quota."""
    quota = max(0, before.cpu.quota)
    limited = quota > 0 or asked.cpu.quota > 0
    for what, was, now in (
        ("CPU shares", before.cpu.shares, asked.cpu.shares),
        ("the CPU quota", quota, asked.cpu.quota),
        ("the CPU period", before.cpu.period, asked.cpu.period if limited else 0),
        ("the memory limit", max(0, before.memory), asked.memory),
    ):
        if now and max(0, now) != was:
            yield f"{what} ({was or 'none'} to {now if now > 0 else 'none'})"
