"""What people and metrics are shown: a flat picture of the node at one moment."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from nodeward.core.cgroup import Hierarchy
from nodeward.core.conditions import Verdict as Verdict
from nodeward.features.cpus.rows import CpusView as CpusView
from nodeward.features.sandboxes.rows import SandboxesView as SandboxesView
from nodeward.neighbours.cri.rows import AddedRow as AddedRow
from nodeward.neighbours.cri.rows import CallRow as CallRow
from nodeward.neighbours.cri.rows import CgroupRow as CgroupRow
from nodeward.neighbours.cri.rows import DoorRow as DoorRow
from nodeward.neighbours.cri.rows import DriverRow as DriverRow
from nodeward.neighbours.cri.rows import DumpRow as DumpRow
from nodeward.neighbours.cri.rows import HappenedRow as HappenedRow
from nodeward.neighbours.cri.rows import LinesRow as LinesRow
from nodeward.neighbours.cri.rows import RelayView as RelayView
from nodeward.neighbours.cri.rows import ResourceRow as ResourceRow
from nodeward.neighbours.cri.rows import at_most as at_most

SHORT_ID = 13
"""So many characters of a container's id are shown, as `crictl ps` does; enough for `nodeward explain`."""


T = TypeVar("T")


class Pace(Protocol):
    """How a long picture is drawn: takes the items that are gone through, and how many of them make some tenths of a
    millisecond's work, and may pause between."""

    def __call__(self, items: Iterable[T], each: int, /) -> Iterable[T]:
        """The same items."""


def at_once(items: Iterable[T], _: int, /) -> Iterable[T]:
    """Without a pause."""
    return items


def pod_name(row: CgroupRow) -> str:
    """NAMESPACE/POD; the UID alone of a pod of which only cgroups are known."""
    return f"{row.namespace}/{row.pod}" if row.namespace else row.pod


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
class SettingsRow:
    """Which settings hold, and what became of newer ones."""

    source: str = ""
    accepted_wall_ns: int = 0
    faults: tuple[str, ...] = ()
    """Why newer settings were refused; empty once they are accepted."""
    need_restart: tuple[str, ...] = ()
    """Settings that were accepted and only hold after a restart."""
    policy_object: str = ""
    """The BalloonsPolicy object that the policy is by; empty: the settings have it."""
    policy_object_faults: tuple[str, ...] = ()
    """Why the object that means this node is not in force."""


@dataclass(frozen=True, slots=True)
class GatedRow:
    """A pod whose start has asked at its gate. `verdict`: PENDING, PASSED, EXPIRED or DENIED; `why` the gate is shut,
    empty where it is open."""

    namespace: str
    pod: str
    uid: str
    verdict: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class GatesView:
    """The gates. `refused`: creates that were refused, in mode observe those that would have been. `fault`: why earlier
    verdicts are not known."""

    mode: str
    rows: tuple[GatedRow, ...] = ()
    refused: int = 0
    fault: str = ""


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """A pod that holds TEE keys or was promised some. `charged` is None where no counter of it could be
    read, as before it has started. `ids` are those that kubelet gave it; `gone`: it has ended, and kubelet, which still
    has them for it, takes them back before it gives out the next."""

    namespace: str
    pod: str
    uid: str
    entitled: int
    charged: int | None
    ids: tuple[str, ...] = ()
    gone: bool = False


@dataclass(frozen=True, slots=True)
class KeyElsewhere:
    """Keys that are charged to no known pod. `about` says whose the cgroup seems to be, `holder` says it in one word
    that stays: orphan, root, kata, unknown-pod, machine, service, other. Of an orphan `for_ms` is for how long there
    has been one below the cgroup, and `leaked` how many have been there for a quarter of an hour; None and 0 else."""

    cgroup: str
    about: str
    amount: int
    holder: str
    for_ms: int | None = None
    leaked: int = 0


@dataclass(frozen=True, slots=True)
class KeyFence:
    """What `misc.max` of a cgroup would be."""

    cgroup: str
    limit: int
    why: str


