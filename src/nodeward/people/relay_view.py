"""The picture of a relay: what it says of itself, with the rows of features that it decides."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from nodeward.core.conditions import HappenedRow
from nodeward.features.cpus.rows import CpusView
from nodeward.features.gate.rows import GateRow
from nodeward.features.limits.rows import CgroupRow
from nodeward.features.sandboxes.rows import SizingRow
from nodeward.neighbours.cri.rows import AddedRow, CallRow, ConfigRow, DoorRow, DriverRow, DumpRow, VmGuardRow


@dataclass(frozen=True, slots=True)
class RelayView:
    """One relay. It goes over `relay.sock`, so a field may be added and none may change its meaning."""

    version: str
    pid: int
    since_wall_ns: int
    doors: tuple[DoorRow, ...] = ()
    calls: tuple[CallRow, ...] = ()
    added: tuple[AddedRow, ...] = ()
    queues: Mapping[str, int] = field(default_factory=dict)
    """Bytes that wait: `held` for decisions, `copied` for those who watch, `dump` for the dump's writer."""
    limits: DriverRow = field(default_factory=DriverRow)
    dump: DumpRow | None = None
    rows: tuple[CgroupRow, ...] = ()
    """The containers whose limits it decides, without what only the kernel knows."""
    left_out: int = 0
    """Containers for which there was no room here."""
    cpus: CpusView | None = None
    """The CPUs, where it gives them to containers."""
    sizing: SizingRow = field(default_factory=SizingRow)
    """What it did with the sizes of VMs."""
    gate: GateRow = field(default_factory=GateRow)
    """What it did with the gates of pods."""
    guard: VmGuardRow = field(default_factory=VmGuardRow)
    config: ConfigRow = field(default_factory=ConfigRow)
    """The cluster's configuration."""
    settings_faults: tuple[str, ...] = ()
    """Why its own newer settings are not in force."""
    lately: tuple[HappenedRow, ...] = ()
    """What happened by its decisions."""
    counted: bool = True
    """Whether it counts calls: else `calls` and `added` are empty whatever passes."""

    def fewer(self) -> "RelayView":
        """The same with half of its containers."""
        kept = len(self.rows) // 2
        return replace(self, rows=self.rows[:kept], left_out=self.left_out + len(self.rows) - kept)
