"""What changed between two pictures of a node that somebody should hear of, in one line each.

For a person who watches: a fault of two seconds is over before he reads the table. It compares pictures, so what came
and went between them is not told.
"""

from nodeward.features.limits.rows import CgroupRow, pod_name
from nodeward.people.rows import NodeView
from nodeward.people.verdict import urgency

MOST = 4
"""So many lines are kept on the screen."""
_GOOD = urgency("enforced")


def happened(before: NodeView | None, after: NodeView) -> list[str]:
    """New faults of cgroups and sources, those that are over, and charges that were refused since."""
    if before is None:
        return []
    known = {row.cgroup: row for row in before.rows}
    lines = [line for row in after.rows if (line := _of_row(known.get(row.cgroup), row))]
    ready = {one.name: one.ready for one in before.components}
    for one in after.components:
        if one.ready != ready.get(one.name, one.ready):
            lines.append(f"{one.name} is {'ready again' if one.ready else 'not ready'}: {one.detail}")
    return lines


def _of_row(before: CgroupRow | None, row: CgroupRow) -> str:
    name = pod_name(row) + (f"/{row.container}" if row.container else "")
    then = before.state if before is not None else ""
    if row.state != then and (urgency(row.state) < _GOOD or urgency(then) < _GOOD):
        return f"{name} is {row.state}" + (f", was {then}" if then else "")
    if before is not None:
        counted = {one.resource: one.refusals_here or 0 for one in before.resources}
        for one in row.resources:
            more = (one.refusals_here or 0) - counted.get(one.resource, 0)
            if more > 0:
                return f"{name} was refused {one.resource} {more} more time{'s' if more > 1 else ''}"
    return ""
