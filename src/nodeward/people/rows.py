"""The picture of a node at one moment, as people, metrics and clients read it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from nodeward import __version__
from nodeward.core.cgroup import Hierarchy
from nodeward.core.conditions import HappenedRow, Verdict
from nodeward.core.modes import Mode
from nodeward.core.shown import Histogram, Info, Label, Metric, Named, Rows, Total, counter, gauge, known, shown, shows
from nodeward.features.cpus.rows import CpusView
from nodeward.features.gate.rows import GateRow, GatesView
from nodeward.features.keys.rows import KeyRow
from nodeward.features.limits.rows import UNDERFLOW, USAGE, CgroupRow, EnclavesView, LinesRow
from nodeward.features.sandboxes.rows import SandboxesView, SizingRow, VmGuardRow
from nodeward.people.relay_view import RelayView
from nodeward.settings.rows import SettingsRow

_UNITS = {"sgx_epc": "bytes", "sev": "asids", "sev_es": "asids", "tdx": "keys"}
_TREE = Info("nodeward_misc_hierarchy_info", "1, with the cgroup version and the place of the misc controller.")
_MOST_CGROUPS = 5000
HEALTH: Mapping[str, Metric] = {
    "goals": Metric("nodeward_reconcile_goals", "Values in the kernel that the daemon holds."),
    "goals_unreached": Metric("nodeward_reconcile_goals_unreached", "Those not as wanted yet."),
    "goals_quarantined": Metric("nodeward_reconcile_goals_quarantined", "Those whose file call hangs in the kernel."),
    "sample_age_ms": Metric(
        "nodeward_sample_age_seconds", "Time since the kernel's files were last read. Absent before that.", per=1e3
    ),
    "watch_age_ms": Metric(
        "nodeward_watch_age_seconds", "Time since the API server last sent anything about pods.", per=1e3
    ),
    "loop_lag_max_us": Metric(
        "nodeward_loop_lag_max_seconds", "Greatest delay of the event loop in the last minute.", per=1e6
    ),
    "loop_lag_p99_us": Metric("nodeward_loop_lag_p99_seconds", "99th percentile of that delay.", per=1e6),
    "loop_stalls": Total("nodeward_loop_stalls_total", "Delays of the event loop above 0.25 seconds."),
    "component_restarts": Total(
        "nodeward_component_restarts_total", "How often a part of the daemon failed and was restarted."
    ),
    "lanes_stuck": Total("nodeward_lane_jobs_stuck_total", "Batches of file calls that did not return in time."),
    "lane_{lane}_waiting": Metric("nodeward_lane_waiting_jobs", "Batches of file calls waiting for a thread."),
    "lane_{lane}_age_ms": Metric("nodeward_lane_age_seconds", "Time since the oldest batch was queued.", per=1e3),
    "lane_{lane}_hung": Metric("nodeward_lane_hung_threads", "Threads that hang in a file call."),
    "not_restorable": Metric("nodeward_not_restorable", "Changes that `nodeward uninstall` could not undo."),
    "state_unread": Metric("nodeward_state_unread", "1 if the undo list could not be read at the start, else 0."),
    "files_unwritten": Metric("nodeward_files_unwritten", "Own files of which the last write failed."),
    "record_dropped": Total("nodeward_record_dropped_total", "Events missing in the record."),
    "feature_faults": Total("nodeward_feature_faults_total", "Decisions that failed by a fault of Nodeward."),
    "asks_{outcome}": Total("nodeward_asks_total", "Questions of the runtime, by answer."),
    "kube_events_{outcome}": Total("nodeward_kube_events_total", "Kubernetes Events on pods and the node, by outcome."),
    "notices_left_out": Total("nodeward_kube_events_left_out_total", "Events left out because there were too many."),
    "gate_calls_{outcome}": Total("nodeward_gate_relayed_total", "Starts of gated pods at the relay, by outcome."),
    "relay_unread": Total("nodeward_relay_unread_total", "Messages passing the relay that could not be read."),
}
"""The daemon's own counters."""


def _of_node(one: Metric, of: Callable[[Mapping[str, int]], Mapping[str, int]]) -> Metric:
    """A metric of cgroups, of the root."""
    return replace(one.at(level="node", namespace="", pod="", container=""), by="resource", of=of)


def _at_least_none(values: Mapping[str, int]) -> Mapping[str, int]:
    return {name: value for name, value in values.items() if value >= 0}


def _below_zero(values: Mapping[str, int]) -> Mapping[str, int]:
    return {name: 1 for name, value in values.items() if value < 0}


@dataclass(frozen=True, slots=True)
class ComponentRow:
    """One source the daemon listens to: whether it is synchronised, the last word on it, and since when that holds."""

    name: str = field(metadata=shown(Label("component")))
    ready: bool = field(
        metadata=shown(Metric("nodeward_component_ready", "1 while this source is synchronised, else 0."))
    )
    detail: str = ""
    since_wall_ns: int = gauge(
        "nodeward_component_since_timestamp_seconds",
        "When that began. Absent before the first word.",
        per=1e9,
        absent=0,
        default=0,
    )
    """When it became ready, or ceased to be; 0 while it has never been heard of."""
    needed: bool = True
    """False where the daemon counts as ready without it."""


