"""The state of VM sandboxes: what was read last, and what was found."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeward.core.vms import CgroupDriver, Handler, Need, Profile, VmReading
from nodeward.core.workload import SandboxId
from nodeward.features.sandboxes.values import Drift, Expected, Headroom, Measured, ModeSaid, Usage, VmSize


@dataclass(frozen=True, slots=True)
class Killed:
    """The kernel's OOM killer has ended processes of a sandbox: `count` at once, at `wall_ns`, 0 where that was before
    its first reading. `limit` is the lowest memory limit that held its VMM, at the cgroup `path`; None where none of
    its own did, or that was not seen."""

    wall_ns: int
    count: int
    limit: int | None = None
    path: str = ""


@dataclass(frozen=True, slots=True)
class Vm:
    """One sandbox. What is None is not known."""

    reading: VmReading
    profile: Profile | None = None
    mode: ModeSaid | None = None
    expected: Expected | None = None
    drifts: tuple[Drift, ...] = ()
    size: VmSize | None = None
    headroom: Headroom | None = None
    usage: Usage | None = None
    since_ns: Mapping[str, int] = field(default_factory=dict)
    """By role (`core.vms.TaskRole`'s value) and by drift's code: since when it is where it is. Without
    what was there before its first reading."""
    limits: tuple[int | None, int | None] = (None, None)
    """The pod's limit as it should be: memory in bytes, CPU in thousandths; None where not every container has one."""
    killed: Killed | None = None
    """The last kill."""
    beside: tuple[Need, ...] = ()
    """The other VMs in its pod's cgroup."""


@dataclass(frozen=True, slots=True)
class Limited:
    """What we have wanted of the limits of a sandbox's cgroup, in this daemon's life."""

    path: str
    memory: tuple[int, ...] = ()
    """Bytes, at most three: the newest limit last, the one before it, and an older one that the kernel still has."""
    cpu: tuple[int, ...] = ()
    """The same in thousandths of a CPU."""


@dataclass(frozen=True, slots=True)
class Sandboxes:
    """Slice of the feature `sandboxes`."""

    handlers: Mapping[str, Handler] = field(default_factory=dict)
    vms: Mapping[SandboxId, Vm] = field(default_factory=dict)
    measured: Mapping[str, Measured] = field(default_factory=dict)
    """By RuntimeClass, else by handler."""
    version: int = 0
    """Of cgroups, by the last reading; 0 before the first."""
    driver: CgroupDriver | None = None
    misses: Mapping[str, str] = field(default_factory=dict)
    """By cgroup path, why the last write of a pod's limit failed, until one succeeds."""
    limited: Mapping[SandboxId, Limited] = field(default_factory=dict)
    """Those that `enforce` has wanted a limit of."""
    written: Mapping[str, int] = field(default_factory=dict)
    """By cgroup path, how often a pod's limit was set by us."""
