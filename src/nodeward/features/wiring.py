"""What a feature's wiring is: who performs its goals, and which parts of the daemon run for it.

Each feature that needs one has a `wiring.py`, and `WIRINGS` in `programs.node.assemble` names it. The modules of a part
are imported only where the settings choose it.
"""

import platform
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from nodeward.core.errors import NodewardError
from nodeward.core.ports import Perform, Tell
from nodeward.core.vms import Allocatable
from nodeward.features.root import State
from nodeward.features.settings import Settings
from nodeward.host.clock import Clock
from nodeward.host.facts import FactsByKind
from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import Lane, ThreadLane
from nodeward.host.runner import Core
from nodeward.host.slots import ByEdge, Slots
from nodeward.host.undo import Change, UndoList, at_once
from nodeward.neighbours.cgroups.hierarchy import Tree

T = TypeVar("T")


def name_of_node(settings: Settings, environ: Mapping[str, str]) -> str:
    """This node's name in the API server: the setting, the variable of the manifests, else the machine's name."""
    return settings.node_name or environ.get("NODE_NAME") or platform.node()


Component = tuple[str, Callable[[], Awaitable[None]]]
"""A name and how to start it; it runs until cancelled."""
Serve = Callable[[Callable[[], None]], Awaitable[None]]
"""Serves until cancelled; calls what it is given once it does."""
Withdraw = Callable[[], Awaitable[tuple[str, ...]]]
"""Takes back what kubelet is offered; a sentence for each resource."""
Command = Callable[[bytes], Awaitable[bytes]]
"""What a request's body, JSON, is answered: JSON. ValueError says why it cannot be."""
Note = Callable[[str, bool, str], None]
"""Name of a source, whether it is ready, and in what state."""
Remember = Callable[[str, str], None]
"""Keeps on disk what is about to be changed, and its value before."""
FIRST_PAUSE_S, LAST_PAUSE_S = 0.5, 60.0
"""Between tries of a neighbour that fails."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """The lanes for calls that can sleep. `watch` is only for those that do nothing but wait."""

    cgroup: Lane
    disk: Lane
    watch: Lane
    journal: Lane
    undo: Callable[[Callable[[], None]], None] = at_once
    """How the cgroup lane waits for the disk of the undo list."""
    record: Callable[[Callable[[], None]], None] = at_once
    """How the journal lane waits for the disk of the grants."""
    keys: Lane | None = None
    """Where the counters of keys are read; None for the cgroup lane."""


class PodFacts(Protocol):
    """What the API server says of pods, or nothing where none is chosen."""

    @property
    def heard_ns(self) -> int: ...

    @property
    def allocatable(self) -> Allocatable: ...

    async def fetch(self, fact: str, key: str) -> str: ...


@dataclass(frozen=True, slots=True)
class Node:
    """The daemon that a feature's components run in. `tell` is for what a runtime says of pods."""

    settings: Settings
    """Those of the start."""
    now: Callable[[], Settings]
    """Those that hold now."""
    files: HostFiles
    clock: Clock
    lanes: Lanes
    core: Core[State]
    slots: Slots
    by_edge: Mapping[str, ByEdge]
    tree: Tree
    undo: UndoList
    changes: Sequence[Change]
    """What an earlier life has changed."""
    facts: FactsByKind
    pods: PodFacts
    tell: Tell
    note: Note
    lane: Callable[[str], ThreadLane]
    """Makes a lane of its own for a component."""
    parts: Mapping[type, object]
    """What is made before any feature runs, by its class: see `part`."""

    def part(self, kind: type[T]) -> T:
        """The one object of this class that features above and below share."""
        found = self.parts[kind]
        assert isinstance(found, kind)
        return found


@dataclass(frozen=True, slots=True)
class Wired:
    """What runs for a feature, and how what it offers is taken back for good."""

    components: tuple[Component, ...]
    withdraw: tuple[Withdraw, ...] = ()
    commands: Mapping[str, Command] = field(default_factory=dict)
    """What a person can have it do, by the path below `/v1/` of the operators' socket."""


def serving(name: str, note: Note, path: str, serve: Serve) -> Component:
    """A component that serves the socket at `path`, and is a ready source for as long as it does."""

    async def run() -> None:
        why = f"no socket at {path}"
        try:
            await serve(lambda: note(name, True, f"answers at {path}"))
        except (OSError, NodewardError) as error:
            why = str(error)
            raise
        finally:
            note(name, False, why)

    return name, run


def _nobody(_: HostFiles, __: Tree, ___: Remember) -> Mapping[str, Perform | ByEdge]:
    return {}


@dataclass(frozen=True, slots=True)
class Wiring:
    """What a feature needs of the daemon."""

    components: Callable[[Node], Wired] = lambda _: Wired(())
    performers: Callable[[HostFiles, Tree, Remember], Mapping[str, Perform | ByEdge]] = _nobody
    """Who performs its goals, by kind."""
