"""Rows of limits, as people and programs read them."""

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class ResourceRow:
    """One misc resource of one cgroup. None where it is not known or has no bound; bytes for `sgx_epc`."""

    resource: str
    wanted: int | None
    limit: int | None = None
    usage: int | None = None
    peak: int | None = None
    refusals: int | None = None
    """Charges refused here or below (misc.events)."""
    refusals_here: int | None = None
    """Charges refused by this level's own limit (misc.events.local)."""
    state: str = ""
    """Where this resource stands; the cgroup's state is that of the resources this kernel has."""
    taken_back: bool = False
    """It was wanted here, is no longer, and is not known to be taken back yet."""
    declared: int | None = None
    """What the container declares, of a pod the budget that follows. None for nothing, though 0 may be wanted: `wanted`
    is what the rule makes of it."""

    @property
    def is_idle(self) -> bool:
        """Nothing is wanted, limited, used or refused: nothing to tell people of."""
        return self.wanted is None and self.limit is None and not (self.usage or self.peak or self.refusals)


@dataclass(frozen=True, slots=True)
class LinesRow:
    """Whether a runtime is given `misc.max` of several lines: off or on, or, with `nri.multi_line`, held since an OCI
    runtime is too old or does not tell, or unverified since none is seen. `why` is by what."""

    state: str = "off"
    why: str = ""

    @property
    def text(self) -> str:
        """The state in words for people."""
        meant = {
            "held": "true is not followed, the first limit goes by the runtime and the others by direct write",
            "unverified": "true is followed and not verified: with an older OCI runtime two limits fail a container",
        }
        return f"nri.multi_line={self.state}: {meant.get(self.state, 'is followed')} ({self.why})"


@dataclass(frozen=True, slots=True)
class CgroupRow:
    """One container's or pod's cgroup."""

    level: str
    namespace: str
    pod: str
    container: str
    id: str
    cgroup: str
    state: str
    source: str
    rule: str
    resources: tuple[ResourceRow, ...]
    last_error: str = ""
    repairs: int = 0
    stale_since: str = ""
    """Where `source` is the pod's spec and the API server does not answer: since when (RFC 3339)."""
    faults: tuple[str, ...] = ()
    """Declarations of this container, or of this pod's containers, that could not be read; they count as undeclared."""
    image: str = ""
    """The name of a container's image, where the runtime tells it."""


def pod_name(row: CgroupRow) -> str:
    """NAMESPACE/POD; the UID alone of a pod of which only cgroups are known."""
    return f"{row.namespace}/{row.pod}" if row.namespace else row.pod


MAX_REPAIRS = 3


class Standing(Enum):
    """The state of a cgroup against what is wanted of it."""

    UNMANAGED = "unmanaged"
    COUNTED = "counted"
    """No limit is wanted here, and the pod has TEE keys."""
    UNKNOWN = "unknown"
    UNSUPPORTED = "unsupported"
    CONTROLLER_OFF = "controller-off"
    ENFORCED = "enforced"
    DRIFT = "drift"
    PENDING = "pending"
    STALE = "stale"
    OUTSIDE = "outside"
    RELAYED = "relayed"
    """It was given through the relay, and its cgroup is not found: nobody reads the kernel."""
