"""One life of the daemon in a simulated history: the production core, slots, undo list, record and sampler.

Put together as `app.node.run` does it, in the same order, on virtual lanes. What survives a life is the kernel double
with its disk; `kill` drops all the rest. `ChaosFiles` stands between the two.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from nodeward.aio.hostfs import HostFiles
from nodeward.app import last_known, node
from nodeward.app.core import Core, Facts
from nodeward.app.goals import Slots
from nodeward.app.record import RecordWriter
from nodeward.app.undo import UndoList
from nodeward.edges.cgroups import sampler
from nodeward.edges.cgroups.finder import Finder
from nodeward.engine.pods import found
from nodeward.engine.state import State
from nodeward.model import events as ev
from nodeward.model.decision import Decision
from nodeward.model.settings import RecordSection, Settings
from nodeward.sim.faults import FaultyFiles, Stopped
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
        loop, settings = asyncio.get_running_loop(), given.settings
        lane = partial(VirtualLane, loop, given.random, given.pace)
        self.cgroup_lane = lane(partial(self._stuck, "cgroup"), self.kill, node.CGROUP_DEADLINE_S)
        self.disk_lane = lane(partial(self._stuck, "disk"), self.kill, node.DISK_DEADLINE_S)
        try:
            node.ensure_folder(self.files, settings.state_dir)
            self.recorder = RecordWriter(self.files, self.disk_lane, settings.record.path, settings.record.max_bytes)
            self.undo = UndoList(self.files, settings.state_dir)
            self.slots = Slots(self.cgroup_lane, self.files, settings.cgroups.root, self.undo, given.clock)
            state = State(settings=settings.engine)
            self.core = Core(state, given.clock, self.slots, given.facts, _no_commit, self._record)
            self.reader = sampler.Reader(self.files, settings.cgroups.root)
            self._begin()
        except (OSError, Stopped):  # an error at the start ends the process, and systemd starts it again
            self.kill()

    def _begin(self) -> None:
        settings, clock = self._given.settings, self._given.clock
        self.core.tell(sampler.read_capacity(self.files, settings.cgroups.root))
        remembered = last_known.read(self.files, settings.state_dir)
        if remembered.pods:
            self.core.tell(ev.PodsListed(remembered.pods, as_of=0))
            self.core.tell(ev.ApiLost("not reached yet", since_wall_ns=remembered.at_wall_ns))
        finder, period_s = Finder(self.files, settings.cgroups.root), settings.cgroups.period_s
        tell, seq = self.core.tell, self.core.seq
        known = partial(_known, self.core)
        self.spawn(sampler.run(self.cgroup_lane, self.reader, finder, self._scope, known, tell, seq, clock, period_s))
        self.spawn(self._flush())
        self.spawn(self._persist())

    def _scope(self) -> sampler.Scope:
        pods = self.core.state.pods
        return sampler.Scope(list(self.core.state.limits.wanted), found.parents(pods), partial(found.is_known, pods))

    def spawn(self, work: Awaitable[object]) -> "asyncio.Future[object]":
        """A task that ends with this life."""
        task = asyncio.ensure_future(work)
        self._tasks = [one for one in self._tasks if not one.done()]
        self._tasks.append(task)
        return task

    def failures(self) -> list[str]:
        """What went wrong inside, apart from what a history did on purpose."""
        ended = [task.exception() for task in self._tasks if task.done() and not task.cancelled()]
        return [f"task ended by {error!r}" for error in ended if error is not None] + [
            f"{count} fault(s) in {domain}" for domain, count in self.core.faults.items()
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
        self.cgroup_lane.closed = self.disk_lane.closed = True
        if hasattr(self, "core"):
            self.rest()
        self.dropped.set()

    def _before(self, name: str, path: str) -> None:
        if not self.alive:
            raise Stopped(self.files.total, "dead")
        self._given.before_call(name, path)

    def _record(self, event: ev.Event, decision: Decision, state: State) -> None:
        if self.alive:
            self.recorder(event, decision, state)
            self._given.saw(event, decision, self)

    def _stuck(self, lane: str, job: str) -> None:
        self.core.tell(ev.LaneStuck(lane, job))

    async def _flush(self) -> None:
        while True:
            self.recorder.flush()
            await self._given.clock.sleep(0.25)

    async def _persist(self) -> None:
        written: object = None
        while True:
            specs = self.core.state.pods.specs
            if specs is not written and self.core.state.pods.api_up:
                written = specs
                data = last_known.encode(tuple(known.spec for known in specs.values()), self._given.clock.wall_ns())
                path = last_known.path_in(self._given.settings.state_dir)
                self.disk_lane.submit("pods", partial(self.files.replace, path, data), lambda _: None)
            await self._given.clock.sleep(5.0)


def _known(core: Core) -> dict[str, ev.MiscReading]:
    return node.known_readings(core.state)


async def _no_commit(record: str) -> str:
    return f"no domain commits yet ({record})"
