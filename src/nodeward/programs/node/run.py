"""The node daemon's process: threads, sockets, components, and the end.

`run` is its only entry. It is given the host's files and a clock, so the same code runs on a machine and in
`nodeward sim`. `programs.node.assemble` puts the inside together; here are the threads, the sockets and the end.
"""

import asyncio
import gc
import logging
import os
import random
import sys
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from nodeward import __version__
from nodeward.core import events as ev
from nodeward.core.cgroup import Hierarchy
from nodeward.core.modes import Mode
from nodeward.features.cpus.effects import grants as cpu_grants
from nodeward.features.cpus.values import CpusRecalled
from nodeward.features.gate.wiring import Gates
from nodeward.features.keys.effects import grants
from nodeward.features.keys.effects.grants import Recalled
from nodeward.features.notices.wiring import Calls
from nodeward.features.podapi import wiring as podapi
from nodeward.features.podapi.effects import devices as pod_devices
from nodeward.features.pods.wiring import known_pods
from nodeward.features.settings import Settings
from nodeward.features.wiring import Component, Lanes, Node, Note, name_of_node
from nodeward.host import sd_notify
from nodeward.host.backoff import Backoff
from nodeward.host.bounded import BoundedCalls
from nodeward.host.clock import Clock
from nodeward.host.facts import FactsByKind
from nodeward.host.hostfs import HostFiles, OsFiles
from nodeward.host.lanes import ThreadLane
from nodeward.host.record_writer import RecordWriter
from nodeward.host.supervise import WorkEndedError, forever
from nodeward.host.watchdog import Watchdog
from nodeward.neighbours.cgroups.hierarchy import Tree
from nodeward.people.socket import run as run_local
from nodeward.programs.node import assemble, exporter
from nodeward.programs.node.answers import DaemonParts, Health, answers
from nodeward.programs.node.assemble import WIRINGS, InKernel, Inside, OnDisk, Pinned
from nodeward.programs.node.held_rows import HeldRows
from nodeward.programs.node.oci_runtimes import OciRuntimes
from nodeward.programs.node.readiness import Readiness, tell_systemd
from nodeward.programs.node.relay_reader import RelayReader
from nodeward.settings.source import SettingsSource


def pushes(settings: Settings, inside: Inside, source: SettingsSource | None) -> tuple[Component, ...]:
    """The component, or none."""
    path = settings.agent.config_socket
    if not path or source is None or source.pushed is None:
        return ()
    from nodeward.neighbours.resmgr import config  # only where it is chosen

    push = partial(inside.reload.push, tell=inside.tell, unfit=lambda: inside.core.state.cpus.refused)
    return (("config-socket", lambda: config.serve(path, push)),)


log = logging.getLogger(__name__)
SOCKET = "nodeward.sock"
T = TypeVar("T")


