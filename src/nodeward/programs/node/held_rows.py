"""What became of the calls that a relay held, for people."""

from collections.abc import Callable

from nodeward.features.gate.rows import GateRow
from nodeward.features.sandboxes.rows import SizingRow, VmGuardRow


class HeldRows:
    """Feature by feature; each says how it does where the settings choose it."""

    def __init__(self) -> None:
        self.sizing: Callable[[], SizingRow] = SizingRow
        self.gate: Callable[[], GateRow] = GateRow
        self.guard: Callable[[], VmGuardRow] = VmGuardRow
        self.unread: Callable[[], int] | None = None
        """Messages that told nothing, since they could not be read; None where nothing is told."""
