"""The node daemon: chooses components by the settings, connects edges to the core, keeps them alive.

`run` is its only entry. It is given the host's files and a clock, so the same code runs on a machine and in
`nodeward sim`. Order at the start: what the kernel has, what the disk remembers, then everyone who may ask.
"""

import asyncio
import gc
import logging
import os
import random
import sys
from collections.abc import Awaitable, Callable
from functools import partial

from nodeward.aio import sd_notify
from nodeward.aio.backoff import Backoff
from nodeward.aio.clock import Clock
from nodeward.aio.executor import DaemonExecutor
from nodeward.aio.hostfs import HostFiles
from nodeward.aio.lanes import ThreadLane
from nodeward.aio.supervise import WorkEndedError, forever
from nodeward.aio.watchdog import Watchdog
from nodeward.app import components, last_known
from nodeward.app.answers import Health, Parts, answers
from nodeward.app.components import Component
from nodeward.app.core import Core
from nodeward.app.goals import Slots
from nodeward.app.readiness import Readiness, tell_systemd
from nodeward.app.record import RecordWriter
from nodeward.app.reload import Reload, SettingsSource
from nodeward.app.undo import UndoList
from nodeward.edges.cgroups import sampler, watcher
from nodeward.edges.cgroups.finder import Finder, Turn
from nodeward.edges.local.server import run as run_local
from nodeward.engine.pods import found
from nodeward.engine.state import State
from nodeward.model import events as ev
from nodeward.model.ports import Tell
from nodeward.model.settings import Settings

log = logging.getLogger(__name__)
SOCKET = "nodeward.sock"
FLUSH_S = 0.25
CGROUP_DEADLINE_S = 5.0
WATCH_DEADLINE_S = watcher.WAIT_S + 5.0
DISK_DEADLINE_S = 30.0


async def run(settings: Settings, files: HostFiles, clock: Clock, source: SettingsSource | None = None) -> None:
    """The daemon, until cancelled, or until the runtime that started it as its plugin is gone.

    `source` is where newer settings come from; without it these hold for good."""
    sys.setswitchinterval(0.0005)  # a lane's thread gives the loop thread back within half a millisecond (DESIGN 3)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(DaemonExecutor())
    systemd = sd_notify.from_environment(os.environ, os.getpid())
    watchdog = Watchdog(partial(systemd.tell, sd_notify.WATCHDOG), systemd.watchdog_s / 2)
    health = Health()
    holder: list[Core] = []

    def stuck(lane: str, job: str) -> None:
        health.stuck += 1
        log.warning("lane=%s stuck job=%s", lane, job)
        holder[0].tell(ev.LaneStuck(lane, job))

    cgroup_lane = ThreadLane("cgroup", loop, lambda job: stuck("cgroup", job), deadline_s=CGROUP_DEADLINE_S)
    disk_lane = ThreadLane("disk", loop, lambda job: stuck("disk", job), deadline_s=DISK_DEADLINE_S)
    watch_lane = ThreadLane("watch", loop, lambda job: stuck("watch", job), deadline_s=WATCH_DEADLINE_S)
    ensure_folder(files, settings.state_dir)
    recorder = RecordWriter(files, disk_lane, settings.record.path, settings.record.max_bytes)
    undo = UndoList(files, settings.state_dir)
    slots = Slots(cgroup_lane, files, settings.cgroups.root, undo, clock)
    changed = asyncio.Event()
    readiness = Readiness(settings, clock, changed.set)
    heard = readiness.listens(lambda event: holder[0].tell(event))
    facts, kube = components.kube(settings, clock, lambda: holder[0], heard)
    core = Core(
        State(settings=settings.engine), clock, slots, facts, _no_commit, recorder if settings.record.path else None
    )
    holder.append(core)
    _recall(core, files, settings)
    reload = Reload(settings, source, files, disk_lane, clock)
    parts = Parts(
        core, slots, undo, recorder, (cgroup_lane, disk_lane, watch_lane), readiness, watchdog, reload, health, clock
    )
    chosen: list[Component] = [
        ("cgroups", _sampling(settings, files, cgroup_lane, core, readiness, heard, clock)),
        ("refusals", _watching(settings, files, watch_lane, core, clock)),
        ("local", lambda: run_local(f"{settings.run_dir}/{SOCKET}", answers(parts.view))),
        ("record", lambda: _flush(recorder, clock)),
        ("disk", lambda: last_known.keep(lambda: core.state.pods, files, disk_lane, settings.state_dir, clock)),
        ("settings", lambda: reload.run(core.tell, systemd)),
        ("systemd", lambda: tell_systemd(systemd, readiness, changed)),
        *components.keys(settings, files, cgroup_lane, core, core.tell, clock),
        *kube,
        *components.metrics(
            settings,
            parts.snapshot,
            lambda: ThreadLane("metrics", loop, lambda job: stuck("metrics", job), deadline_s=DISK_DEADLINE_S),
        ),
        *components.nri(settings, core, facts.listens(heard), clock),
    ]
    gc.collect()
    gc.freeze()  # what lives as long as the process: else each full collection walks it, for 20 ms of a runtime's time
    watchdog.start()
    try:
        await _supervise(chosen, clock, health)
    finally:
        systemd.tell(sd_notify.STOPPING)
        _end(core, recorder, (cgroup_lane, disk_lane), watch_lane)
        watchdog.close()
        systemd.close()


