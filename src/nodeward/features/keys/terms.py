"""Words about TEE keys that events, state and views share."""

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
    "claim",
)
"""Why kubelet can be refused, by code. The codes are labels of metrics too, so they stay."""


class ClaimState(Enum):
    """The state of a claim. The words are labels of metrics too, so they stay."""

    PREPARED = "prepared"
    """Promised to its pod."""
    WAITING = "waiting"
    """Its pod waits, since no key is free."""
    DRAINING = "draining"
    """Its pod's containers have ended, and the pod still holds a key."""


class KeyState(Enum):
    """The state of an id. The words are labels of metrics too, so they stay."""

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
