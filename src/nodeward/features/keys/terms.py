"""Words about TEE keys that events, state and views share."""

from collections.abc import Mapping
from enum import Enum
from typing import Final

REFUSALS: Final = (
    "none",
    "twice",
    "unknown",
    "too-many",
    "unoffered",
    "early",
    "journal",
    "quotes",
    "unread",
    "uncounted",
    "gone",
    "foreign",
    "promised",
    "draining",
    "reserved",
    "withheld",
    "late",
    "owner",
    "taken",
)
"""Why kubelet can be refused, by code. The codes are labels of metrics too, so they stay."""


NFD_NUMBERS: Final[Mapping[str, str]] = {"tdx": "tdx.total_keys", "sev_es": "sev.encrypted_state_ids"}
"""Node Feature Discovery's attribute of `cpu.security` that has the number of each kind of key, by the misc
controller's name."""


class PluginStanding(Enum):
    """How it stands with the device plugin for one resource."""

    WAITING = "waiting"
    """Kubelet's socket is not there, or does not answer."""
    RIVAL = "rival"
    """Somebody else publishes the resource: ours is not registered, since the last to register evicts the other."""
    REFUSED = "refused"
    """Kubelet does not take the registration."""
    SERVING = "serving"
    """Registered, and kubelet reads our list."""
    ENDED = "ended"
    """Nothing is to be published any more."""


class KeyState(Enum):
    """How it stands with an id. The words are labels of metrics too, so they stay."""

    FREE = "free"
    """Kubelet may give it to a pod."""
    WITHHELD = "withheld"
    """Listed as unhealthy: there is no key for it now, or it is of the reserve."""
    GRANTED = "granted"
    """Promised to a pod that has not taken a key yet, as far as can be told."""
    CHARGED = "charged"
    """Promised to a pod that holds a key."""
    DRAINING = "draining"
    """Its pod has ended, and kubelet or the kernel may not know it yet."""
