"""Two hundred quick pods on a real containerd: when they are gone, nothing of them is left in the daemon."""

from __future__ import annotations

import dataclasses
import os
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path

from nodeward.engine.apply import apply
from nodeward.engine.pods.found import ENDED
from nodeward.engine.state.root import State
from nodeward.model.events import Event, SandboxRemoved, Started
from nodeward.wire import record
from tests.peers.churn import at_once
from tests.peers.containerd import IMAGE, Containerd, running_containerd
from tests.peers.cri import Cri, container_config, pod_config, remove_pod, start
from tests.peers.daemon import WITHIN_S, Daemon, daemon, until
from tests.peers.nriside import Json, member

FIRST, MORE = 20, 180
COUNTERS = ("goals", "goals_unreached", "lanes_stuck", "component_restarts", "record_dropped", "domain_faults")


def live_and_die(containerd: Containerd, cri: Cri, name: str) -> None:
    """One pod's life."""
    pod = pod_config(name, containerd.cgroup_parent, containerd.folder / "logs")
    remove_pod(cri, start(cri, pod, container_config("app", IMAGE))[0])


def held(node: Daemon) -> dict[str, Json]:
    """What the daemon holds: descriptors, threads, and its own counters."""
    assert node.process is not None
    own = Path(f"/proc/{node.process.pid}")
    shown = node.shown()
    assert member(shown, "health", "goals") is not None, "the counters have the names this test knows"
    return {
        "descriptors": len(os.listdir(own / "fd")),
        "threads": len(os.listdir(own / "task")),
        "rows": shown["rows"],
        **{name: member(shown, "health", name) for name in COUNTERS},
    }


def replayed(path: Path) -> tuple[list[Event], State]:
    """The events of a record and the state they lead to."""
    state, events = State(), []
    with path.open("rb") as lines:
        for line in record.read(iter(lines)):
            if isinstance(line, record.Segment):
                state = record.decode_state(line.state, State)
            elif isinstance(line, Event):
                events.append(line)
                state, _ = apply(state, line)
    return events, state


def remembered(state: State) -> dict[str, int]:
    """How many entries each table of the slices has, of those with any."""
    tables = {
        field.name: getattr(part, field.name)
        for part in (state.pods, state.limits)
        for field in dataclasses.fields(part)
    }
    return {
        name: len(table)
        for name, table in {**tables, "asks": state.asks}.items()
        if isinstance(table, Mapping | tuple) and table
    }


def test_two_hundred_quick_pods_leave_nothing_behind() -> None:
    """Given a daemon after its first pods, when many more live and die, several at once, then it holds no more."""
    with (
        tempfile.TemporaryDirectory(prefix="ctd") as runtime_folder,
        tempfile.TemporaryDirectory(prefix="nwd") as own,
        running_containerd(Path(runtime_folder)) as containerd,
        containerd.cri() as cri,
    ):
        with daemon(containerd.nri_socket, Path(own)) as node:
            until(lambda: containerd.synchronized("90-nodeward") == 1, "containerd calls the daemon")
            at_once(lambda number: live_and_die(containerd, cri, f"first-{number}"), FIRST)
            until(lambda: node.rows() == [], "the first pods are forgotten")
            before, theirs = held(node), containerd.open_files()
            at_once(lambda number: live_and_die(containerd, cri, f"more-{number}"), MORE)
            until(lambda: node.rows() == [], "all pods are forgotten")
            until(lambda: held(node) == before, f"it holds {before} again, not {held(node)}")
            until(lambda: containerd.open_files() <= theirs + 10, "containerd has closed what it had opened")
            assert containerd.synchronized("90-nodeward") == 1, "the plugin was never dropped"
            assert node.process is not None
            node.process.send_signal(signal.SIGTERM)
            assert node.process.wait(timeout=WITHIN_S) == 0

        events, state = replayed(node.record)
        assert sum(isinstance(event, Started) for event in events) == FIRST + MORE
        assert sum(isinstance(event, SandboxRemoved) for event in events) == FIRST + MORE
        assert remembered(state) == {"ended": ENDED}, "only the last ends are remembered"
        answer = node.command("replay", str(node.record))
        assert "every decision is the same, byte for byte" in answer.stdout, answer.stderr
