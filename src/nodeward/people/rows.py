"""The picture of a node at one moment, as people, metrics and clients read it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeward.core.cgroup import Hierarchy
from nodeward.core.conditions import HappenedRow, Verdict
from nodeward.features.cpus.rows import CpusView
from nodeward.features.gate.rows import GateRow, GatesView
from nodeward.features.keys.rows import KeyRow
from nodeward.features.limits.rows import CgroupRow, LinesRow
from nodeward.features.sandboxes.rows import SandboxesView, SizingRow, VmGuardRow
from nodeward.people.relay_view import RelayView
from nodeward.settings.rows import SettingsRow


@dataclass(frozen=True, slots=True)
class ComponentRow:
    """One source the daemon listens to: whether it is synchronised, the last word on it, and since when that holds."""

    name: str
    ready: bool
    detail: str = ""
    since_wall_ns: int = 0
    """When it became ready, or ceased to be; 0 while it has never been heard of."""
    needed: bool = True
    """False where the daemon counts as ready without it."""


@dataclass(frozen=True, slots=True)
class DecidedRow:
    """How long decisions on one kind of event took. `at_most` has pairs: nanoseconds, and how many took no longer."""

    event: str
    count: int
    sum_ns: int
    at_most: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class NodeView:
    """The node. `capacity` and `usage` are the root's, by misc resource."""

    mode: str
    runtime: str
    api: str
    controller: bool
    capacity: Mapping[str, int]
    usage: Mapping[str, int]
    rows: tuple[CgroupRow, ...]
    seq: int = 0
    api_stale_since: str = ""
    """With `api` stale: since when what is known of pods may be out of date (RFC 3339)."""
    health: Mapping[str, int] = field(default_factory=dict)
    """The daemon's own counters, by name."""
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    """What the root's usage is beyond that of all known pods, 0 for nothing, by misc resource. A resource is missing
    while that cannot be told: until each pod has been read lately, and while one of the counters is below zero."""
    decided: tuple[DecidedRow, ...] = ()
    ready: bool = False
    """Synchronised with each source that is chosen and needed."""
    components: tuple[ComponentRow, ...] = ()
    settings: SettingsRow = field(default_factory=SettingsRow)
    keys: tuple[KeyRow, ...] = ()
    """TEE keys, one row a kind; empty while `keys.mode` is off."""
    tree: Hierarchy = field(default_factory=Hierarchy)
    """Where the misc controller is, and by which version of cgroups."""
    relay: RelayView | None = None
    """The relay of this node, where one answers."""
    relay_fault: str = ""
    """Why it does not answer, though its socket is there."""
    relay_missing: bool = False
    """No relay answers, though one should."""
    lines: LinesRow = field(default_factory=LinesRow)
    alone: str = ""
    """Why this is the relay's picture only; empty where it is the daemon's."""
    cpus: CpusView | None = None
    """The CPUs and who may use them; None while the machine is not known."""
    sandboxes: SandboxesView | None = None
    """VM sandboxes; None while `sandboxes.mode` is off."""
    gates: GatesView | None = None
    """Gates of pods; None while `gate.mode` is off."""
    sizing: SizingRow = field(default_factory=SizingRow)
    gate_calls: GateRow = field(default_factory=GateRow)
    vm_guard: VmGuardRow = field(default_factory=VmGuardRow)
    lately: tuple[HappenedRow, ...] = ()
    """What happened lately and may be over."""
    verdict: Verdict | None = None
    """What is wrong, of the whole node whatever rows are chosen, for those who read JSON or metrics."""
