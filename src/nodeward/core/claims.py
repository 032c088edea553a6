"""A pod's ResourceClaim, as a driver of Dynamic Resource Allocation sees it (KEP-4381, resource.k8s.io/v1).

The scheduler allocates devices to a claim; kubelet then asks their driver to prepare them before the pod's sandbox is
made. One device may be allocated to many claims, each with a part of its capacity (KEP-5075).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NewType

from nodeward.core.cpuset import CpuSet
from nodeward.core.workload import PodUid

ClaimUid = NewType("ClaimUid", str)

MOST_RESULTS = 32
"""Of a claim, by the API server's own bound."""


class Front(Enum):
    """By which way the scheduler gives out what a node has."""

    SETTINGS = "settings"
    """As the settings share it."""
    CLAIMS = "dra"
    IDS = "plugin"


@dataclass(frozen=True, slots=True)
class Allocated:
    """One device that was allocated to a claim."""

    request: str
    """The claim's request, with `/` and the subrequest where it has any."""
    device: str
    pool: str = ""
    share: str = ""
    """The id of this part of a device that is shared; empty for a whole device."""
    consumed: Mapping[str, int] = field(default_factory=dict)
    """How much of each capacity of the device the claim consumes; one that is no whole number is left out."""
    admin: bool = False
    """With admin access: the claim looks on, and consumes nothing."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim as the API server has it now, with what was allocated to it of one driver."""

    uid: ClaimUid
    namespace: str
    name: str
    allocated: tuple[Allocated, ...] = ()
    pods: Mapping[PodUid, str] = field(default_factory=dict)
    """The pods it is reserved for, by UID, with their names."""
    extended: bool = False
    """The scheduler made it, for a pod that asks for an extended resource (KEP-5004)."""
    parameters: tuple[str, ...] = ()
    """The opaque parameters for this driver, each as JSON. Later ones overrule: its class comes first."""

    @property
    def title(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Promised:
    """What a claim was prepared with, from Prepare until it has ended: the promise outlives this process."""

    uid: ClaimUid
    namespace: str
    name: str
    amounts: Mapping[str, int]
    """How much of each kind of what the feature counts; empty for admin access alone."""
    pods: Mapping[PodUid, str] = field(default_factory=dict)
    extended: bool = False
    since_wall_ns: int = 0
    cpus: CpuSet = 0
    """The CPUs that are its own, where it has some."""
    requests: tuple[str, ...] = ()
    """The claim's requests that it is of, where a container may use one of several."""
    options: tuple[str, ...] = ()
    """What its opaque parameters ask for."""

    @property
    def title(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"
