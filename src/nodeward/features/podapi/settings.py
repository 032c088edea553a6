"""The settings of the Pod API and of the cold plug."""

from dataclasses import dataclass

from nodeward.core.setting import setting


@dataclass(frozen=True, slots=True)
class PodapiSection:
    """The Pod API of `nodeward node`: what is known of this node's pods, on two unix sockets."""

    enabled: bool = setting(False, "Serve what is known of this node's pods, without secrets, over HTTP and gRPC.")
    socket: str = setting("", "The socket for HTTP and JSON; empty: `podapi.sock` in `run_dir`.", path=True)
    grpc_socket: str = setting(
        "", "The socket for gRPC, for root only; empty: `podapi-grpc.sock` in `run_dir`.", path=True
    )
    uids: tuple[int, ...] = setting((0,), "The users who may ask over HTTP, 1 to 64.")


@dataclass(frozen=True, slots=True)
class ColdPlugSection:
    """The cold-plug socket of `nodeward node`: PodResources for VM runtimes, with the devices of DRA claims."""

    enabled: bool = setting(False, "Serve PodResources for VM runtimes, with the devices of DRA claims.")
    socket: str = setting("", "The socket; empty: `pod-resources.sock` in `run_dir`.", path=True)
