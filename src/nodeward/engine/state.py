"""The whole of what the engine remembers: a frozen root with one frozen slice a domain. A snapshot is a reference.

Every field is a plain value, so that a record's checkpoint can hold it (wire.record).
"""

from collections.abc import Mapping

from nodeward.engine.ledger.gate import Offer, Reserved
from nodeward.model.decision import Reason
from nodeward.model.events import (
    Allocating,
    Creating,
    KeysHeld,
    KeysRead,
    MiscReading,
    NfdSeen,
    PluginTold,
    PodsOfKubelet,
    Question,
    QuotesTold,
    Starting,
    Updating,
)
from nodeward.model.hierarchy import Hierarchy
from nodeward.model.settings import EngineSettings
from nodeward.model.tee import KeyState
from nodeward.model.value import field, value
from nodeward.model.workload import Amounts, Container, ContainerId, PodSpec, PodUid, Sandbox, SandboxId


@value(frozen=True, slots=True)
class KnownContainer:
    """A container the runtime has told of, and when (by sequence number)."""

    container: Container
    pod_uid: PodUid
    seq: int
    at_ns: int
    by_cgroup: bool = False
    """Only its cgroup was found: the runtime has told nothing, and its name is empty."""


@value(frozen=True, slots=True)
class KnownSandbox:
    """A sandbox the runtime has told of; or, with `by_cgroup`, a stand-in for one of which only the cgroup is known."""

    sandbox: Sandbox
    seq: int
    by_cgroup: bool = False


@value(frozen=True, slots=True)
class KnownSpec:
    """A pod's spec; `gone` once the API server has deleted it while its sandbox still stands."""

    spec: PodSpec
    seq: int
    gone: bool = False


@value(frozen=True, slots=True)
class Ended:
    """When something ended (by sequence number), and where a container's cgroup was, empty where nobody told."""

    seq: int
    path: str = ""


@value(frozen=True, slots=True)
class Pods:
    """Slice of the domain `pods`. Pods are keyed by the UID the runtime uses (a static pod's config hash)."""

    specs: Mapping[PodUid, KnownSpec] = field(default_factory=dict)
    sandboxes: Mapping[SandboxId, KnownSandbox] = field(default_factory=dict)
    containers: Mapping[ContainerId, KnownContainer] = field(default_factory=dict)
    by_pod: Mapping[PodUid, tuple[ContainerId, ...]] = field(default_factory=dict)
    sandbox_of: Mapping[PodUid, SandboxId] = field(default_factory=dict)
    api_up: bool = False
    stale_since_wall_ns: int = 0
    """When the API server was lost, 0 while it answers or has never answered."""
    creating: Mapping[ContainerId, KnownContainer] = field(default_factory=dict)
    """Containers that are only being created, oldest first: in no other table until they are, or are given up."""
    waits_ns: tuple[int, ...] = ()
    """When each wait for an unknown pod began, within the last ten seconds."""
    runtime: str = ""
    multi_line: bool = False
    ended: Mapping[str, Ended] = field(default_factory=dict)
    """The containers, sandboxes and pods that ended last, by id."""

    def container(self, container_id: ContainerId) -> KnownContainer | None:
        """The container, also while it is only being created."""
        return self.containers.get(container_id) or self.creating.get(container_id)

    def ended_after(self, which: str, seq: int) -> bool:
        """Whether a container, a sandbox or a pod is known to have ended since."""
        known = self.ended.get(which)
        return known is not None and known.seq > seq

    # Written out, since `replace` costs twice as much and each create needs them.

    def with_sandboxes(
        self, sandboxes: Mapping[SandboxId, KnownSandbox], sandbox_of: Mapping[PodUid, SandboxId]
    ) -> "Pods":
        """The slice with these sandboxes."""
        return Pods(
            self.specs,
            sandboxes,
            self.containers,
            self.by_pod,
            sandbox_of,
            self.api_up,
            self.stale_since_wall_ns,
            self.creating,
            self.waits_ns,
            self.runtime,
            self.multi_line,
            self.ended,
        )

    def with_ended(self, ended: Mapping[str, Ended]) -> "Pods":
        """The slice with these ends."""
        return Pods(
            self.specs,
            self.sandboxes,
            self.containers,
            self.by_pod,
            self.sandbox_of,
            self.api_up,
            self.stale_since_wall_ns,
            self.creating,
            self.waits_ns,
            self.runtime,
            self.multi_line,
            ended,
        )

    def with_containers(
        self,
        containers: Mapping[ContainerId, KnownContainer],
        by_pod: Mapping[PodUid, tuple[ContainerId, ...]],
        creating: Mapping[ContainerId, KnownContainer],
    ) -> "Pods":
        """The slice with these containers."""
        return Pods(
            self.specs,
            self.sandboxes,
            containers,
            by_pod,
            self.sandbox_of,
            self.api_up,
            self.stale_since_wall_ns,
            creating,
            self.waits_ns,
            self.runtime,
            self.multi_line,
            self.ended,
        )


