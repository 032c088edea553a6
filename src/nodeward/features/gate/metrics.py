"""The metrics of gates: how many pods asked, and how many containers were refused."""

from collections.abc import Iterator

from nodeward.core.ports import Pace
from nodeward.core.shown import Clean, Series, counter, gauge
from nodeward.features.gate.rows import GatesView

PODS = gauge("nodeward_gate_pods", ("state",), "Pods that asked at their gate: open or shut.")
REFUSED = counter(
    "nodeward_gate_refused_total", (), "Containers refused over NRI at a shut gate; in observe, those it would refuse."
)
FAMILIES = PODS, REFUSED


def series(view: GatesView, _: Clean, __: Pace) -> Iterator[Series]:
    """Each family with its series."""
    shut = sum(bool(row.why) for row in view.rows)
    yield PODS, [({"state": "open"}, len(view.rows) - shut), ({"state": "shut"}, shut)]
    yield REFUSED, [({}, view.refused)]
