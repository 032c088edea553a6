"""Image pulls and pod sandboxes, as the relay tells them to the node daemon: names, times and results, no secrets."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PullRow:
    """One PullImage. Namespace, name, UID and attempt are those of the sandbox that kubelet names in the request; a
    client that names none has them empty. Times are in nanoseconds since 1970, 0 for not yet."""

    namespace: str
    name: str
    uid: str
    attempt: int
    image: str
    """As the client asked for it."""
    handler: str
    """The runtime handler of the image, by kubelet's feature gate RuntimeClassInImageCriApi; mostly empty."""
    began: int
    ended: int = 0
    status: str = ""
    """gRPC's, such as OK or NOT_FOUND; `none` for a call that ended without one, empty while it goes on."""
    image_ref: str = ""
    """What the runtime answered: an id or a digest of the image on the host."""


@dataclass(frozen=True, slots=True)
class SandboxKey:
    """A pod sandbox of the runtime, and its pod. `attempt` rises with each sandbox of one pod. `stopped`: it runs no
    more, and is only not removed yet; false where nobody told."""

    id: str
    namespace: str
    name: str
    uid: str
    attempt: int
    handler: str = ""
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class PullsView:
    """What a relay has seen since it began. `forgotten` pulls had no room; `listed`: all sandboxes of the runtime are
    here, those from before the relay's start too."""

    version: str
    pid: int
    listed: bool = False
    pulls: tuple[PullRow, ...] = ()
    sandboxes: tuple[SandboxKey, ...] = ()
    forgotten: int = 0
