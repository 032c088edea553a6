"""The parts of a relay, chosen by its settings."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nodeward.neighbours.cri.calls import Decider, Watcher
from nodeward.programs.relay.reload import RelayReload

if TYPE_CHECKING:
    from nodeward.neighbours.cri.asks import Asks
    from nodeward.neighbours.cri.pulls import PullBook
    from nodeward.programs.dump.feed import Feed


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
    reload: RelayReload | None = None
    """Who takes over newer settings; None where these hold for good."""
    asks: "Asks | None" = None
    """Who asks the node daemon; the decider and a watcher then."""
    wants: tuple[str, ...] = ()
    """What calls are held for."""
    beside: Callable[[], Awaitable[None]] | None = None
    """What runs beside, until cancelled."""
    pulls: "PullBook | None" = None
    """Who hears of image pulls; among the watchers too."""
    run_dir: str = ""
    """Where the relay says how it does; empty for nowhere."""
    dump_file: str = ""
    """What `dump` writes, to be told."""
    count_calls: bool = True