@dataclass(frozen=True, slots=True)
class KeyFences:
    """Limits that would hold everybody to what he was promised. They are shown and never written."""

    rows: tuple[KeyFence, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class KeySharing:
    """How a kind is shared with those who go by NFD's number. `mode` is the one in force, `chosen` the setting.

    `published` is the resource that our plugin offers, empty for none, and `sellable` how many keys more it may sell.
    `asked` is what pods of this node ask by NFD's number, `total` what that number is to be, None where it is left
    alone; `written` is what our object says, and `on_node` what the node has by NFD's names. `nfd` is unknown,
    absent, served or working; `error` why our object could not be written. `quotes` is empty where nobody asks."""

    mode: str
    chosen: str
    published: str = ""
    sellable: int | None = None
    asked: int = 0
    total: int | None = None
    written: int | None = None
    on_node: Mapping[str, int] = field(default_factory=dict)
    nfd: str = "unknown"
    nfd_fault: str = ""
    error: str = ""
    attestation: str = "off"
    quotes: str = ""
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class KeyIdRow:
    """An id that we offer to kubelet: free, withheld, granted, charged or draining, for how long, and whose it is."""

    id: str
    state: str
    for_ms: int
    pods: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeyDelays:
    """How long foreign use was there at most before kubelet was told of fewer ids. `at_most` has pairs: nanoseconds,
    and how often it took no longer."""

    count: int = 0
    sum_ns: int = 0
    at_most: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class KeyOffer:
    """What kubelet is offered of a kind, where we offer it.

    `withheld` is the code of why nothing is offered at all, empty for no such reason. `standing` is our plugin's, empty
    before its first word. `quotes` is None where nobody asks the service, else whether it answers. `journal_lost` says
    what the loss of the journal of grants means now, empty where there was none or it means nothing any more."""

    withheld: str = ""
    standing: str = ""
    kubelet_restarts: int = 0
    quotes: bool | None = None
    journal_fault: str = ""
    journal_lost: str = ""
    delays: KeyDelays = field(default_factory=KeyDelays)


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One kind of TEE key on this node. `used` and what follows it are None until the kernel tells."""

    key: str
    resources: tuple[str, ...]
    capacity: int
    reserve: int
    used: int | None = None
    entitled: int | None = None
    charged: int | None = None
    foreign: int | None = None
    free: int | None = None
    blind: bool = False
    """A pod's counter went below zero: use cannot be told apart by pod."""
    wrapped: bool = False
    """The node's counter went below zero."""
    age_ms: int | None = None
    """How old the sample is."""
    sentence: str = ""
    """How `free` comes about."""
    holders: tuple[KeyHolder, ...] = ()
    elsewhere: tuple[KeyElsewhere, ...] = ()
    registered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The healthy ids that a device plugin has registered with kubelet, by resource."""
    findings: tuple[str, ...] = ()
    """What an operator should know of what kubelet has handed out, in sentences."""
    ids: tuple[KeyIdRow, ...] = ()
    """Every id that we offer; none where somebody else publishes the keys."""
    published: int | None = None
    """How many more ids kubelet may give out; None where we offer none."""
    plugin: str = ""
    """How it stands with our device plugin, and why; empty where it has not told."""
    refusals: Mapping[str, int] = field(default_factory=dict)
    """How often kubelet was refused since the daemon began, by the reason's code."""
    sharing: KeySharing | None = None
    fences: KeyFences = field(default_factory=KeyFences)
    offer: KeyOffer | None = None
    orphan_ms: int | None = None
    """So long some cgroup that was removed has held a key; None where none does."""
    leaked: int = 0
    """How many keys removed cgroups have held for so long that nobody will give them back."""


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
    """TEE keys, one row a kind; empty while `ledger.mode` is off."""
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
    lately: tuple[HappenedRow, ...] = ()
    """What happened lately and may be over."""
    verdict: Verdict | None = None
    """What is wrong, of the whole node whatever rows are chosen, for those who read JSON or metrics."""
