"""What happened lately and may be over: kills, refusals, late starts, drift."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Happening:
    """An event that happened to a pod `count` times, each within LATELY_NS of the one before. `pod` is NAMESPACE/POD,
    empty for the node or where too many were affected; `why` is of the last time."""

    code: str
    pod: str
    count: int
    first_wall_ns: int
    last_wall_ns: int
    last_ns: int
    why: str = ""