async def run(settings: Settings, files: HostFiles, clock: Clock, source: SettingsSource | None = None) -> None:
    """The daemon, until cancelled, or until the runtime that started it as its plugin is gone.

    `source` is where newer settings come from; without it these hold for good."""
    node_name = name_of_node(settings, os.environ)
    log.info("daemon begins version=%s mode=%s node=%s", __version__, settings.limits.mode.value, node_name)
    sys.setswitchinterval(0.0005)  # a lane's thread gives the loop thread back within half a millisecond
    systemd = sd_notify.from_environment(os.environ, os.getpid())
    watchdog = Watchdog(partial(systemd.tell, sd_notify.WATCHDOG), systemd.watchdog_s / 2)
    health, holder = Health(unwritten=files.unwritten if isinstance(files, OsFiles) else list), list[Inside]()
    lane = _lanes(health)
    threads = (
        lane("cgroup", assemble.CGROUP_DEADLINE_S),
        lane("disk", assemble.DISK_DEADLINE_S),
        lane("watch", assemble.WATCH_DEADLINE_S),
        lane("journal", assemble.DISK_DEADLINE_S),
    )
    undoing, recording = BoundedCalls("nodeward-undo", assemble.UNDO_S), BoundedCalls("nodeward-grants", grants.LATE_S)
    # kubelet waits for the counters of keys at each Allocate, and a job of the cgroup lane reads every container
    counting = [lane("keys", assemble.CGROUP_DEADLINE_S)] if settings.keys.mode is not Mode.OFF else []
    lanes = Lanes(*threads, undoing, recording, *counting)
    kernel, disk, recalled, pinned = await asyncio.gather(
        _in_kernel(settings, files), _on_disk(settings, files), _granted(settings, files), _pinned(settings, files)
    )
    recorder = RecordWriter(files, lanes.disk, settings.record.path, settings.record.max_bytes, disk.recorded_bytes)
    changed = asyncio.Event()
    readiness = Readiness(settings, clock, changed.set)
    calls = Calls(lambda event: holder[0].tell(event), clock)
    facts = FactsByKind()
    inside = assemble.wire(
        settings, files, clock, lanes, recorder, readiness, facts, kernel, disk, recalled, source, calls, pinned
    )
    holder.append(inside)
    health.state_unread = int(disk.unread)
    pods = known_pods(settings, clock, inside.core)
    relay, oci = RelayReader(settings.run_dir, clock, wanted=bool(settings.relayed)), OciRuntimes(settings, files)
    held, devices = HeldRows(), pod_devices.PodDevices(settings, files, inside.core, clock)
    gates = Gates(inside.core, files, lanes.disk, settings, clock)
    node = Node(
        *(settings, lambda: inside.reload.settings, files, clock, lanes),
        *(inside.core, inside.slots, inside.slots.by_edge, inside.tree, inside.undo),
        *(disk.changes, facts, pods, pods.listens(inside.tell), readiness.note),
        lambda name: lane(name, assemble.DISK_DEADLINE_S),
        {type(one): one for one in (inside.grants, calls, gates, oci, held, devices)},
    )
    parts = DaemonParts(
        *(inside, recorder, (*threads, *counting), readiness, watchdog, health, clock, calls, relay, oci, held),
        node_name,
        settings.run_dir,
        lambda: pods.heard_ns,
    )
    wired = [wiring.components(node) for wiring in WIRINGS]
    withdraw = [one for of in wired for one in of.withdraw]
    commands = {path: command for of in wired for path, command in of.commands.items()}
    chosen: list[Component] = [
        *inside.components,
        ("settings", lambda: inside.reload.run(inside.tell, systemd)),
        *pushes(settings, inside, source),
        ("systemd", lambda: tell_systemd(systemd, readiness, changed)),
        ("relay", relay.run),
        (
            "local",
            lambda: run_local(
                f"{settings.run_dir}/{SOCKET}",
                answers(parts.view, lambda: inside.core.state, withdraw, inside.latest, commands),
            ),
        ),
        *(component for of in wired for component in of.components),
        *devices.components(node.lane, node.note),
        *podapi.components(node, pods, devices),
        *_policy_objects(settings, clock, inside, readiness.note),
        *exporter.metrics(settings, parts.snapshot, partial(node.lane, "metrics"), readiness),
    ]
    await _live(chosen, parts, systemd)


def _policy_objects(settings: Settings, clock: Clock, inside: Inside, note: Note) -> list[Component]:
    """What follows the policy objects of the API server, where the settings choose it."""
    if not settings.policy_objects.enabled:
        return []
    from nodeward.settings import follow_object

    return follow_object.components(settings, clock, inside.core, inside.tell, inside.reload, note)


def _lanes(health: Health) -> Callable[[str, float], ThreadLane]:
    """Makes lanes of the running loop; a job of theirs that is past its deadline is counted and logged."""
    loop = asyncio.get_running_loop()

    def stuck(lane: str, job: str) -> None:
        health.stuck += 1
        log.warning("lane=%s stuck job=%s", lane, job)

    return lambda name, deadline_s: ThreadLane(name, loop, partial(stuck, name), deadline_s=deadline_s)


