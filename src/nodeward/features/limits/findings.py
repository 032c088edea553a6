"""What doctor reads of cgroups."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from nodeward.core.cgroup import Hierarchy


class Layout(Enum):
    """How cgroups are mounted."""

    UNKNOWN = ""
    NONE = "none"
    V1 = "v1"
    HYBRID = "hybrid"
    V2 = "v2"


@dataclass(frozen=True, slots=True)
class CgroupFacts:
    """The cgroup tree at `root`. `controllers` are its own, `handed_down` those it gives its children."""

    root: str = ""
    layout: Layout = Layout.UNKNOWN
    v2_at: str = ""
    """Where a cgroup2 tree is mounted, if not at `root`."""
    tree: Hierarchy = field(default_factory=Hierarchy)
    """Where the daemon would find the misc controller."""
    read_only: bool = False
    is_real_root: bool = True
    """False where `root` is a cgroup below the host's own root (a private cgroup namespace)."""
    controllers: tuple[str, ...] | None = None
    handed_down: tuple[str, ...] | None = None
    kubepods: str = ""
    """The cgroup of all pods, as the cgroup driver names it; empty for none."""
    kubepods_controllers: tuple[str, ...] | None = None
    capacity: Mapping[str, int] | None = None
    """`misc.capacity` of the root."""