@dataclass(frozen=True, slots=True)
class DecidedRow:
    """How long decisions on one kind of event took. `at_most` has pairs: nanoseconds, and how many took no longer."""

    event: str = field(metadata=shown(Label()))
    count: int
    sum_ns: int
    at_most: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class UnitRow:
    """The unit of a misc resource."""

    resource: str = field(metadata=shown(Label()))
    unit: str = gauge("nodeward_misc_resource_info", "1, with the unit of the resource.", by="unit", default="")


@dataclass(frozen=True, slots=True)
class TreeRow:
    """Where the misc controller is."""

    version: int = field(metadata=shown(_TREE))
    root: str = field(metadata=shown(_TREE))


@dataclass(frozen=True, slots=True)
class NodeView:
    """The node. `capacity` and `usage` are the root's, by misc resource."""

    mode: str = field(
        metadata=shown(
            Metric("nodeward_limits_mode", "1 for the mode in force, 0 for the others.", by="mode", every=Mode)
        )
    )
    runtime: str
    api: str
    controller: bool = field(
        metadata=shown(Metric("nodeward_misc_controller", "1 if the kernel has the misc controller, else 0."))
    )
    capacity: Mapping[str, int] = field(
        metadata=shown(Metric("nodeward_misc_capacity", "What the node has.", by="resource"))
    )
    usage: Mapping[str, int] = field(
        metadata=shown(_of_node(USAGE, of=_at_least_none), _of_node(UNDERFLOW, of=_below_zero))
    )
    rows: tuple[CgroupRow, ...] = field(
        metadata=shown(
            Rows(
                _MOST_CGROUPS,
                Metric("nodeward_metrics_cgroups_left_out", "Cgroups not shown, beyond the most."),
                once=True,
                prefers=lambda row: row.was_read,
            )
        )
    )
    seq: int = counter("nodeward_events_total", "Events decided on.", default=0)
    api_stale_since: str = ""
    """With `api` stale: since when what is known of pods may be out of date (RFC 3339)."""
    health: Mapping[str, int] = known(Named(HEALTH), default_factory=dict)
    elsewhere: Mapping[str, int] = known(
        Metric("nodeward_misc_orphaned", "Charged on the node, but to no known pod.", by="resource"),
        default_factory=dict,
    )
    """What the root's usage is beyond that of all known pods, 0 for nothing, by misc resource. A resource is missing
    while that cannot be told: until each pod has been read lately, and while one of the counters is below zero."""
    promised: Mapping[str, int] = known(
        Metric("nodeward_misc_promised", "What pods may take: their budgets, or their keys.", by="resource"),
        default_factory=dict,
    )
    """What pods may take, by misc resource: their keys, or their budgets."""
    free: Mapping[str, int] = known(
        Metric("nodeward_misc_free", "What can be promised to others. Absent while unknown.", by="resource"),
        default_factory=dict,
    )
    """What can be promised to others. A resource is missing while that is not known."""
    decided: tuple[DecidedRow, ...] = known(
        Histogram("nodeward_decide_duration_seconds", "Duration of decisions, by event."), default=()
    )
    ready: bool = gauge("nodeward_ready", "1 while every needed source is synchronised, else 0.", default=False)
    components: tuple[ComponentRow, ...] = ()
    settings: SettingsRow = field(default_factory=SettingsRow)
    keys: tuple[KeyRow, ...] = known(Rows(1024, where=lambda row: row.is_here), default=())
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
    node: str = ""
    """The node's name in the API server; empty where it is not known."""
    version: str = gauge("nodeward_build_info", "1, with the daemon's version.", by="version", default=__version__)
    """Of the daemon."""
    waiting: str = ""
    """Another `nodeward node --wait` on this node, which waits for the end of this one; empty for none."""
    alone: str = ""
    """Why this is the relay's picture only; empty where it is the daemon's."""
    cpus: CpusView | None = None
    """The CPUs and who may use them; None while the machine is not known."""
    sandboxes: SandboxesView | None = None
    """VM sandboxes; None while `sandboxes.mode` is off."""
    enclaves: EnclavesView | None = None
    """SGX devices, and enclave memory by claim; None where neither is asked for."""
    gates: GatesView | None = None
    """Gates of pods; None while `gate.mode` is off."""
    sizing: SizingRow = field(default_factory=SizingRow)
    gate_calls: GateRow = field(default_factory=GateRow)
    vm_guard: VmGuardRow = field(default_factory=VmGuardRow)
    lately: tuple[HappenedRow, ...] = ()
    """What happened lately and may be over."""
    verdict: Verdict | None = None
    """What is wrong, of the whole node whatever rows are chosen, for those who read JSON or metrics."""

    @property
    @shows(Metric("nodeward_reconcile_repairs", "Limits repaired in the last five minutes."))
    def repairs(self) -> int:
        """Of all cgroups."""
        return sum(row.repairs for row in self.rows)

    @property
    @shows(Metric("nodeward_relay_up", "1 while a relay answers, 0 while it is missing. Absent if none is expected."))
    def relay_up(self) -> bool | None:
        """None where none is expected."""
        return self.relay is not None if self.relay is not None or self.relay_missing else None

    @property
    @shows(Rows(most=1024))
    def units(self) -> tuple[UnitRow, ...]:
        """Of the node's misc resources, where they are known."""
        return tuple(UnitRow(name, _UNITS[name]) for name in self.capacity if name in _UNITS)

    @property
    @shows(Rows(1))
    def place(self) -> TreeRow | None:
        """None without the controller."""
        return TreeRow(self.tree.version, self.tree.root) if self.controller else None
