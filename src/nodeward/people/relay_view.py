"""The picture of a relay: what it says of itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeward.core.conditions import HappenedRow
from nodeward.core.shown import Histogram, Metric, known, shown
from nodeward.neighbours.cri.rows import AddedRow, CallRow, DaemonRow, DoorRow, DumpRow


@dataclass(frozen=True, slots=True)
class RelayView:
    """One relay. It goes over `relay.sock`, so a field may be added and none may change its meaning."""

    version: str = field(
        metadata=shown(Metric("nodeward_relay_info", "1 while a relay answers, with its version.", by="version"))
    )
    pid: int
    since_wall_ns: int
    doors: tuple[DoorRow, ...] = ()
    calls: tuple[CallRow, ...] = ()
    added: tuple[AddedRow, ...] = known(
        Histogram("nodeward_relay_added_duration_seconds", "How long calls waited in the relay."), default=()
    )
    queues: Mapping[str, int] = known(
        Metric("nodeward_relay_queue_bytes", "Bytes waiting: held, copied, or for the dump.", by="queue"),
        default_factory=dict,
    )
    daemon: DaemonRow = field(default_factory=DaemonRow)
    dump: DumpRow | None = None
    settings_faults: tuple[str, ...] = ()
    """Why its own newer settings are not in force."""
    lately: tuple[HappenedRow, ...] = ()
    """What happened in it lately."""
    counted: bool = True
    """Whether it counts calls: else `calls` and `added` are empty whatever passes."""
