"""The parts of a relay, chosen by its settings."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nodeward.neighbours.cri.calls import Decider, Watcher
from nodeward.programs.relay.reload import RelayReload

if TYPE_CHECKING:
    from nodeward.neighbours.cri.pulls import PullBook
    from nodeward.programs.dump.feed import Feed
    from nodeward.programs.relay.gate import RelayGate
    from nodeward.programs.relay.limits import RelayLimits
    from nodeward.programs.relay.sizing import RelaySizing
    from nodeward.programs.relay.vm_guard import VmGuard


@dataclass(frozen=True, slots=True)
class RelayPlan:
    """What a relay is to do."""

    listen: str
    """The socket that kubelet connects to."""
    runtime: str
    """The runtime's."""
    watchers: Sequence[Watcher] = ()
    """Who sees calls, beside the counts."""
    decider: Decider | None = None
    image_listen: str = ""
    image: str = ""
    """An image service of its own, and the socket at which it is relayed."""
    dump: "Feed | None" = None
    """Opened and closed by the relay; a watcher too."""
    beside: Callable[[], Awaitable[None]] | None = None
    """What the decider does beside, until cancelled."""
    reload: RelayReload | None = None
    """Who takes over newer settings; None where these hold for good."""
    limits: "RelayLimits | None" = None
    """Who decides limits here; among the deciders and watchers too."""
    sizing: "RelaySizing | None" = None
    """Who gives VMs their size; among the deciders too."""
    gate: "RelayGate | None" = None
    """Who waits at the gates of pods; among the deciders too."""
    guard: "VmGuard | None" = None
    """Who refuses what a VM cannot do; the first of the deciders then."""
    pulls: "PullBook | None" = None
    """Who hears of image pulls; among the watchers too."""
    config_socket: str = ""
    """Where an agent's configurations are taken; empty for nowhere."""
    run_dir: str = ""
    """Where the relay says how it does; empty for nowhere."""
    dump_file: str = ""
    """What `dump` writes, to be told."""
    count_calls: bool = True
