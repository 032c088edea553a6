"""The state of TEE keys: what was read, offered, granted and held."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeward.core.claims import Claim, ClaimUid, Front, Promised
from nodeward.core.events import DriverTold, KeysHeld, KeysRead, NfdSeen, PluginTold, PodsOfKubelet, QuotesTold
from nodeward.core.workload import PodUid
from nodeward.features.keys.terms import KeyState


@dataclass(frozen=True, slots=True)
class Grant:
    """An id that kubelet was given: when last (time, sequence number), and for how many pods as far as is known."""

    at_ns: int
    seq: int
    """0 where nobody asked for it since the machine's boot, as far as is on record: only kubelet tells of it."""
    times: int = 1
    """More than 1 where kubelet has forgotten that it gave the id to a pod, and asked for it again. 0 where the pods
    that had it have ended: then it is promised to nobody, and kubelet may give it out again at any moment."""
    absent: int = 0
    """In how many views of kubelet's in a row nobody has had it."""
    had: tuple[PodUid, ...] = ()
    """The pods that had it last."""
    recorded: int = 1
    """How many pods, the ended ones too, kubelet may name with it: so often the next life of the daemon recalls it,
    since it knows of no pod's end yet."""
    awake_ns: int = 0
    """For how long views have come since, SETTLE_NS at most."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The ids of one kind of key that kubelet is offered."""

    size: int = 0
    """How many ids there are."""
    grants: Mapping[str, Grant] = field(default_factory=dict)
    published: int = 0
    """How many of the ids that are promised to nobody are healthy."""
    grow_to: int = 0
    """The least that was free since `grow_since_ns`, while that is more than published."""
    grow_since_ns: int = 0
    passed: Mapping[PodUid, int] = field(default_factory=dict)
    """Pods whose start was let through and that have not taken all their keys yet, and how many they are to take."""
    held: Mapping[PodUid, tuple[str, ...]] = field(default_factory=dict)
    """The ids of each pod in kubelet's newest view, but for the pods that have ended."""
    over: Mapping[PodUid, tuple[str, ...]] = field(default_factory=dict)
    """The ids of pods in that view that have ended. Once known it stays so, whatever else is forgotten of them: kubelet
    goes on naming them, and whoever has the id next must not be taken for one of them."""
    viewed_ns: int = 0
    """When that view came."""
    viewed_as_of: int = 0
    """When it was asked for, by sequence number."""
    released: tuple[str, ...] = ()
    """Ids that were released since the last grant was put on record."""
    unseen_ns: Mapping[PodUid, int] = field(default_factory=dict)
    """For how long no view has shown those of the `passed` pods which none shows."""
    stopped_ns: Mapping[PodUid, int] = field(default_factory=dict)
    """When a container of those of the `passed` pods has stopped that was let start, or one before it. Later than now
    for a start that may be of an earlier life of the daemon: with no container by then, it is over as well."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """What an Allocate was promised before it is on record: the ids that are new with it."""

    key: str
    fresh: tuple[str, ...]
    released: tuple[str, ...] = ()
    """What the same record says was released."""


@dataclass(frozen=True, slots=True)
class Stood:
    """The state of an id, and since when."""

    state: KeyState
    at_ns: int


@dataclass(frozen=True, slots=True)
class Delays:
    """Times by the bounds of features.keys.delays, the last beyond all of them; no counts for none yet."""

    counts: tuple[int, ...] = ()
    sum_ns: int = 0


@dataclass(frozen=True, slots=True)
class Loss:
    """The journal of grants was lost; how far it is known again what was granted (features.keys.loss)."""

    heard_ns: int
    """When the newest sample or view came, at first when the loss was told."""
    awake_ns: int = 0
    """For how long they have come since (features.keys.device_ids.awake), as far as that matters."""
    sure_seq: int = 0
    """From when on a view was requested late enough to name all that was granted before; 0 for not yet."""
    over_seq: int = 0
    """When every view had told; 0 for not yet."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A claim whose pod waits, since when, and why."""

    claim: Claim
    since_wall_ns: int
    asked_ns: int
    """When it was last asked about."""
    why: str


