"""What the Pod API is asked of image pulls, and what it answers. Times are in nanoseconds since 1970."""

from dataclasses import dataclass
from enum import StrEnum


class PullMode(StrEnum):
    """Where the image of a container is pulled."""

    HOST = "HOST"
    GUEST = "GUEST"
    UNKNOWN = "UNKNOWN"


class PullState(StrEnum):
    """Whether it is known for which sandbox a pull is."""

    RESOLVED = "RESOLVED"
    PENDING = "PENDING"
    """The sandbox is not known yet: ask again."""
    STALE = "STALE"
    """A later attempt of that pod exists."""
    UNKNOWN = "UNKNOWN"
    """Nobody can tell: no relay answers."""


class GuestState(StrEnum):
    """How far a guest is with an image."""

    PULLING = "PULLING"
    PULLED = "PULLED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class ResolvePullRequest:
    """Names, UID and attempt as kubelet has them in PullImageRequest.sandbox_config.metadata."""

    namespace: str
    name: str
    uid: str
    attempt: int = 0
    image: str = ""


@dataclass(frozen=True, slots=True)
class ResolvePullResponse:
    """For which sandbox the pull is, and where the image is pulled. `handler` is empty for the runtime's default."""

    state: str
    """A PullState."""
    why: str = ""
    sandbox: str = ""
    handler: str = ""
    mode: str = PullMode.UNKNOWN
    mode_why: str = ""
    """The file and key that say so."""


@dataclass(frozen=True, slots=True)
class ReportPullRequest:
    """A runtime tells of an image inside its sandbox's VM. `state` is a GuestState; `digest` is needed with PULLED."""

    sandbox: str
    image: str
    state: str
    digest: str = ""
    bytes: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class ReportPullResponse:
    """Whether the report was taken in, else why not."""

    accepted: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class HostPull:
    """A PullImage that passed the relay. `sandbox` is empty where that attempt's sandbox is not known."""

    image: str
    attempt: int
    sandbox: str
    began: int
    ended: int
    status: str
    image_ref: str


@dataclass(frozen=True, slots=True)
class GuestImage:
    """An image that a runtime reported of its VM."""

    sandbox: str
    image: str
    state: str
    digest: str
    bytes: int
    error: str
    reported: int


@dataclass(frozen=True, slots=True)
class PodImage:
    """The image of one container. A pull on the host says nothing of what the guest holds: `guest` has only digests
    that its runtime reported."""

    container: str
    image: str
    host: tuple[str, ...]
    """What the runtime answered to pulls of it that passed the relay."""
    guest: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PodPullsSeen:
    """The section `pulls` of a pod. `sandbox` is the newest one; `mode` a PullMode, and what says so."""

    sandbox: str
    host: tuple[HostPull, ...]
    guest: tuple[GuestImage, ...]
    mode: str
    mode_why: str