async def _on_disk(settings: Settings, files: HostFiles) -> OnDisk:
    """What the disk remembers, if it tells soon. A start does not hang where it does: limits matter more."""
    found = await _soon(partial(assemble.on_disk, files, settings))
    if found is None:
        why = f"not read within {assemble.START_S:g} s: the disk hangs"
        log.error("state=unread folder=%s record=%s why=%r", settings.state_dir, settings.record.path, why)
    return found or OnDisk()


async def _in_kernel(settings: Settings, files: HostFiles) -> InKernel:
    """What the kernel has, if it tells soon. Else nothing can be limited until the sampler has read it, and that is
    said."""
    root = settings.cgroups.root
    tree = Tree(files, root)
    found = await _soon(partial(assemble.in_kernel, files, tree))
    if found is None:
        fault = f"{root} was not read within {assemble.START_S:g} s: a call hangs in the kernel"
        log.error("cgroups=unread root=%s fault=%r", root, fault)
        found = InKernel(tree, ev.CapacityRead(controller=False, tree=Hierarchy(2, root, root, fault)))
    return found


async def _soon(read: Callable[[], T]) -> T | None:
    """What a call that may sleep returns, or None where it has not come back within START_S; it goes on then."""
    reading = asyncio.get_running_loop().run_in_executor(None, read)
    try:
        return await asyncio.wait_for(reading, assemble.START_S)
    except TimeoutError:
        return None


async def _granted(settings: Settings, files: HostFiles) -> Recalled:
    """What was granted, if the run folder's disk tells soon; else it is read again while the daemon lives."""
    found = await _soon(partial(grants.read, files, settings))
    if found is not None:
        return found
    why = f"{grants.path_in(settings.run_dir)} is not read within {assemble.START_S:g} s: the disk hangs"
    return Recalled(fault=why)


async def _pinned(settings: Settings, files: HostFiles) -> Pinned:
    """Which CPUs containers had, if the run folder's disk tells soon."""
    found = await _soon(partial(cpu_grants.read, files, settings.run_dir))
    if found is not None:
        return found
    path, boot = cpu_grants.path_in(settings.run_dir), await _soon(partial(cpu_grants.boot_of, files))
    return boot or "", CpusRecalled(fault=f"{path} is not read within {assemble.START_S:g} s: the disk hangs")


async def _live(chosen: list[Component], parts: DaemonParts, systemd: sd_notify.Notifier) -> None:
    """Runs what is chosen; at the end lets what was decided reach the disk and the kernel."""
    gc.collect()
    gc.freeze()  # what lives as long as the process: else each full collection walks it, for 20 ms of a runtime's time
    gc.set_threshold(*gc.get_threshold()[:2], 100)  # a full node's state is walked for 4 to 8 ms: a tenth as often
    parts.watchdog.start()
    try:
        await _supervise(chosen, parts.clock, parts.health)
    finally:
        systemd.tell(sd_notify.STOPPING)
        parts.inside.core.close()
        await parts.inside.pins.end()
        parts.inside.slots.begin()
        parts.recorder.flush()
        for lane in parts.lanes:
            lane.close(0.0 if lane.name == "watch" else 2.0)  # that one only waits
        parts.watchdog.close()
        systemd.close()


async def _supervise(chosen: list[Component], clock: Clock, health: Health) -> None:
    def failed(_: str, __: BaseException) -> None:
        health.restarts += 1

    try:
        async with asyncio.TaskGroup() as group:
            for name, start in chosen:
                group.create_task(forever(name, start, clock, Backoff(0.2, 10.0, random.random), failed), name=name)
    except* WorkEndedError as ended:
        log.info("daemon ends why=%r", str(ended.exceptions[0]))