def _end(core: Core, recorder: RecordWriter, lanes: tuple[ThreadLane, ...], watch: ThreadLane) -> None:
    """Lets what was decided reach the disk and the kernel."""
    core.close()
    recorder.flush()
    for lane in lanes:
        lane.close(2.0)
    watch.close(0.0)  # it only waits


def _recall(core: Core, files: HostFiles, settings: Settings) -> None:
    """What the kernel has, and what the disk remembers, before anybody may ask."""
    core.tell(sampler.read_capacity(files, settings.cgroups.root))
    remembered = last_known.read(files, settings.state_dir)
    if remembered.pods:
        core.tell(ev.PodsListed(remembered.pods, as_of=0))
        core.tell(ev.ApiLost("not reached yet", since_wall_ns=remembered.at_wall_ns))


def _sampling(
    settings: Settings, files: HostFiles, lane: ThreadLane, core: Core, readiness: Readiness, tell: Tell, clock: Clock
) -> Callable[[], Awaitable[None]]:
    reader, finder = sampler.Reader(files, settings.cgroups.root), Finder(files, settings.cgroups.root)
    turn = Turn(lambda: bool(readiness.waiting(("nri",))), clock)

    def scope() -> sampler.Scope:
        return _scope(core.state, turn.has_come())

    def known() -> dict[str, ev.MiscReading]:
        return known_readings(core.state)

    return lambda: sampler.run(lane, reader, finder, scope, known, tell, core.seq, clock, settings.cgroups.period_s)


def _watching(
    settings: Settings, files: HostFiles, lane: ThreadLane, core: Core, clock: Clock
) -> Callable[[], Awaitable[None]]:
    watch = watcher.Watcher(files, settings.cgroups.root)
    return lambda: watcher.run(lane, watch, lambda: list(core.state.limits.wanted), core.tell, core.seq, clock)


def _scope(state: State, search: bool) -> sampler.Scope:
    pods = state.pods
    return sampler.Scope(list(state.limits.wanted), found.parents(pods), partial(found.is_known, pods), search)


def known_readings(state: State) -> dict[str, ev.MiscReading]:
    """What was read last of each cgroup, as far as it counts."""
    return {path: read.reading for path, read in state.limits.readings.items()}


def ensure_folder(files: HostFiles, path: str) -> None:
    """Makes the folder and those above it, where they are missing. Where that fails the daemon goes on without it, and
    who cannot write there says so."""
    parts = path.strip("/").split("/")
    for depth in range(1, len(parts) + 1):
        place = "/" + "/".join(parts[:depth])
        try:
            try:
                files.stat(place)
            except FileNotFoundError:
                files.mkdir(place)
        except OSError as error:
            log.error("folder=missing path=%s error=%s", place, error)
            return


async def _supervise(chosen: list[Component], clock: Clock, health: Health) -> None:
    def failed(_: str, __: BaseException) -> None:
        health.restarts += 1

    try:
        async with asyncio.TaskGroup() as group:
            for name, start in chosen:
                group.create_task(forever(name, start, clock, Backoff(0.2, 10.0, random.random), failed), name=name)
    except* WorkEndedError as ended:
        log.info("daemon ends why=%r", str(ended.exceptions[0]))


async def _flush(recorder: RecordWriter, clock: Clock) -> None:
    """Writes what is recorded, at most FLUSH_S late."""
    while True:
        recorder.flush()
        await clock.sleep(FLUSH_S)


async def _no_commit(record: str) -> str:
    return f"no domain commits yet ({record})"
