"""The rows by which the relay describes itself.

They stand apart from `view` since the relay imports them before its first call passes, and each class takes a
millisecond.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeward.core.shown import Label, Metric, Total, counter, gauge, shown, shows


@dataclass(frozen=True, slots=True)
class DoorRow:
    """A socket at which the relay listens, and the runtime's (or image service's) behind it. The counts begin with the
    process."""

    listen: str = field(metadata=shown(Label()))
    runtime: str = field(metadata=shown(Label(named=True)))
    present: bool | None = gauge(
        "nodeward_relay_runtime_up", "1 if the runtime answered the last client, else 0.", labels=("listen", "runtime")
    )
    """Whether the runtime answered the last client; None while there has been no client."""
    clients: int = gauge("nodeward_relay_clients", "Clients connected to this socket.", default=0)
    connections: int = counter("nodeward_relay_connections_total", "Clients that ever connected.", default=0)
    unseen: int = counter(
        "nodeward_relay_unseen_connections_total", "Connections that the relay could not follow.", default=0
    )
    undecided: int = counter(
        "nodeward_relay_undecided_total", "Held calls not decided and answered by limits.on_error.", default=0
    )
    faults: int = counter("nodeward_relay_faults_total", "Faults of the relay while calls passed.", default=0)


def _held(fates: Mapping[str, int]) -> Mapping[str, int]:
    return {name: count for name, count in fates.items() if name != "passed"}


@dataclass(frozen=True, slots=True)
class CallRow:
    """Calls of one method that have ended: by gRPC's status (`none` for a call that was reset or cut off), and by what
    became of them in the relay (the words of `neighbours.cri.calls.Fate`)."""

    method: str = field(metadata=shown(Label()))
    results: Mapping[str, int] = field(
        metadata=shown(
            Total("nodeward_relay_calls_total", "Relayed CRI calls that have ended, by gRPC status.", by="result")
        )
    )
    fates: Mapping[str, int] = field(
        metadata=shown(
            Total("nodeward_relay_decisions_total", "Calls that were held, by outcome.", by="outcome", of=_held)
        )
    )


@dataclass(frozen=True, slots=True)
class AddedRow:
    """How long calls waited in the relay, those that pass or those that are held. `at_most` has pairs: nanoseconds, and
    how many calls waited no longer."""

    how: str = field(metadata=shown(Label()))
    count: int
    sum_ns: int
    at_most: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class DumpRow:
    """The dump: messages told of and left out since the process began, and the bytes that wait for its writer."""

    file: str
    told: int = field(
        metadata=shown(Total("nodeward_relay_dump_told_total", "Messages and ends of calls given to the dump."))
    )
    lost: int = field(
        metadata=shown(Total("nodeward_relay_dump_lost_total", "Messages for which the dump had no room."))
    )
    waiting_bytes: int
    cut: int = counter(
        "nodeward_relay_dump_cut_total",
        "Messages too long for the dump or the relay's memory: it has only their size.",
        default=0,
    )


@dataclass(frozen=True, slots=True)
class DaemonRow:
    """Who decides the calls that are held. `wants`: what they are held for; `process` is the node daemon's, 0 while
    none answers, and then `why` says it."""

    wants: tuple[str, ...] = ()
    process: int = 0
    why: str = ""
    strays: int = 0
    """Answers to what nobody had asked, or waited for any more."""

    @property
    @shows(Metric("nodeward_relay_decided", "1 while the daemon decides calls that the relay holds, else 0."))
    def decides(self) -> bool | None:
        """None where none is held."""
        return bool(self.process) if self.wants else None


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """A cluster's configuration: the `socket` at which it is taken (empty: none is), for which node it came, when one
    was taken last (0: not in this life), and the faults of the last one, if that was refused."""

    socket: str = ""
    node: str = ""
    taken_wall_ns: int = 0
    faults: tuple[str, ...] = ()
