"""The section `sizing` of the settings, and what is decided by it: which resources a VM is started with.

Exists so that the engine, the relay and the settings share these words. Thousandths of a CPU and bytes are integers.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeward.core.modes import Mode

_CPUS = re.compile(r"([1-9][0-9]{0,3})(%?)")


MOST_QUEUES = 8
"""Each queue takes interrupts and memory of the guest and, with vhost, a thread of the host that the pod is charged
with; kubelet's and Kata's own number is 1."""


@dataclass(frozen=True, slots=True)
class SizingRow:
    """What the relay did with the sizes of VMs."""

    mode: str = Mode.OFF.value
    counts: Mapping[str, int] = field(default_factory=dict)
    """RunPodSandbox calls by what became of them: `sized`, `kept` (nothing to add), `others` (no VM), `undecided`."""
    last: str = ""
    """The last decision about a VM, in a line."""
