"""One life of the daemon in a simulated history: the production core, slots, undo list, record and sampler.

Put together by `programs.node.assemble` as on a node, on virtual lanes; only the watcher is left out, since it does
nothing but wait. What survives a life is the kernel double with its disk; `kill` drops all the rest. `ChaosFiles`
stands between.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from nodeward.core import events as ev
from nodeward.core.decision import Decision
from nodeward.core.devices import PluginStanding
from nodeward.core.modes import Mode
from nodeward.features.keys import wiring as keys
from nodeward.features.keys.effects import grants
from nodeward.features.settings import RecordSection, Settings
from nodeward.features.wiring import Lanes
from nodeward.host.facts import FactsByKind
from nodeward.host.hostfs import HostFiles
from nodeward.host.record_writer import RecordWriter
from nodeward.host.runner import Facts
from nodeward.neighbours.cgroups.hierarchy import Tree
from nodeward.programs.node import assemble
from nodeward.programs.node.readiness import Readiness
from tests.faults import FaultyFiles, Stopped
from tests.lanes import InlineLane
from tests.unit.simulated.virtual import Pace, VirtualClock, VirtualLane

RECORD = "/var/lib/nodeward/node.record"
SETTINGS = Settings(record=RecordSection(RECORD))


class ChaosFiles(FaultyFiles):
    """Files that ask `before` at each call; it may raise. An append that is hit leaves half of its bytes behind."""

    def __init__(self, inner: HostFiles, before: Callable[[str, str], None]) -> None:
        super().__init__(inner)
        self._before = before

    def append(self, path: str, data: bytes, sync: bool) -> None:
        try:
            super().append(path, data, sync)
        except (OSError, Stopped) as hit:
            if isinstance(hit, Stopped) and hit.name != "append":
                raise  # dead before this call
            self._inner.append(path, data[: len(data) // 2], sync)
            raise

    def _count(self, name: str, path: str) -> None:
        super()._count(name, path)
        self._before(name, path)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a life is given. `saw` hears of each event with its decision and the state after it."""

    settings: Settings
    clock: VirtualClock
    random: Random
    pace: Pace
    facts: Facts
    before_call: Callable[[str, str], None]
    saw: Callable[[ev.Event, Decision, "Life"], None]


class Life:
    """The daemon from its start to its death. `alive` is false after `kill` or a call that stopped it."""

    def __init__(self, kernel: HostFiles, given: Surroundings) -> None:
        self.alive, self.connected = True, False
        self.dropped = asyncio.Event()
        self._given, self._tasks = given, list[asyncio.Future[object]]()
        self.files = ChaosFiles(kernel, self._before)
        self.settings = settings = given.settings
        loop = asyncio.get_running_loop()
        lane = partial(VirtualLane, loop, given.random, given.pace, self.kill)
        self.disk_lane, counting = lane(assemble.DISK_DEADLINE_S), lane(assemble.CGROUP_DEADLINE_S)
        cgroup, journal = lane(assemble.CGROUP_DEADLINE_S), lane(grants.LATE_S, bounded=True)
        self._closes = (cgroup, self.disk_lane, journal, counting)
        lanes = Lanes(cgroup, self.disk_lane, InlineLane(), journal, keys=counting)
        facts = FactsByKind()
        facts.offer("pod", partial(given.facts.fetch, "pod"))
        try:
            disk = assemble.on_disk(self.files, settings)
            self.recorder = _Witnessed(self, given.saw, disk.recorded_bytes)
            readiness = Readiness(settings, given.clock)
            had = assemble.in_kernel(self.files, Tree(self.files, settings.cgroups.root))
            granted = grants.read(self.files, settings)
            inside = assemble.wire(
                settings, self.files, given.clock, lanes, self.recorder, readiness, facts, had, disk, granted
            )
        except (OSError, Stopped):  # an error at the start ends the process, and systemd starts it again
            self.kill()
            return
        self.core, self.slots, self.undo, self.reader = inside.core, inside.slots, inside.undo, inside.reader
        self.tell, self.offers = inside.tell, inside.slots.by_edge["offer"]
        chosen = list(inside.components)
        if settings.keys.mode is not Mode.OFF:
            read_by = (settings, self.files, inside.tree, counting, self.disk_lane)
            handed_out = partial(keys.checkpoint_file, settings, self.files)
            of_keys, _ = keys.keys(*read_by, inside.core, given.clock, facts, inside.grants, handed_out)
            chosen += of_keys
            for row in settings.keys.kinds.values():
                inside.core.tell(ev.PluginTold(row.publish, PluginStanding.SERVING))
        for name, start in chosen:
            if name != "refusals":
                self.spawn(start())

    def spawn(self, work: Awaitable[object]) -> "asyncio.Future[object]":
        task = asyncio.ensure_future(work)
        self._tasks = [one for one in self._tasks if not one.done()]
        self._tasks.append(task)
        return task

    def failures(self) -> list[str]:
        """What went wrong inside, apart from what a history did on purpose."""
        ended = [task.exception() for task in self._tasks if task.done() and not task.cancelled()]
        return [f"task ended by {error!r}" for error in ended if error is not None] + [
            f"{count} fault(s) in {feature}" for feature, count in self.core.faults.items()
        ]

    def rest(self) -> None:
        """Nothing is begun any more; what is under way comes back."""
        self.core.close()
        for task in self._tasks:
            task.cancel()

    def kill(self) -> None:
        """SIGKILL: no call of the host's files succeeds any more, no job comes back."""
        if not self.alive:
            return
        self.alive = self.connected = False
        for one in self._closes:
            one.closed = True
        if hasattr(self, "core"):
            self.rest()
        self.dropped.set()

    def _before(self, name: str, path: str) -> None:
        if not self.alive:
            raise Stopped(self.files.total, "dead")
        self._given.before_call(name, path)


class _Witnessed(RecordWriter):
    """The record of a life; `saw` hears of each step after it, as long as the life lasts."""

    def __init__(self, life: Life, saw: Callable[[ev.Event, Decision, Life], None], there: int) -> None:
        settings = life.settings.record
        super().__init__(life.files, life.disk_lane, settings.path, settings.max_bytes, there)
        self._life, self._saw = life, saw

    def __call__(self, event: ev.Event, decision: Decision, state: object) -> None:
        if self._life.alive:
            super().__call__(event, decision, state)
            self._saw(event, decision, self._life)
