"""Where in the machine the things lie that a container uses: its devices, its mounts, what kubelet has given it.

An edge finds that out before it asks for a decision. No path and no name of a device enters an event.
"""

from dataclasses import dataclass
from enum import Enum

from nodeward.core.cpuset import CpuSet

MOST_HINTS = 64
"""Of one container."""


class HintKind(Enum):
    """What lies there."""

    MOUNT = "mount"
    DEVICE = "device"
    POD_RESOURCE = "pod-resource"
    """A device of a device plugin or of a DRA claim, as kubelet's PodResources tells it."""


@dataclass(frozen=True, slots=True)
class Hint:
    """Something that a container uses is near these CPUs, or near these memory nodes (as bits). One of the two."""

    kind: HintKind
    cpus: CpuSet = 0
    nodes: CpuSet = 0
    resource: str = ""
    """The extended resource, or NAMESPACE/NAME of the claim, of a POD_RESOURCE."""


@dataclass(frozen=True, slots=True)
class Hints:
    """All of a container. `faults`: what could not be read, in sentences; it counts as nothing."""

    found: tuple[Hint, ...] = ()
    faults: tuple[str, ...] = ()


NO_HINTS = Hints()


@dataclass(frozen=True, slots=True)
class Used:
    """A device or a mount that a container may write to, as a runtime or its client tells it. It stays at the edge."""

    kind: HintKind
    path: str
    """On the host; empty where a device is told by its number only."""
    inside: str = ""
    """In the container."""
    number: tuple[int, int] | None = None
    """A device's major and minor number."""
    is_block: bool = False
