"""The section `sizing` of the settings, and what is decided by it: which resources a VM is started with.

Exists so that the engine, the relay and the settings share these words. Thousandths of a CPU and bytes are integers.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from nodeward.features.limits.settings import Mode

MOST_CPUS = 4096
MOST_MEMORY_MIB = 1 << 30
_CPUS = re.compile(r"([1-9][0-9]{0,3})(%?)")


class Unlimited(Enum):
    """What a pod gets whose containers have no CPU limit."""

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


MOST_QUEUES = 8
"""Each queue takes interrupts and memory of the guest and, with vhost, a thread of the host that the pod is charged
with; kubelet's and Kata's own number is 1."""


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
class Allocatable:
    """What the Node object says that pods may have (`status.allocatable`): thousandths of a CPU, and bytes. None where
    that is unknown."""

    cpu_m: int | None = None
    memory: int | None = None


NOT_TOLD = Allocatable()


@dataclass(frozen=True, slots=True)
class Room:
    """What a VM may have of this machine at most, and which source says so. None where no source is known."""

    cpu_m: int | None = None
    memory: int | None = None
    cpu_by: str = ""
    memory_by: str = ""


class Way(Enum):
    """By what a runtime handler learns the size of a VM that the relay decides."""

    RESOURCES = "resources"
    """`linux.resources` of RunPodSandbox, of which containerd makes the annotations that Kata reads."""
    KEYS = "the annotations io.kubernetes.cri.sandbox-*"
    """These annotations, written by the relay: where no containerd makes them, and Kata reads them."""
    DEFAULTS = "the annotations default_vcpus and default_memory"
    """Kata's defaults, overridden for this pod."""
    NONE = "nothing"


@dataclass(frozen=True, slots=True)
class Sized:
    """The resources of a pod as they are to be sent to the runtime (CRI's `linux.resources`), each with a sentence why.
    0 where nothing is said."""

    cpu_period: int = 0
    cpu_quota: int = 0
    memory_limit: int = 0
    cpu_why: str = ""
    memory_why: str = ""
    changes: bool = False
    """Whether this is other than what kubelet sent."""
    way: Way = Way.RESOURCES
    """Resources are sent with RESOURCES only."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """What is to be sent beside, or instead."""


@dataclass(frozen=True, slots=True)
class SizingRow:
    """What the relay did with the sizes of VMs."""

    mode: str = Mode.OFF.value
    counts: Mapping[str, int] = field(default_factory=dict)
    """RunPodSandbox calls by what became of them: `sized`, `kept` (nothing to add), `others` (no VM), `undecided`."""
    last: str = ""
    """The last decision about a VM, in a line."""
