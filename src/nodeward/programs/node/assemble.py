"""Puts the daemon together: core, slots, undo list, sampler, and files on disk.

Nothing here knows sockets, signals or threads: lanes and clock are given. So `programs.node.run` wires a node's daemon
by it, and the simulated histories of the tests wire the same daemon on virtual time. What starts first is decided here:
what the kernel has, what the disk remembers, and only then everyone who may ask.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from nodeward.core import events as ev
from nodeward.core.modes import Mode
from nodeward.core.ports import Tell
from nodeward.core.topology import Machine
from nodeward.features.all import ENGINE, FEATURES
from nodeward.features.cpus import wiring as cpus
from nodeward.features.cpus.effects.grants import CpuGrants
from nodeward.features.cpus.values import CpusRecalled
from nodeward.features.gate import wiring as gate
from nodeward.features.keys import wiring as keys
from nodeward.features.keys.effects.grants import BOOT, Grants, GrantsBoot, Recalled, may_grant, on_record, path_in
from nodeward.features.keys.loss import is_frozen
from nodeward.features.limits import wiring as limits
from nodeward.features.notices import wiring as notices
from nodeward.features.pods import found
from nodeward.features.pods import wiring as pods
from nodeward.features.pods.effects import last_known
from nodeward.features.root import State
from nodeward.features.sandboxes import wiring as sandboxes
from nodeward.features.settings import Settings
from nodeward.features.wiring import Component, Lanes, Wiring
from nodeward.host import record_writer
from nodeward.host import undo as undo_list
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles, ensure_folder
from nodeward.host.journal import Journal
from nodeward.host.lanes import Lane
from nodeward.host.record_writer import RecordWriter
from nodeward.host.runner import Core, Facts, Performs
from nodeward.host.slots import GATHER_S, Slots
from nodeward.host.undo import Change, UndoList
from nodeward.neighbours.cgroups import sampler, watcher
from nodeward.neighbours.cgroups.finder import Finder, Turn
from nodeward.neighbours.cgroups.hierarchy import Tree, read_capacity
from nodeward.neighbours.cgroups.v1_cleanup import V1Cleanup
from nodeward.neighbours.sysfs import topology
from nodeward.people.decisions import Latest
from nodeward.programs.node import doors
from nodeward.programs.node.readiness import Readiness
from nodeward.settings import policy_object
from nodeward.settings.policy_object import ChosenPolicy
from nodeward.settings.reload import Reload
from nodeward.settings.source import SettingsSource

log = logging.getLogger(__name__)
WIRINGS: tuple[Wiring, ...] = (
    *(keys.WIRING, pods.WIRING, notices.WIRING, cpus.WIRING, limits.WIRING, doors.WIRING, sandboxes.WIRING),
    gate.WIRING,
)
"""The features as this daemon runs them, in the order in which their components start."""
Pinned = tuple[str, CpusRecalled]
"""The boot, and what the process that drove the CPU policy before has written down; `cpu_grants.read`."""
NO_RECORD: Pinned = ("", CpusRecalled())
"""Nothing was written down, and nothing is to be: this process drives no policy."""
FLUSH_S = 0.25
CGROUP_DEADLINE_S = 5.0
DISK_DEADLINE_S = 30.0
UNDO_S = 1.0
"""So long a limit waits for the undo list's disk; several of them are less than CGROUP_DEADLINE_S."""
START_S = 1.0
"""So long a start waits for what the state folder remembers, and for what the kernel has."""
WATCH_DEADLINE_S = watcher.WAIT_S + 5.0


@dataclass(frozen=True, slots=True)
class OnDisk:
    """What the disk had at the start."""

    changes: tuple[Change, ...] = ()
    """Those that hold in this boot."""
    remembered: last_known.Remembered = field(default_factory=last_known.Remembered)
    recorded_bytes: int = 1
    """Not 0 where it is not known: then a record begins with a line break, whatever stands before."""
    unread: bool = True
    """Whether the undo list could not be read, or nothing could: what an earlier life changed is not known."""
    gates: ev.GateRecalled = field(default_factory=gate.unread)
    begun: str = ""
    """The boot in which a journal of grants was begun last; empty where that is not known, or none can be."""
    chosen: ChosenPolicy | None = None
    """The policy object that was in force."""


def on_disk(files: HostFiles, settings: Settings) -> OnDisk:
    """What the disk remembers. May sleep: not for the loop's thread."""
    make_own_folder(files, settings.state_dir)
    make_own_folder(files, settings.run_dir)  # the journal of grants is there
    remembered = last_known.read(files, settings.state_dir)
    recorded = record_writer.size(files, settings.record.path)
    boot = (BOOT.known(files, settings.state_dir) or "") if may_grant(settings) else ""
    gates = gate.read(files, settings)
    chosen = policy_object.kept(files, settings)
    try:
        standing = tuple(undo_list.standing(files, settings.state_dir))
        return OnDisk(standing, remembered, recorded, False, gates, boot, chosen)
    except OSError as error:
        log.error("undo=unreadable folder=%s error=%s", settings.state_dir, error)
        return OnDisk((), remembered, recorded, gates=gates, begun=boot, chosen=chosen)


@dataclass(frozen=True, slots=True)
class InKernel:
    """What the kernel had at the start. The sampler tells what comes later, and uses the same `tree`."""

    tree: Tree
    read: ev.CapacityRead
    machine: Machine | None = None
    """Its CPUs; None where they could not be read."""


def in_kernel(files: HostFiles, tree: Tree) -> InKernel:
    """Reads where the misc controller is, and what the node has. May sleep: not for the loop's thread."""
    tree.look()
    machine = topology.read(files)
    return InKernel(tree, read_capacity(files, tree), machine if machine.online else None)


