"""The settings of limits. Apart from others, since the OCI hook imports them at each start."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from nodeward.core.modes import DEFAULT_RESOURCES, Mode, OnError


class Unsupported(Enum):
    """What a declared resource means that this kernel does not have."""

    ALLOW_UNENFORCED = "allow-unenforced"
    REFUSE = "refuse"


class UnknownPod(Enum):
    """What a container gets if its pod is not known in time; mended when the pod becomes known."""

    UNLIMITED = "unlimited"
    ZERO = "zero"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class LimitsSettings:
    """The feature `limits`: misc limits of containers and pods."""

    mode: Mode = Mode.ENFORCE
    on_error: OnError = OnError.PASS
    strict: bool = False
    unsupported: Unsupported = Unsupported.ALLOW_UNENFORCED
    unknown_pod: UnknownPod = UnknownPod.UNLIMITED
    resources: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_RESOURCES))
