"""The CPUs' part of the picture for a terminal: the policy in a line, and what is wrong."""

from rich.text import Text

from nodeward.engine.show.cpus import head, troubles
from nodeward.model.view import NodeView

MOST_TROUBLES = 5
"""So many sentences stand in `status`; `nodeward cpus` has all."""


def cpu_lines(view: NodeView) -> list[Text]:
    """Lines to stand above the table of pods; none where no policy is at work."""
    if view.cpus is None or (view.cpus.policy in ("", "none", "null") and not view.cpus.refused):
        return []
    wrong = list(troubles(view.cpus))
    more = [f"... and {len(wrong) - MOST_TROUBLES} more, see nodeward cpus"] if len(wrong) > MOST_TROUBLES else []
    return [Text(head(view.cpus)), *(Text(line, style="red") for line in (*wrong[:MOST_TROUBLES], *more))]
