"""The state of pods: what is known of pods, sandboxes and containers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeward.core.workload import Container, ContainerId, PodSpec, PodUid, Sandbox, SandboxId


@dataclass(frozen=True, slots=True)
class KnownContainer:
    """A container that the runtime reported, and when (by sequence number)."""

    container: Container
    pod_uid: PodUid
    seq: int
    at_ns: int
    by_cgroup: bool = False
    """Only its cgroup was found: the runtime has told nothing, and its name is empty."""


@dataclass(frozen=True, slots=True)
class KnownSandbox:
    """A sandbox that the runtime reported; or, with `by_cgroup`, a stand-in for one of which only the cgroup is
    known."""

    sandbox: Sandbox
    seq: int
    by_cgroup: bool = False


@dataclass(frozen=True, slots=True)
class KnownSpec:
    """A pod's spec; `gone` once the API server has deleted it while its sandbox still stands."""

    spec: PodSpec
    seq: int
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """When something ended (by sequence number), and a container's cgroup, empty where it was not known."""

    seq: int
    path: str = ""


@dataclass(frozen=True, slots=True)
class Pods:
    """Slice of the feature `pods`. Pods are keyed by the UID the runtime uses (a static pod's config hash)."""

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
    updating: Mapping[int, KnownContainer] = field(default_factory=dict)
    """What each open question of an update would change, by the question's number: so it is again if refused."""
    waits_ns: tuple[int, ...] = ()
    """When each wait for an unknown pod began, within the last ten seconds."""
    runtime: str = ""
    listed: bool = False
    """Whether the runtime has told of all that it has, since it connected."""
    lingering: Mapping[SandboxId, KnownSandbox] = field(default_factory=dict)
    """Sandboxes that went with their deleted pods' last containers, until something tells that they have ended."""
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
