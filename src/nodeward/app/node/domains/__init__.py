"""The domains of the engine as this daemon runs them, one file each."""

from nodeward.app.node.domains import ledger, limits, pods
from nodeward.app.node.wiring import Wiring

WIRINGS: tuple[Wiring, ...] = (ledger.WIRING, pods.WIRING, limits.WIRING)
"""In the order in which their components start."""
