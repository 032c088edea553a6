"""The settings of the client of the API server.

Promises: values only, checked at construction. Must not: read files or the environment (`auth` does).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeward import __version__
from nodeward.core.modes import DEFAULT_RESOURCES
from nodeward.neighbours.kubernetes.errors import KubeConfigError
from nodeward.neighbours.sockets.kube_http import Endpoint, Waits


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeSettings:
    """Settings of the API server's edge."""

    endpoint: Endpoint
    node_name: str
    resources: Mapping[str, str] = field(default_factory=lambda: DEFAULT_RESOURCES)
    """Resource names of the API to the kernel's names; nothing else is read from a pod."""
    page_limit: int = 250
    """Pods a page of a list."""
    watch_s: int = 240
    """How long the server is asked to keep one watch open."""
    watch_silence_s: float = 270.0
    """A watch that says nothing for so long (no event, no bookmark, no end) is taken for dead."""
    request: Waits = field(default_factory=Waits)
    """Bounds of lists and single reads."""
    read_pod: Waits = field(default_factory=lambda: Waits(connect_s=1.0, read_s=2.0, total_s=2.0))
    """Bounds of the read of one pod that a container's creation waits for."""
    check_files_s: float = 10.0
    """Token and certificate files are looked at no more often than this."""
    user_agent: str = f"nodeward/{__version__}"

    def __post_init__(self) -> None:
        if not self.node_name or any(letter in self.node_name for letter in ",=&\\ "):
            raise KubeConfigError(
                f"node name {self.node_name!r} is no node's name; give spec.nodeName as kubelet has it"
            )
        if self.page_limit < 1 or self.watch_s < 1:
            raise KubeConfigError(f"page_limit {self.page_limit} and watch_s {self.watch_s} must be 1 or more")
        if self.watch_silence_s <= self.watch_s:
            raise KubeConfigError(
                f"watch_silence_s {self.watch_silence_s} must be over watch_s {self.watch_s}: "
                "a quiet watch would be taken for dead before the server ends it"
            )
