"""The rows by which the relay describes itself.

They stand apart from `view` since the relay imports them before its first call passes, and each class takes a
millisecond.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DoorRow:
    """A socket at which the relay listens, and the runtime's (or image service's) behind it. The counts begin with the
    process."""

    listen: str
    runtime: str
    present: bool | None = None
    """Whether the runtime answered the last client; None while there has been no client."""
    clients: int = 0
    """Connected now."""
    connections: int = 0
    """Clients that ever were."""
    unseen: int = 0
    """Connections that the relay could not follow."""
    undecided: int = 0
    """Held calls that could not be decided, and were answered by `limits.on_error`."""
    faults: int = 0
    """Exceptions of ours while calls passed."""


@dataclass(frozen=True, slots=True)
class CallRow:
    """Calls of one method that have ended: by gRPC's status (`none` for a call that was reset or cut off), and by what
    became of them in the relay (the words of `neighbours.cri.calls.Fate`)."""

    method: str
    results: Mapping[str, int]
    fates: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class AddedRow:
    """How long calls waited in the relay, those that pass or those that are held. `at_most` has pairs: nanoseconds, and
    how many calls waited no longer."""

    how: str
    count: int
    sum_ns: int
    at_most: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class DumpRow:
    """The dump: messages told of and left out since the process began, and the bytes that wait for its writer."""

    file: str
    told: int
    lost: int
    waiting_bytes: int
    cut: int = 0
    """Of those told of so many are not in it but for their size: they were too long, or there was no memory."""


@dataclass(frozen=True, slots=True)
class DaemonRow:
    """Who decides the calls that are held. `wants`: what they are held for; `process` is the node daemon's, 0 while
    none answers, and then `why` says it."""

    wants: tuple[str, ...] = ()
    process: int = 0
    why: str = ""
    strays: int = 0
    """Answers to what nobody had asked, or waited for any more."""


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """A cluster's configuration: the `socket` at which it is taken (empty: none is), for which node it came, when one
    was taken last (0: not in this life), and the faults of the last one, if that was refused."""

    socket: str = ""
    node: str = ""
    taken_wall_ns: int = 0
    faults: tuple[str, ...] = ()