@dataclass(frozen=True, slots=True)
class Inside:
    """What was put together. `tell` is for the edges: `readiness` overhears it on its way to the core."""

    core: Core[State]
    latest: Latest
    slots: Slots
    undo: UndoList
    tree: Tree
    reader: sampler.Reader
    reload: Reload
    tell: Tell
    grants: Grants
    pins: CpuGrants
    components: tuple[Component, ...]
    """Not running yet."""


def wire(
    settings: Settings,
    files: HostFiles,
    clock: Clock,
    lanes: Lanes,
    recorder: RecordWriter,
    readiness: Readiness,
    facts: Facts,
    kernel: InKernel,
    disk: OnDisk,
    recalled: Recalled,
    source: SettingsSource | None = None,
    calls: Performs | None = None,
    pinned: Pinned = NO_RECORD,
) -> Inside:
    """The inside of a daemon that knows what kernel and disk know. Belongs to the running loop's thread."""
    journal = Journal(files, path_in(settings.run_dir), lanes.journal, lanes.record)
    note = GrantsBoot(files, settings.state_dir, lanes.disk, disk.begun)
    grants = Grants(files, settings, journal, recalled, note)
    undo = UndoList(files, settings.state_dir, lanes.undo, disk.changes)
    tree = kernel.tree
    later = partial(asyncio.get_running_loop().call_later, GATHER_S)
    performers = [wiring.performers(files, tree, undo.remember) for wiring in WIRINGS]
    slots = Slots(lanes.cgroup, {kind: one for of in performers for kind, one in of.items()}, clock, later)
    for feature in FEATURES:
        slots.require(feature.name, feature.kinds)
    kept = recorder if settings.record.path else None
    began = policy_object.overlaid(settings, disk.chosen)
    latest = Latest()
    core = Core(State(settings=began.engine), ENGINE, clock, slots, facts, grants.commit, kept, calls, latest.add)
    tell = readiness.listens(core.tell)
    grants.now, grants.waits = lambda: on_record(core.state), lambda: is_frozen(core.state.keys)
    if may_grant(settings):
        grants.recall(core.tell)
    pins = CpuGrants(core, files, settings.run_dir, lanes.journal, lanes.record)
    pins.begin(*pinned)
    _recall(core, tell, kernel, disk.remembered)
    if settings.gate.mode is not Mode.OFF:
        core.tell(disk.gates)
    reader, watch = sampler.Reader(files, tree), watcher.Watcher(files, tree)

    def wanted() -> list[str]:
        return list(core.state.limits.wanted)

    reload = Reload(settings, source, files, lanes.disk, clock, disk.chosen)
    components: tuple[Component, ...] = (
        ("cgroups", _sampling(settings, files, tree, lanes.cgroup, reader, core, readiness, tell, clock)),
        ("refusals", lambda: watcher.run(lanes.watch, watch, wanted, core.tell, core.seq, clock)),
        ("record", lambda: _flush(recorder, clock)),
        ("undo", lambda: undo.keep(lanes.cgroup, clock)),
        ("last-good", reload.keep),
        ("cpus-record", lambda: pins.keep(clock)),
        ("disk", lambda: last_known.keep(lambda: core.state.pods, files, lanes.disk, settings.state_dir, clock)),
    )
    return Inside(core, latest, slots, undo, tree, reader, reload, tell, grants, pins, components)


def _recall(core: Core[State], tell: Tell, kernel: InKernel, remembered: last_known.Remembered) -> None:
    """What the kernel has, and what the disk remembers, before anybody may ask."""
    read = kernel.read
    if not (read.controller or read.tree.fault):  # a fault has been logged when it was found
        log.warning("this kernel has no misc controller: nothing can be enforced")
    tell(read)
    if kernel.machine is not None:
        core.tell(ev.TopologyRead(kernel.machine))
    if remembered.pods:
        core.tell(ev.PodsListed(remembered.pods, as_of=0))
        core.tell(ev.ApiLost("not reached yet", since_wall_ns=remembered.at_wall_ns))


def _sampling(
    settings: Settings,
    files: HostFiles,
    tree: Tree,
    lane: Lane,
    reader: sampler.Reader,
    core: Core[State],
    readiness: Readiness,
    tell: Tell,
    clock: Clock,
) -> Callable[[], Awaitable[None]]:
    finder, leftovers = Finder(files, tree, settings.cgroups.kubelet_root), V1Cleanup(files, tree)
    turn = Turn(lambda: bool(readiness.waiting(("nri", "relay"))), clock)

    def scope() -> sampler.Scope:
        pods = core.state.pods
        wanted = core.state.limits.wanted
        watched = [path for path in found.by_cgroups(pods) if path not in wanted]  # all of them while limits are off
        sweep = core.state.settings.limits.mode is Mode.ENFORCE
        known = partial(found.is_known, pods)
        return sampler.Scope(list(wanted), found.parents(pods), known, turn.has_come(), sweep, watched)

    def known() -> dict[str, ev.MiscReading]:
        return {path: read.reading for path, read in core.state.limits.readings.items()}

    period_s = settings.cgroups.period_s
    return lambda: sampler.run(lane, reader, finder, scope, known, tell, core.seq, clock, period_s, leftovers)


def make_own_folder(files: HostFiles, path: str) -> None:
    """Makes the folder and those above it. Where that fails the daemon goes on, and who cannot write there says so."""
    try:
        ensure_folder(files, path.rstrip("/"))
    except OSError as error:
        log.error("folder=missing path=%s error=%s", error.filename or path, error)


async def _flush(recorder: RecordWriter, clock: Clock) -> None:
    """Writes what is recorded, at most FLUSH_S late."""
    while True:
        recorder.flush()
        await clock.sleep(FLUSH_S)
