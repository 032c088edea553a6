"""The state of limits: what each cgroup is to have, what it has, and what failed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from nodeward.core.by_claim import ByClaim
from nodeward.core.cgroup import Hierarchy
from nodeward.core.events import EnclavesSeen, MiscReading, PluginTold
from nodeward.core.refusal import Reason
from nodeward.core.workload import Amounts, ContainerId, PodUid


@dataclass(frozen=True, slots=True)
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
        """This one, with what is remembered of the cgroup. `anew`: whatever was reached must be reached again."""
        if before is None and not given:
            return self
        given = tuple(dict.fromkeys((*(before.given if before is not None else ()), *given)))
        if before is not None and not anew and given == before.given and self._same_as(before):
            return before
        had = given if before is None else (*before.taken_back, *given, *before.values)
        same = before is not None and not anew and before.values == self.values
        return replace(
            self,
            reached=before.reached if before is not None and same else 0,
            given=given,
            taken_back=tuple(resource for resource in dict.fromkeys(had) if resource not in self.values),
        )

    @property
    def released(self) -> tuple[str, ...]:
        """The resources that lose our limit: those that are to be taken back, and those that were given and are wanted
        no more, which the runtime may bring back."""
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
        return replace(self, reached=seq, taken_back=tuple(name for name in self.taken_back if name != resource))


@dataclass(frozen=True, slots=True)
class Read:
    """The newest reading of a cgroup, its time, and when its pass began (by sequence number)."""

    reading: MiscReading
    at_ns: int
    as_of: int
    held: Wanted | None = None
    """What the cgroup was to have when this was found to be just that. While that is still wanted (the very object) and
    the capacity is what it was, the same reading needs no second look: of 2000 cgroups a pass compares few."""


@dataclass(frozen=True, slots=True)
class Devices:
    """The device nodes of SGX: what the node's files say of them, None before the first look; those resources whose
    node was ever there; the ids that stand as goals, and how our plugin stands, by resource."""

    seen: EnclavesSeen | None = None
    ever: tuple[str, ...] = ()
    listed: Mapping[str, str] = field(default_factory=dict)
    plugins: Mapping[str, PluginTold] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """Slice of the feature `limits`. Cgroups are keyed by their path below the cgroup root."""

    controller: bool = False
    capacity: Amounts = field(default_factory=dict)
    usage: Amounts = field(default_factory=dict)
    wanted: Mapping[str, Wanted] = field(default_factory=dict)
    readings: Mapping[str, Read] = field(default_factory=dict)
    repairs_ns: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """When each cgroup was last repaired, within the last five minutes."""
    misses: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Of each cgroup by resource why the last try failed, until it is reached; by "" for the controller."""
    answered: Mapping[ContainerId, tuple[str, ...]] = field(default_factory=dict)
    """The resources that the runtime was told to limit, of those that `wanted` does not know as given yet."""
    tree: Hierarchy = field(default_factory=Hierarchy)
    left: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """While the mode is off: the resources whose limit of ours may stand in each cgroup that was wanted something."""
    by_claim: ByClaim = field(default_factory=ByClaim)
    devices: Devices = field(default_factory=Devices)
