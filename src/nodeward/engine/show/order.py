"""The order in which people read pods: who has a problem first, then by name, with numbers as numbers."""

import re
from collections.abc import Iterable

from nodeward.model.rows import CgroupRow
from nodeward.model.view import pod_name

_WORST = ("drift", "outside", "stale", "controller-off", "unsupported", "unknown")
MOST_CHARACTERS = 512


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """A key that sorts `pod-2` before `pod-10`."""
    parts = re.findall(r"[0-9]+|[^0-9]+", text[:MOST_CHARACTERS])
    return tuple((0, int(one), "") if one.isascii() and one.isdecimal() else (1, 0, one) for one in parts)


def rank(state: str) -> int:
    """The lower, the worse."""
    return _WORST.index(state) if state in _WORST else len(_WORST)


def by_pod(rows: Iterable[CgroupRow]) -> dict[str, list[CgroupRow]]:
    """The rows of each pod, by its name as it is shown; pods in the order in which people read them."""
    found: dict[str, list[CgroupRow]] = {}
    for row in rows:
        found.setdefault(pod_name(row), []).append(row)
    return dict(sorted(found.items(), key=lambda one: (min(rank(row.state) for row in one[1]), natural(one[0]))))