@value(frozen=True, slots=True)
class Wanted:
    """What one cgroup is to have, by misc resource, and why. Empty `values` means nothing is wanted of it.

    `known` is false while the pod is not known: then the values are the fallback's."""

    pod_uid: PodUid
    container_id: ContainerId | None
    values: Amounts
    reason: Reason
    source: str
    known: bool = True
    reached: int = 0
    """When these values were last seen to be in the kernel (by sequence number), 0 for not yet."""
    given: tuple[str, ...] = ()
    """The resources whose limit the runtime was told to set in our name. For the container's life: it remembers the
    limit, and writes it again with each update that is not answered otherwise."""
    taken_back: tuple[str, ...] = ()
    """The resources that were wanted or given here, are no longer, and are not known to be taken back yet."""

    def after(self, before: "Wanted | None", given: tuple[str, ...] = (), *, anew: bool = False) -> "Wanted":
        """This, with what is remembered of the cgroup. `anew`: whatever was reached must be reached again."""
        if before is None and not given:
            return self
        given = tuple(dict.fromkeys((*(before.given if before is not None else ()), *given)))
        if before is not None and not anew and given == before.given and self._same_as(before):
            return before
        had = given if before is None else (*before.taken_back, *given, *before.values)
        same = before is not None and not anew and before.values == self.values
        return Wanted(
            self.pod_uid,
            self.container_id,
            self.values,
            self.reason,
            self.source,
            self.known,
            before.reached if before is not None and same else 0,
            given,
            tuple(resource for resource in dict.fromkeys(had) if resource not in self.values),
        )

    @property
    def released(self) -> tuple[str, ...]:
        """The resources that are to have no limit of ours: those that are to be taken back, and those that were given
        and are wanted no more, which the runtime may bring back."""
        return tuple(name for name in dict.fromkeys((*self.taken_back, *self.given)) if name not in self.values)

    def _same_as(self, other: "Wanted") -> bool:
        """Whether the other wants the same for the same reason, whatever it remembers."""
        return (
            self.values == other.values
            and self.reason == other.reason
            and (self.pod_uid, self.container_id) == (other.pod_uid, other.container_id)
            and (self.source, self.known) == (other.source, other.known)
        )

    def when_reached(self, resource: str, seq: int) -> "Wanted":
        """This, once the goal for the resource is reached."""
        taken_back = self.taken_back
        if resource in taken_back:
            taken_back = tuple(name for name in taken_back if name != resource)
        return Wanted(
            self.pod_uid,
            self.container_id,
            self.values,
            self.reason,
            self.source,
            self.known,
            seq,
            self.given,
            taken_back,
        )


