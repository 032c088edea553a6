"""The picture of a relay: what it says of itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeward.core.conditions import HappenedRow
from nodeward.neighbours.cri.rows import AddedRow, CallRow, DaemonRow, DoorRow, DumpRow


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
    daemon: DaemonRow = field(default_factory=DaemonRow)
    dump: DumpRow | None = None
    settings_faults: tuple[str, ...] = ()
    """Why its own newer settings are not in force."""
    lately: tuple[HappenedRow, ...] = ()
    """What happened in it lately."""
    counted: bool = True
    """Whether it counts calls: else `calls` and `added` are empty whatever passes."""
