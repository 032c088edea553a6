"""Rows of TEE keys, as people and programs read them."""

from collections.abc import Mapping
from dataclasses import dataclass, field


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
    """Keys that are charged outside of all known pods. `about` says whose the cgroup seems to be, `holder` says it in
    one word that stays: orphan, root, kata, unknown-pod, machine, service, other. Of an orphan `for_ms` is for how long
    there has been one below the cgroup, and `leaked` how many have been there for a quarter of an hour; None and 0
    else."""

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
    """The longest time from foreign use until kubelet knew of fewer ids, as a histogram. `at_most` has pairs:
    nanoseconds, and how often it took no longer."""

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