@dataclass(frozen=True, slots=True)
class Sold:
    """The capacity of a kind's device in the API server, and the higher ones before, each with when it went: an old
    view of the scheduler's may still go by those (features.keys.fronts)."""

    value: int = 0
    before: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Keys:
    """Slice of the feature `keys`: the newest sample of the key counters, what kubelet has handed out by its
    checkpoint when that could last be read (None before the first of each), and what kubelet is offered."""

    sample: KeysRead | None = None
    held: KeysHeld | None = None
    held_fault: str = ""
    """Why kubelet's checkpoint cannot be read now."""
    nfd: NfdSeen | None = None
    """What NFD had when it could last be asked; None before the first time."""
    nfd_fault: str = ""
    """Why the API server cannot be asked of NFD now."""
    held_as_of: int = 0
    """When it was last read, by sequence number; `held` is the first of the views that say the same."""
    held_whole: bool = False
    """Whether it could be read since the daemon started: PodResources alone may leave pods out."""
    viewed: bool = False
    """Whether kubelet has told since the daemon started whose its ids are: by its checkpoint, or by what stands in for
    it (features.keys.kubelet_view.stands_in)."""
    list_answers: bool = False
    """Whether kubelet's PodResources, asked because the checkpoint could not be read, has answered the last time and
    named nobody who is not known."""
    held_awake_ns: int = 0
    """For how long `held` has stood, as far as samples and views tell (features.keys.device_ids.awake)."""
    heard_ns: int = 0
    """When the newest sample or view came."""
    offers: Mapping[str, Offer] = field(default_factory=dict)
    """By the misc controller's name, for the kinds that we publish; also while the mode is observe."""
    reserved: Mapping[int, Reserved] = field(default_factory=dict)
    """What open asks were promised, by their ids."""
    recalled_ns: int = 0
    """When the journal of grants was read, 0 for not yet: before that nobody knows what was granted."""
    lists: bool = False
    """Enough is known for the first list of devices."""
    journal_fault: str = ""
    """Why the journal cannot be trusted, or written: nothing is granted meanwhile."""
    loss: Loss | None = None
    """Whether the journal was lost since the daemon began, or before."""
    plugins: Mapping[str, PluginTold] = field(default_factory=dict)
    """How it stands with our device plugin, by resource."""
    quotes: Mapping[str, QuotesTold] = field(default_factory=dict)
    """Whether the service answers that makes quotes, by the misc controller's name."""
    api_heard: bool = False
    """Whether the API server has answered since the daemon started."""
    of_kubelet: PodsOfKubelet | None = None
    """Kubelet's pods, when they could last be asked for; None before the first time."""
    of_kubelet_fault: str = ""
    """Why kubelet cannot be asked for its pods now."""
    of_kubelet_absent: bool = False
    """Whether that is because nobody serves its Pods API."""
    of_kubelet_restarts: int = 0
    """How often kubelet had been seen to begin anew when it last told of its pods."""
    without_api_ns: int = 0
    """For how long kubelet has served since it began anew without its Pods API."""
    listed: Mapping[str, str] = field(default_factory=dict)
    """The device lists that stand as goals, by resource."""
    numbers: Mapping[str, str] = field(default_factory=dict)
    """NFD's numbers that stand as goals, by the misc controller's name."""
    misses: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By the kind of a goal, and by what it is about, why the last try failed, until it is reached."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """How often kubelet was refused, by `KEY/CODE`."""
    stood: Mapping[str, Mapping[str, Stood]] = field(default_factory=dict)
    """Every id of each kind that we publish."""
    orphans: Mapping[str, int] = field(default_factory=dict)
    """Since when removed cgroups have held keys: by the misc controller's name, and by cgroup and number
    (features.keys.orphans)."""
    outside: Mapping[str, int] = field(default_factory=dict)
    """By key and cgroup, what pods' VMs held outside of their pods' cgroups in the newest sample."""
    foreign: Mapping[str, int] = field(default_factory=dict)
    """By the misc controller's name, what of the kinds that we publish was in foreign use in the newest sample."""
    grown: Mapping[str, int] = field(default_factory=dict)
    """By the same, when there was certainly less of it, while kubelet has not been told since."""
    delays: Mapping[str, Delays] = field(default_factory=dict)
    """By the same, how long it took each time until kubelet was told."""
    claims: Mapping[ClaimUid, Promised] = field(default_factory=dict)
    """The claims that are prepared, with how many keys each has by the misc controller's name."""
    draining: Mapping[ClaimUid, Promised] = field(default_factory=dict)
    """Claims that are so no more, while a pod of theirs still holds a key."""
    waiting: Mapping[ClaimUid, Waiting] = field(default_factory=dict)
    """Claims that no key was free for when it was last asked."""
    claims_recalled: bool = False
    """It is known what was prepared before the daemon started."""
    claims_fault: str = ""
    """Why that is not known, or a promise cannot be put on record: no claim is prepared meanwhile."""
    rooms: Mapping[str, Offer] = field(default_factory=dict)
    """By the misc controller's name, how many keys more the scheduler may give to claims (`published`)."""
    slices: Mapping[str, str] = field(default_factory=dict)
    """The devices that stand as goals, by driver."""
    sold: Mapping[str, Sold] | None = None
    """By the misc controller's name; None before the API server could be asked."""
    front: Front = Front.SETTINGS
    """What a person has chosen in the place of `keys.dra.share`."""
    driver: DriverTold | None = None
    """How it stands with our driver; None before its first word."""
