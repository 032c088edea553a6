"""What the page's server keeps of the pictures that went by: the last ten minutes of each resource, and the charges
that were refused in the last minute."""

from dataclasses import dataclass, field

from nodeward.features.limits.rows import pod_name
from nodeward.people.rows import NodeView

HISTORY = 600
"""Samples, one a second: ten minutes."""
SPARKS = 60


@dataclass(slots=True)
class Memory:
    """By resource what was used and promised at these seconds of the clock; by pod how many charges were refused in
    each of the last seconds."""

    times: list[float] = field(default_factory=list)
    used: dict[str, list[int | None]] = field(default_factory=dict)
    promised: dict[str, list[int | None]] = field(default_factory=dict)
    refusals: dict[str, int] = field(default_factory=dict)
    sparks: dict[str, list[int]] = field(default_factory=dict)

    def look(self, view: NodeView, now_s: float) -> None:
        """Takes in a view, one a second."""
        unknown: list[int | None] = [None] * len(self.times)
        self.times = [*self.times, round(now_s, 1)][-HISTORY:]
        for kept, now in ((self.used, view.usage), (self.promised, view.promised)):
            for name in view.capacity:
                kept[name] = [*kept.get(name, unknown), now.get(name)][-HISTORY:]
            for name in kept.keys() - view.capacity.keys():
                del kept[name]
        pods = (row for row in view.rows if row.level == "pod")
        refused = {pod_name(row): sum(one.refusals or 0 for one in row.resources) for row in pods}
        for pod, count in refused.items():
            more = max(0, count - self.refusals.get(pod, count))  # before the first look nothing is known
            if more or pod in self.sparks:
                self.sparks[pod] = [*self.sparks.get(pod, ()), more][-SPARKS:]
        for pod in self.sparks.keys() - refused.keys():
            del self.sparks[pod]
        self.refusals = refused
