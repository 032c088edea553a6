"""What the daemon decided of late, told from one view of the node to the next: for the live view of `sim`."""

from collections import deque
from dataclasses import dataclass

from nodeward.features.limits.rows import CgroupRow
from nodeward.features.limits.words import amount
from nodeward.people.rows import NodeView

KEPT = 5


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision in two lines: what holds for whom, and why."""

    what: str
    why: str


class LatestDecisions:
    """The last decisions, oldest first. A row that is new, or whose limit, rule or source is another, is one; so is a
    limit that is written again.
    """

    def __init__(self) -> None:
        self.latest: deque[Decided] = deque(maxlen=KEPT)
        self._rows: dict[str, CgroupRow] = {}

    def look(self, view: NodeView) -> None:
        """Takes in a newer view."""
        for row in view.rows:
            before = self._rows.get(row.cgroup)
            if before is None or _decision(before) != _decision(row):
                self.latest.append(Decided(f"{_name(row)}: {_wanted(row)}, from {row.source}", row.rule))
            if row.repairs > (before.repairs if before is not None else 0):
                why = f"It was found changed in the kernel; repaired {row.repairs} time(s) in the last five minutes."
                self.latest.append(Decided(f"{_name(row)}: {_wanted(row)} is written again", why))
        self._rows = {row.cgroup: row for row in view.rows}


def _decision(row: CgroupRow) -> object:
    return [(one.resource, one.wanted) for one in row.resources if one.wanted is not None], row.rule, row.source


def _name(row: CgroupRow) -> str:
    return f"{row.namespace}/{row.pod}" + (f"/{row.container}" if row.level == "container" else " (pod)")


def _wanted(row: CgroupRow) -> str:
    limits = [f"{one.resource} {amount(one.resource, one.wanted)}" for one in row.resources if one.wanted is not None]
    return ", ".join(limits) or "no limit"