@value(frozen=True, slots=True)
class Read:
    """The newest reading of a cgroup, its time, and when its pass began (by sequence number)."""

    reading: MiscReading
    at_ns: int
    as_of: int
    held: Wanted | None = None
    """What the cgroup was to have when this was found to be just that. While that is still wanted (the very object) and
    the capacity is what it was, the same reading needs no second look: of 2000 cgroups a pass compares few."""


@value(frozen=True, slots=True)
class Limits:
    """Slice of the domain `limits`. Cgroups are keyed by their path below the cgroup root."""

    controller: bool = False
    capacity: Amounts = field(default_factory=dict)
    usage: Amounts = field(default_factory=dict)
    wanted: Mapping[str, Wanted] = field(default_factory=dict)
    readings: Mapping[str, Read] = field(default_factory=dict)
    repairs_ns: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """When each cgroup was last repaired, within the last five minutes."""
    misses: Mapping[str, str] = field(default_factory=dict)
    """Goal target to why the last try failed, until it is reached."""
    answered: Mapping[ContainerId, tuple[str, ...]] = field(default_factory=dict)
    """The resources that the runtime was told to limit, of those that `wanted` does not know as given yet."""
    tree: Hierarchy = field(default_factory=Hierarchy)
    left: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """While the mode is off: the resources whose limit of ours may stand in each cgroup that was wanted something."""

    def with_answered(self, answered: Mapping[ContainerId, tuple[str, ...]]) -> "Limits":
        """The slice with this; written out for the same reason as below."""
        return Limits(
            self.controller,
            self.capacity,
            self.usage,
            self.wanted,
            self.readings,
            self.repairs_ns,
            self.misses,
            answered,
            self.tree,
            self.left,
        )


@value(frozen=True, slots=True)
class Stood:
    """How it stands with an id, and since when."""

    state: KeyState
    at_ns: int


@value(frozen=True, slots=True)
class Delays:
    """Times by the bounds of engine.ledger.delays, the last beyond all of them; no counts for none yet."""

    counts: tuple[int, ...] = ()
    sum_ns: int = 0


@value(frozen=True, slots=True)
class Loss:
    """The journal of grants was lost; how far it is known again what was granted (engine.ledger.loss)."""

    heard_ns: int
    """When the newest sample or view came, at first when the loss was told."""
    awake_ns: int = 0
    """For how long they have come since (engine.ledger.gate.awake), as far as that matters."""
    sure_seq: int = 0
    """From when on a view was requested late enough to name all that was granted before; 0 for not yet."""
    over_seq: int = 0
    """When every view had told; 0 for not yet."""


@value(frozen=True, slots=True)
class Ledger:
    """Slice of the domain `ledger`: the newest sample of the key counters, what kubelet has handed out by its
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
    it (engine.ledger.handed.stands_in)."""
    list_answers: bool = False
    """Whether kubelet's PodResources, asked because the checkpoint could not be read, has answered the last time and
    named nobody who is not known."""
    held_awake_ns: int = 0
    """For how long `held` has stood, as far as samples and views tell (engine.ledger.gate.awake)."""
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
    """The goals that stand for device lists, by target."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """How often kubelet was refused, by `KEY/CODE`."""
    stood: Mapping[str, Mapping[str, Stood]] = field(default_factory=dict)
    """Every id of each kind that we publish."""
    orphans: Mapping[str, int] = field(default_factory=dict)
    """Since when removed cgroups have held keys: by the misc controller's name, and by cgroup and number
    (engine.ledger.orphans)."""
    foreign: Mapping[str, int] = field(default_factory=dict)
    """By the misc controller's name, what of the kinds that we publish was in foreign use in the newest sample."""
    grown: Mapping[str, int] = field(default_factory=dict)
    """By the same, when there was certainly less of it, while kubelet has not been told since."""
    delays: Mapping[str, Delays] = field(default_factory=dict)
    """By the same, how long it took each time until kubelet was told."""


