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
    """The sizes of VMs, which the relay sends in RunPodSandbox (docs/sizing.md)."""

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
    """VM sandboxes (Kata): how they are read, judged and limited. No process is moved."""

    mode: Mode = Mode.OFF
    period_ms: int = 2000
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    tight_percent: int = 5
    samples: int = 300
