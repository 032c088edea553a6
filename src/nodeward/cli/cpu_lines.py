"""The CPUs' part of the picture for a terminal: the policy in a line, and what is wrong."""

from rich.text import Text

from nodeward.engine.show.cpus import head, troubles
from nodeward.model.view import NodeView


def cpu_lines(view: NodeView) -> list[Text]:
    """Lines to stand above the table of pods; none where no policy is at work."""
    if view.cpus is None or (view.cpus.policy in ("", "none", "null") and not view.cpus.refused):
        return []
    return [Text(head(view.cpus)), *(Text(line, style="red") for line in troubles(view.cpus))]
