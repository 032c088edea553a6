"""The settings of the Pod API and of the cold plug."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodapiSection:
    """The Pod API of `nodeward node`: what is known of this node's pods, on two unix sockets."""

    enabled: bool = False
    socket: str = ""
    grpc_socket: str = ""
    uids: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True)
class ColdPlugSection:
    """The cold-plug socket of `nodeward node`: PodResources for VM runtimes, with the devices of DRA claims."""

    enabled: bool = False
    socket: str = ""
