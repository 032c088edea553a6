"""The settings of the Pod API and of the cold plug."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodapiSection:
    """The Pod API of `nodeward node`: what is known of this node's pods, on two unix sockets. `socket` (HTTP and JSON):
    empty for podapi.sock in run_dir. `grpc_socket`: empty for podapi-grpc.sock in run_dir; only root may open it.
    `uids`: the users whose processes may ask over HTTP."""

    enabled: bool = False
    socket: str = ""
    grpc_socket: str = ""
    uids: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True)
class ColdPlugSection:
    """The cold-plug socket of `nodeward node`: PodResources for VM runtimes, with the devices of DRA claims. `socket`:
    empty for pod-resources.sock in run_dir."""

    enabled: bool = False
    socket: str = ""
