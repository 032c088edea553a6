"""Words about TEE keys that events, state and views share."""

from enum import Enum


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
