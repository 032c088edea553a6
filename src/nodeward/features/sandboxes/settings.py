"""The settings of `sandboxes`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from nodeward.core.modes import Mode
from nodeward.core.setting import setting, table
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
    """The sizes of VMs, which the relay sends in RunPodSandbox (docs/sandboxes.md)."""

    mode: Mode = setting(
        Mode.OFF,
        "VMs sized by requests, through the relay: `observe`: decide and say; `enforce`: also send; `off`: neither.",
    )
    unlimited: str = setting(
        Unlimited.REQUEST.value,
        'CPUs of a pod with containers without CPU limit: `request`, `"4"` in quotes, `50%` of what a VM may have, or '
        "`all`. Never fewer than requested.",
    )
    keep_cpus: int = setting(
        0, "CPUs that no VM is enlarged into. The node's allocatable CPUs bound it too.", 0, MOST_CPUS
    )
    keep_memory_mib: int = setting(0, "The same of memory, in MiB.", 0, MOST_MEMORY_MIB)
    handlers: tuple[str, ...] = setting((), "The handlers whose pods are sized. Empty: those that start VMs.")
    queues: bool = setting(
        False,
        "`true`: VMs of runtime-rs get a network and a block queue per vCPU, up to 8, if Kata's configuration allows "
        "it.",
    )


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

    mode: Mode = setting(
        Mode.OFF,
        "VM sandboxes: `observe`: show place, cost and fit; `enforce`: also set a pod's limit where nobody has (a "
        "runtime without kubelet); `off`: neither.",
    )
    period_ms: int = setting(2000, "How often they are read.", 200, 60_000, "milliseconds")
    profiles: Mapping[str, Profile] = table(
        dict, "The placement rules of a handler that is not recognised: `HANDLER: document`, `kata-go` or `kata-rs`."
    )
    tight_percent: int = setting(
        5, "A pod is `tight` if less of its memory limit is left for its VM.", 0, 50, "per cent"
    )
    samples: int = setting(300, "Samples of a RuntimeClass before an overhead is recommended.", 10, 100_000)
