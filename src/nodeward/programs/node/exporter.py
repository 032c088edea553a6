"""Serves the daemon's metrics, if the settings choose it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from nodeward.features.settings import Settings
from nodeward.features.wiring import Component
from nodeward.host.lanes import ThreadLane
from nodeward.host.process import cannot_listen
from nodeward.programs.node.readiness import Readiness
from nodeward.settings.checks import address

if TYPE_CHECKING:
    from nodeward.people.metrics.server import Snapshot


def metrics(
    settings: Settings, snapshot: "Snapshot", lane: Callable[[], ThreadLane], readiness: Readiness
) -> list[Component]:
    """What Prometheus and kubelet's probe read. Where the address cannot be had, that is noted, and tried again."""
    found = address(settings.metrics.listen)
    if not settings.metrics.enabled or found is None:
        return []
    from nodeward.people.metrics import server

    host, port = found
    note = readiness.note

    def waiting() -> list[str]:
        return [f"{row.name}: {row.detail}" for row in readiness.rows() if row.needed and not row.ready]

    async def be_read() -> None:
        drawing, why = lane(), "not served"
        try:
            texts = server.Texts(snapshot, drawing)
            served = f"served at {settings.metrics.listen}"
            await server.run(host, port, texts, lambda: note("metrics", True, served), waiting)
        except OSError as error:
            failed = cannot_listen(f"metrics.listen {settings.metrics.listen}", error)
            why = str(failed)
            raise failed from error
        finally:
            note("metrics", False, why)
            drawing.close(0.0)

    return [("metrics", be_read)]
