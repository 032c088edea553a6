"""Rows of TEE keys, as people and programs read them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeward.core.devices import PluginStanding
from nodeward.core.shown import Histogram, Info, Label, Metric, Total, counter, gauge, known, shown, shows
from nodeward.features.keys.terms import REFUSALS, ClaimState, KeyState

_SHARE = Info("nodeward_keys_share_info", "1, with how NFD's number is shared.")
_NFD = Metric("nodeward_keys_nfd", "NFD's number: as wanted, and as in Nodeward's object (ours).")


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
    amount: int = field(
        metadata=shown(
            Metric("nodeward_keys_elsewhere", "Foreign keys whose cgroup was found, by the kind of holder.", adds=True)
        )
    )
    holder: str = field(metadata=shown(Label("class")))
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

    mode: str = field(metadata=shown(_SHARE))
    chosen: str
    published: str = ""
    sellable: int | None = None
    asked: int = 0
    total: int | None = known(_NFD.at(kind="wanted"))
    written: int | None = known(_NFD.at(kind="ours"))
    on_node: Mapping[str, int] = field(default_factory=dict)
    nfd: str = known(_SHARE, default="unknown")
    nfd_fault: str = ""
    error: str = ""
    attestation: str = "off"
    quotes: str = ""
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class KeyIdRow:
    """An id that we offer to kubelet: free, withheld, granted, charged or draining, for how long, and whose it is."""

    id: str
    state: str = field(
        metadata=shown(
            Metric("nodeward_keys_ids", "Ids offered to kubelet, by state.", by="state", every=KeyState, adds=True)
        )
    )
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

    withheld: str = gauge(
        "nodeward_keys_withheld", "1 while no id is offered, for this reason.", by="reason", default=""
    )
    standing: str = gauge(
        "nodeward_keys_plugin_state",
        "1 for the state of the device plugin, 0 for the others.",
        by="state",
        every=PluginStanding,
        default="",
    )
    kubelet_restarts: int = counter(
        "nodeward_keys_kubelet_restarts_total", "How often kubelet's socket was replaced.", default=0
    )
    quotes: bool | None = gauge(
        "nodeward_keys_quotes_answer", "1 while the quote service answers, else 0. Absent if not asked."
    )
    journal_fault: str = gauge(
        "nodeward_keys_journal_fault",
        "1 while grants cannot be recorded, so none is given, else 0.",
        of=bool,
        default="",
    )
    journal_lost: str = gauge(
        "nodeward_keys_journal_lost", "1 while ids are out whose journal was removed, else 0.", of=bool, default=""
    )
    delays: KeyDelays = known(
        Histogram(
            "nodeward_keys_withholding_duration_seconds",
            "From the last sample without new foreign use until kubelet was told of fewer healthy ids.",
        ),
        default_factory=KeyDelays,
    )


@dataclass(frozen=True, slots=True)
class KeyClaim:
    """A ResourceClaim that has keys of a kind, or whose pod waits for them (`why`). `front` is how the pod asked: by a
    claim of its own, or by an extended resource, for which the scheduler has made one."""

    claim: str
    uid: str
    state: str = field(
        metadata=shown(
            Metric("nodeward_keys_claims", "Claims of such keys, by state.", by="state", every=ClaimState, adds=True)
        )
    )
    amount: int
    pods: tuple[str, ...] = ()
    front: str = "claim"
    since_wall_ns: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class KeyClaims:
    """What of a kind goes by claim, where the settings want that. `room` is how many keys more the scheduler may give
    to claims; `published` the capacity of the device; `registered` is None where it is only shown what would be
    published; `fault` says why it cannot be published, `withheld` why no claim may have a key now."""

    room: int = gauge("nodeward_keys_claim_room", "Keys that may still be given to claims.")
    published: int = 0
    driver: str = ""
    registered: bool | None = gauge(
        "nodeward_keys_driver_registered", "1 while kubelet has our driver, else 0. Absent in `observe`."
    )
    fault: str = gauge(
        "nodeward_keys_claims_fault", "1 while keys cannot be published to claims, else 0.", of=bool, default=""
    )
    withheld: str = ""
    rows: tuple[KeyClaim, ...] = ()
    front: str = "settings"
    """By which way a person has chosen that keys go: dra, plugin, or as the settings share them."""
    waits: tuple[str, ...] = known(
        Metric("nodeward_keys_move_waits", "Things that a move of keys to another front waits for.", of=len), default=()
    )


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One kind of TEE key on this node. `used` and what follows it are None until the kernel tells."""

    key: str = field(metadata=shown(Label()))
    resources: tuple[str, ...]
    capacity: int = field(
        metadata=shown(Metric("nodeward_keys_capacity", "Keys that the node has. Absent for none.", absent=0))
    )
    reserve: int = field(metadata=shown(Metric("nodeward_keys_reserve", "Keys that the settings keep back.")))
    used: int | None = gauge("nodeward_keys_used", "Keys in use on the node.")
    entitled: int | None = gauge("nodeward_keys_entitled", "Keys promised to pods, taken or not.")
    charged: int | None = gauge("nodeward_keys_charged", "Keys that known pods hold.")
    foreign: int | None = gauge("nodeward_keys_foreign", "Keys in use that no known pod holds.")
    free: int | None = gauge("nodeward_keys_free", "Keys neither held, promised, foreign nor kept back.")
    blind: bool = gauge(
        "nodeward_keys_blind",
        "1 while a counter below zero hides which pod holds keys, else 0.",
        given="used",
        default=False,
    )
    """A pod's counter went below zero: use cannot be told apart by pod."""
    wrapped: bool = gauge(
        "nodeward_keys_wrapped", "1 while the node's counter is below zero, else 0.", given="used", default=False
    )
    age_ms: int | None = gauge("nodeward_keys_sample_age_seconds", "Time since the counters were last read.", per=1e3)
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
    claims: KeyClaims | None = None
    orphan_ms: int | None = gauge(
        "nodeward_keys_orphan_age_seconds", "How long a removed cgroup has held a key. Absent for none.", per=1e3
    )
    leaked: int = gauge(
        "nodeward_keys_leaked", "Keys held by removed cgroups for at least 15 minutes.", given="used", default=0
    )

    @property
    @shows(Total("nodeward_keys_refusals_total", "Requests of kubelet that were refused, by reason.", by="reason"))
    def refused(self) -> Mapping[str, int] | None:
        """Every reason, 0 for one that never was: a counter that begins at its first refusal would hide that one."""
        return None if self.offer is None and not self.refusals else dict.fromkeys(REFUSALS, 0) | dict(self.refusals)

    @property
    def is_here(self) -> bool:
        """The node has such keys, or offers some since it had them."""
        return bool(self.capacity or self.ids)
