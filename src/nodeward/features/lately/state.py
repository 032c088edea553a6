"""What happened lately and may be over: kills, refusals, late starts, drift."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened to a pod, `count` times with no pause of LATELY_NS. `pod` is NAMESPACE/POD, empty for the
    node or where too many were affected; `why` is of the last time."""

    code: str
    pod: str
    count: int
    first_wall_ns: int
    last_wall_ns: int
    last_ns: int
    why: str = ""
