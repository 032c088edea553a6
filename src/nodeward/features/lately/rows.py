"""Rows of what happened lately, as people read them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HappenedRow:
    """Something that happened `count` times to a pod (empty for the node) and may be over. Times are RFC 3339."""

    code: str
    pod: str
    count: int
    since: str
    last: str
    why: str = ""
