"""The lines about CPUs in the table of `nodeward status`."""

from collections.abc import Mapping

from rich.text import Text

from nodeward.core.modes import NO_POLICY
from nodeward.features.cpus.rows import CpuHolderRow
from nodeward.features.cpus.words import head, troubles
from nodeward.people.rows import NodeView

MOST_TROUBLES = 5
"""So many sentences stand in `status`; `nodeward cpus` has all."""
_LONGEST = 14


def is_at_work(view: NodeView) -> bool:
    """Whether a policy is in force, or newer settings of one were refused."""
    return view.cpus is not None and (view.cpus.policy not in NO_POLICY or bool(view.cpus.refused))


def cpu_lines(view: NodeView) -> list[Text]:
    """The lines above the table of pods; none where no policy is at work."""
    if view.cpus is None or not is_at_work(view):
        return []
    wrong = list(troubles(view.cpus))
    more = [f"... and {len(wrong) - MOST_TROUBLES} more, see nodeward cpus"] if len(wrong) > MOST_TROUBLES else []
    return [Text(head(view.cpus)), *(Text(line, style="red") for line in (*wrong[:MOST_TROUBLES], *more))]


def cpus_by_container(view: NodeView) -> Mapping[str, str]:
    """A word of each container: its own CPUs, or the pool that it shares; `?` while the kernel does not say so yet."""
    if view.cpus is None or not is_at_work(view):
        return {}
    return {row.name: _word(row) for row in view.cpus.holders}


def _word(row: CpuHolderRow) -> str:
    own = row.own if len(row.own) <= _LONGEST else f"{row.own[: _LONGEST - 1]}…"
    said = "+".join(part for part in (own, row.pool) if part) or row.kind
    return f"{said}?" if row.state in ("pending", "failed") else said
