"""Selects and sorts the rows of a status.

Pods with a condition come first, then rows that need somebody, then names in natural order (`pod-2` before `pod-10`). A
pod's rows stay together.
Only what people see is chosen and ordered: metrics and the record have every row as it is.
"""

import re
from collections.abc import Collection, Iterable

from nodeward.features.limits.rows import CgroupRow, pod_name
from nodeward.people.verdict import urgency

_NUMBERS = re.compile(r"([0-9]+)", re.ASCII)
_MOST_DIGITS = 100
Natural = tuple[tuple[int, str], ...]


def natural(name: str) -> Natural:
    """A key that sorts the numbers in a name by value."""
    return tuple(
        (int(piece[:_MOST_DIGITS]), piece) if place % 2 else (0, piece)
        for place, piece in enumerate(_NUMBERS.split(name))
    )


def chosen(
    rows: Iterable[CgroupRow],
    namespace: str | None = None,
    states: Iterable[str] = (),
    pod: str | None = None,
    first: Collection[str] = (),
) -> tuple[CgroupRow, ...]:
    """The rows of a namespace, of these states, of a pod (its name, or NAMESPACE/POD), in the order for people."""
    wanted = tuple(states)
    rows = (
        row
        for row in rows
        if (namespace is None or row.namespace == namespace)
        and (not wanted or row.state in wanted)
        and (pod is None or pod in (row.pod, pod_name(row)))
    )
    return ordered(rows, first)


def ordered(rows: Iterable[CgroupRow], first: Collection[str] = ()) -> tuple[CgroupRow, ...]:
    """The pods named in `first` (`Verdict.pods`) in that order, then those with the most urgent state; in each pod its
    own row, then its containers."""
    rank = {name: place for place, name in enumerate(first)}
    pods: dict[tuple[str, str], list[CgroupRow]] = {}
    for row in rows:
        pods.setdefault((row.namespace, row.pod), []).append(row)
    in_order = sorted(
        pods.items(),
        key=lambda one: (
            rank.get(pod_name(one[1][0]), len(rank)),
            min(urgency(row.state) for row in one[1]),
            natural(one[0][0]),
            natural(one[0][1]),
        ),
    )
    return tuple(
        row
        for _, of_pod in in_order
        for row in sorted(of_pod, key=lambda row: (row.level != "pod", urgency(row.state), natural(row.container)))
    )
