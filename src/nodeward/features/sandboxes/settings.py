"""The settings of `sandboxes`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from nodeward.core.modes import Mode
from nodeward.core.vms import Profile

_CPUS = re.compile(r"([1-9][0-9]{0,3})(%?)")
MOST_QUEUES = 8
"""Each queue takes interrupts and memory of the guest and, with vhost, a thread of the host that the pod is charged
with; kubelet's and Kata's own number is 1."""
MOST_CPUS = 4096
MOST_MEMORY_MIB = 1 << 30


class Unlimited(Enum):
    """The limit of a pod in which a container has no CPU limit."""

    REQUEST = "request"
    """What it requests."""
    CPUS = "N"
    PERCENT = "N%"
    """Of what a pod may have at most."""
    ALL = "all"


@dataclass(frozen=True, slots=True)
class SizingSettings:
    """Sizes of VMs, given by the relay in RunPodSandbox (docs/sizing.md). `mode`: off; observe, which decides and says;
    enforce, which also sends. `unlimited`: CPUs of a pod that has containers without a CPU limit: request, N, N% or
    all. `keep_cpus`, `keep_memory_mib`: so much of the machine is kept back: what is added makes no VM larger than the
    rest. `handlers`: the runtime handlers whose pods are sized; empty for those that start VMs by the runtime's
    configuration. `queues`: VMs of runtime-rs also get as many queues of their network and block devices as they have
    vCPUs, up to MOST_QUEUES."""

    mode: Mode = Mode.OFF
    unlimited: str = Unlimited.REQUEST.value
    keep_cpus: int = 0
    keep_memory_mib: int = 0
    handlers: tuple[str, ...] = ()
    queues: bool = False


def unlimited(text: str) -> tuple[Unlimited, int] | None:
    """The rule, and its number where it has one; None for a text that is no rule."""
    if text in (Unlimited.REQUEST.value, Unlimited.ALL.value):
        return Unlimited(text), 0
    found = _CPUS.fullmatch(text)
    if found is None:
        return None
    kind, number = Unlimited.PERCENT if found[2] else Unlimited.CPUS, int(found[1])
    return (kind, number) if number <= (100 if found[2] else MOST_CPUS) else None


@dataclass(frozen=True, slots=True)
class SandboxesSettings:
    """VM sandboxes (Kata). `mode`: off; observe, which looks and says; enforce, which besides sets the limit of a pod
    where nobody has set it (a CRI runtime without kubelet), and moves no process. `period_ms`: how often they are read.
    `profiles`: by whose rules a runtime handler places processes, where that is not recognised: document, kata-go or
    kata-rs. `tight_percent`: less of the limit left than this is called tight. `samples`: so many are needed before an
    overhead is recommended."""

    mode: Mode = Mode.OFF
    period_ms: int = 2000
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    tight_percent: int = 5
    samples: int = 300