@value(frozen=True, slots=True)
class Notice:
    """Something that happened to a container, a pod or the node, perhaps again and again: one Event object."""

    pod_uid: PodUid
    """Empty for the node."""
    container: str
    reason: Reason
    """As it was last."""
    count: int
    first_ns: int
    last_ns: int
    sent_at_ns: int = 0
    """When it was last sent, 0 for never."""
    unsent: bool = True
    """Something happened that has not been sent."""
    series: int = 0
    """The call by which the API server took it, 0 while it has not."""


@value(frozen=True, slots=True)
class Notices:
    """Slice of what pods and the node are told. Notices are keyed by pod, container, kind and resource."""

    notices: Mapping[str, Notice] = field(default_factory=dict)
    newcomers: Mapping[ContainerId, bool] = field(default_factory=dict)
    """Containers that ran before anybody told of their creation: their limits may be set late."""
    under_way: Mapping[int, str] = field(default_factory=dict)
    """Calls whose outcome is not known, to the notice's key."""
    sent_ns: tuple[int, ...] = ()
    """When the last calls were made, within the window of the node's budget."""
    last_id: int = 0
    left_out: int = 0
    """Happenings that had no room in `notices`, ever."""
    begun: Mapping[ContainerId, bool] = field(default_factory=dict)
    """Containers whose creation or start was told and whose cgroup has not been read yet: it counts from zero."""
    amiss_ns: Mapping[str, int] = field(default_factory=dict)
    """Since when something has been amiss with the node's keys (engine.notices.keys), by what it is."""


@value(frozen=True, slots=True)
class OpenAsk:
    """A question whose answer waits for a fact or for a commit. Exactly one of the first four is there."""

    creating: Creating | None = None
    updating: Updating | None = None
    allocating: Allocating | None = None
    starting: Starting | None = None
    needs: int = 0
    expired: bool = False
    committed: bool = False
    """Its Commit is durable."""
    commit_error: str = ""
    """Why its Commit failed: who reserved something for it gives it back."""

    @property
    def question(self) -> Question:
        """The question as it was asked."""
        question = self.creating or self.updating or self.allocating or self.starting
        if question is None:
            raise ValueError("an open ask without its question")
        return question


@value(frozen=True, slots=True)
class State:
    """The root."""

    settings: EngineSettings = field(default_factory=EngineSettings)
    pods: Pods = field(default_factory=Pods)
    limits: Limits = field(default_factory=Limits)
    asks: Mapping[int, OpenAsk] = field(default_factory=dict)
    seq: int = 0
    at_ns: int = 0
    ledger: Ledger = field(default_factory=Ledger)
    notices: Notices = field(default_factory=Notices)

    # Written out, since `replace` costs twice as much and each event needs several.

    def stamped(self, seq: int, at_ns: int) -> "State":
        """The state at this event."""
        return State(self.settings, self.pods, self.limits, self.asks, seq, at_ns, self.ledger, self.notices)

    def with_pods(self, pods: Pods) -> "State":
        """The state with this slice."""
        return State(self.settings, pods, self.limits, self.asks, self.seq, self.at_ns, self.ledger, self.notices)

    def with_limits(self, limits: Limits) -> "State":
        """The state with this slice."""
        return State(self.settings, self.pods, limits, self.asks, self.seq, self.at_ns, self.ledger, self.notices)

    def with_asks(self, asks: Mapping[int, OpenAsk]) -> "State":
        """The state with these open asks."""
        return State(self.settings, self.pods, self.limits, asks, self.seq, self.at_ns, self.ledger, self.notices)

    def with_ledger(self, ledger: Ledger) -> "State":
        """The state with this slice."""
        return State(self.settings, self.pods, self.limits, self.asks, self.seq, self.at_ns, ledger, self.notices)

    def with_notices(self, notices: Notices) -> "State":
        """The state with this slice."""
        return State(self.settings, self.pods, self.limits, self.asks, self.seq, self.at_ns, self.ledger, notices)
