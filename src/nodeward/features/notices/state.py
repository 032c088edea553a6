"""The state of notices: what pods and the node were told."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeward.core.refusal import Reason
from nodeward.core.workload import ContainerId, PodUid


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Notices:
    """The slice: what was reported on pods and the node. Notices are keyed by pod, container, kind and resource."""

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
    """Since when something has been amiss with the node's keys (features.notices.keys), by what it is."""
