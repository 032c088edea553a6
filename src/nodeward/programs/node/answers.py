"""Answers on the operators' socket: the picture of the node, with the daemon's own state."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from nodeward.core.events import Event
from nodeward.core.ports import Pace, at_once
from nodeward.core.quantity import at_most
from nodeward.features.cpus.spelling import policy
from nodeward.features.gate.view import gates_view
from nodeward.features.notices.wiring import Calls
from nodeward.features.root import State
from nodeward.features.wiring import Command, Withdraw
from nodeward.host.clock import Clock
from nodeward.host.lanes import ThreadLane
from nodeward.host.process import waiting
from nodeward.host.record_writer import RecordWriter
from nodeward.host.watchdog import Watchdog
from nodeward.people.decisions import Latest
from nodeward.people.explain import explain
from nodeward.people.plan import CpuPlan, plan
from nodeward.people.rows import DecidedRow, NodeView
from nodeward.people.socket import Answers
from nodeward.people.verdict import verdict
from nodeward.people.view import node_view
from nodeward.programs.node.assemble import Inside
from nodeward.programs.node.held_rows import HeldRows
from nodeward.programs.node.oci_runtimes import OciRuntimes
from nodeward.programs.node.readiness import Readiness
from nodeward.programs.node.relay_reader import RelayReader

OFF = "off"
"""What is said of a runtime or an API server that the settings do not choose."""


@dataclass(slots=True)
class Health:
    """Counters of the whole daemon."""

    stuck: int = 0
    restarts: int = 0
    state_unread: int = 0
    """1 where the undo list could not be read at the start."""
    unwritten: Callable[[], list[str]] = list
    """Which files of its own could not be written."""


@dataclass(frozen=True, slots=True)
class DaemonParts:
    """The parts of the daemon that have something to show."""

    inside: Inside
    recorder: RecordWriter
    lanes: tuple[ThreadLane, ...]
    readiness: Readiness
    watchdog: Watchdog
    health: Health
    clock: Clock
    calls: Calls
    relay: RelayReader
    oci: OciRuntimes
    held: HeldRows
    node: str
    """Its name in the API server."""
    run_dir: str
    """Where another daemon of the node waits for this one's lock."""
    heard_ns: Callable[[], int]
    """When the API server last said anything about pods, 0 for never."""

    def view(self) -> NodeView:
        """The node now."""
        return self.snapshot()(at_once)

    def snapshot(self) -> Callable[[Pace], NodeView]:
        """The node now, still to be drawn: on any thread, since what it is drawn of never changes."""
        state, now_ns, counters = self.inside.core.state, self.clock.now_ns(), self._counters()
        decided = decided_rows(self.inside.core.took)
        rows, settings = self.readiness.rows(), self.inside.reload.row
        chosen = tuple(row.name for row in rows)
        relay, relay_fault, relay_missing = self.relay.view, self.relay.fault, self.relay.missing
        lines, wall_ns, held = self.oci.row, self.clock.wall_ns(), self.held
        sizing, gate_calls, guard, node = held.sizing(), held.gate(), held.guard(), self.node
        run_dir = self.run_dir

        def draw(pace: Pace) -> NodeView:
            shown = node_view(state, now_ns, counters, pace)
            whole = replace(
                shown,
                runtime=shown.runtime or ("" if "nri" in chosen else OFF),
                api=shown.api if "kube" in chosen else OFF,
                api_stale_since=shown.api_stale_since if "kube" in chosen else "",
                ready=all(row.ready for row in rows if row.needed),
                components=rows,
                settings=settings,
                decided=decided,
                relay=relay,
                relay_fault=relay_fault,
                relay_missing=relay_missing,
                lines=lines,
                gates=gates_view(state, wall_ns),
                sizing=sizing,
                gate_calls=gate_calls,
                vm_guard=guard,
                node=node,
                waiting=waiting(run_dir, "node"),
            )
            return replace(whole, verdict=verdict(whole))

        return draw

    def _counters(self) -> dict[str, int]:
        lag = self.watchdog.lag()
        return {
            "lanes_stuck": self.health.stuck,
            "component_restarts": self.health.restarts,
            "goals": self.inside.slots.count,
            "goals_unreached": self.inside.slots.unreached,
            "goals_quarantined": len(self.inside.slots.quarantined),
            **{f"lane_{lane.name}_waiting": lane.depth for lane in self.lanes},
            **{f"lane_{lane.name}_hung": lane.hung for lane in self.lanes},
            **{f"lane_{lane.name}_age_ms": age for lane in self.lanes if (age := lane.age_ms) is not None},
            **(
                {"watch_age_ms": (self.clock.now_ns() - heard_ns) // 1_000_000} if (heard_ns := self.heard_ns()) else {}
            ),
            **({"sample_age_ms": age} if (age := self.readiness.sample_age_ms) is not None else {}),
            "loop_lag_max_us": lag.max_us,
            "loop_lag_p99_us": lag.p99_us,
            "loop_stalls": lag.stalls,
            "not_restorable": len(self.inside.undo.not_restorable),
            "state_unread": self.health.state_unread,
            "record_dropped": self.recorder.dropped,
            "files_unwritten": len(self.health.unwritten()),
            "feature_faults": sum(self.inside.core.faults.values()),
            "notices_left_out": self.inside.core.state.notices.left_out,
            **({"relay_unread": self.held.unread()} if self.held.unread is not None else {}),
            **{f"gate_calls_{outcome}": count for outcome, count in self.held.gate().counts.items()},
            **{f"kube_events_{outcome}": count for outcome, count in self.calls.outcomes.items()},
            **{f"asks_{outcome}": count for outcome, count in self.inside.core.asks.items()},
        }


BOUNDS_BITS = (13, 15, 17, 19, 21, 23, 25, 27)
"""Bounds of the histogram, as powers of two of nanoseconds: 8 microseconds, then four times as much each."""


def decided_rows(took: Mapping[type[Event], Sequence[int]]) -> tuple[DecidedRow, ...]:
    """How long decisions took, from the core's counts by the bits of their nanoseconds."""
    return tuple(
        DecidedRow(
            kind.__name__,
            sum(counts[:-1]),
            counts[-1],
            at_most(counts, BOUNDS_BITS),
        )
        for kind, counts in took.items()
    )


def answers(
    view: Callable[[], NodeView],
    state: Callable[[], State],
    withdraw: Sequence[Withdraw] = (),
    latest: Latest | None = None,
    commands: Mapping[str, Command] | None = None,
) -> Answers:
    """The socket's answers from a picture of the node, its state, and its latest decisions; `withdraw` takes back what
    kubelet is offered, `commands` are what features have besides."""

    def explained(what: str) -> bytes | None:
        lines = explain(view(), what)
        return None if lines is None else msgspec.json.encode(lines)

    async def decommissioned(_: bytes) -> bytes:
        return msgspec.json.encode([line for one in withdraw for line in await one()])

    async def planned(section: bytes) -> bytes:
        return await asyncio.to_thread(_planned, state(), section)

    def decisions(after: int) -> bytes:
        return msgspec.json.encode(latest.rows(after) if latest is not None else ())

    commands = {"decommission": decommissioned, "plan": planned, **(commands or {})}
    return Answers(lambda: msgspec.json.encode(view()), explained, commands, decisions)


def _planned(state: State, section: bytes) -> bytes:
    """Not on the loop's thread: all containers are placed anew."""
    try:
        tree: object = msgspec.json.decode(section)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"the section policy is no JSON: {error}") from error
    faults = list[str]()
    chosen = policy.read(*policy.respelled(tree, faults), faults)
    return msgspec.json.encode(CpuPlan(tuple(faults)) if faults else plan(state, chosen))
