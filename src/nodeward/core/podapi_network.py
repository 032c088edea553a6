"""The network of a pod as files on the host say it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodInterface:
    """One interface of the pod. Empty texts and 0 are not known."""

    name: str
    mac: str = ""
    mtu: int = 0
    addresses: tuple[str, ...] = ()
    """Each with its prefix, such as 10.0.0.5/24."""
    device: str = ""
    """What Kata attaches: host-tap, vhost-user or vfio; empty for an interface in the network namespace."""
    host: str = ""
    """The tap's name, the socket's path or the PCI address on the host."""
    queues: int = 0
    """Pairs."""


@dataclass(frozen=True, slots=True)
class PodRoute:
    """One route. An empty gateway is none."""

    destination: str
    gateway: str = ""
    interface: str = ""
    mtu: int = 0


@dataclass(frozen=True, slots=True)
class PodNetwork:
    """What one source says."""

    netns: str = ""
    interfaces: tuple[PodInterface, ...] = ()
    routes: tuple[PodRoute, ...] = ()
