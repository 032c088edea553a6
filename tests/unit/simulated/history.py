"""One seeded history: pods live, the node misbehaves, the daemon dies and comes back; then quiet, and judgement.

`run(seed)` is a function of its arguments: the same ones give the same `Outcome`, hash included, in any process.
"""

import asyncio
import errno
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random

from nodeward.core import events as ev
from nodeward.core import record
from nodeward.core.decision import Decision
from nodeward.core.workload import ContainerSpec, Phase, Role
from nodeward.features.limits.settings import LimitsSettings, UnknownPod, Unsupported
from nodeward.features.settings import RecordSection, Settings
from nodeward.programs.node import assemble
from nodeward_sim.doubles.kernel import SimKernel
from tests.faults import Stopped
from tests.unit.simulated import checks
from tests.unit.simulated.life import RECORD, SETTINGS, Life, Surroundings
from tests.unit.simulated.plans import EPC, PAGE, make
from tests.unit.simulated.trouble import CAPACITY, Trouble
from tests.unit.simulated.virtual import VirtualClock, VirtualLoop
from tests.unit.simulated.world import ROOT, ApiFacts, LiveContainer, LivePod, World

UNBOUNDED = 1 << 30
QUIET_S = 70
"""Longer than the longest back-off of a goal (30 s) and of what waits for it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a history. `decisions` is the hash of events and decisions without what only shows time."""

    seed: int
    digest: str
    decisions: str
    violations: tuple[str, ...]
    story: tuple[str, ...]
    events: int
    lives: int
    pods: int


class History:
    def __init__(
        self, seed: int, loop: VirtualLoop, *, wall_jumps: bool = True, settings: Settings | None = None
    ) -> None:
        self.seed, self.clock = seed, VirtualClock(loop)
        self.random = Random(f"{seed}/history")
        self._calls = Random(f"{seed}/calls")
        settings = settings if settings is not None else _settings(self.random)
        capacity = {EPC: CAPACITY} if self.random.random() < 0.9 else {}
        self.kernel = SimKernel(capacity)
        self.world = World(seed, self.kernel, self.clock, settings)
        self.world.capacity = bool(capacity)
        self.trouble = Trouble(self.world, self.random, wall_jumps=wall_jumps)
        self.lives = self.events = self.pods = 0
        self.calls = Counter[str]()
        self._unrecorded = False
        self._lively = asyncio.Event()
        self._lively.set()
        self._ending, self._calm_s = False, 4
        self._aside = list[asyncio.Task[None]]()

    # ---- the daemon's lives

    async def daemon(self) -> None:
        random = Random(f"{self.seed}/daemon")
        while True:
            self.lives += 1
            self.world.nobody_has_heard()
            self.world.reached.clear()
            self.world.say(f"life {self.lives} begins")
            facts = ApiFacts(self.world, Random(f"{self.seed}/facts/{self.lives}"))
            lanes = Random(f"{self.seed}/lanes/{self.lives}")
            given = Surroundings(
                self.world.settings, self.clock, lanes, self.trouble.pace, facts, self._before_call, self._saw
            )
            life = Life(self.kernel, given)
            if life.alive:
                self.world.life = life
                life.spawn(self.world.reflect(life, random))
                await self._connected(life, random)
            self.world.reached.clear()  # what it was writing when it died may be another limit
            self.world.say(f"life {self.lives} ends")
            self._unrecorded = True
            await asyncio.sleep(random.uniform(0.1, 3.0))

    async def _connected(self, life: Life, random: Random) -> None:
        while life.alive:
            life.dropped.clear()
            await self.world.synchronize(life, random)
            if life.alive:
                await life.dropped.wait()
            life.connected = False
            if life.alive:
                life.tell(ev.RuntimeLost("the socket was closed"))
                await asyncio.sleep(random.uniform(0, 1.0))

    def _saw(self, event: ev.Event, decision: Decision, life: Life) -> None:
        world = self.world
        self.events += 1
        world.trace.add(record.encode_event(event))
        world.trace.add(record.encode_decision(decision))
        timeless = replace(event, since_wall_ns=0) if isinstance(event, ev.ApiLost) else event
        world.decisions.update(record.encode_event(replace(timeless, wall_ns=0)))
        world.decisions.update(record.encode_decision(decision))
        if isinstance(event, ev.Reached):
            for target in event.targets:
                path = target.where
                wanted = life.core.state.limits.wanted.get(path)
                if target.kind == "misc.max":
                    world.reached.pop(path, None)
                    if wanted is not None and EPC in wanted.values:
                        world.reached[path] = wanted.values[EPC]

    def _before_call(self, name: str, path: str) -> None:
        """Each call of the host's files: it may fail, the daemon may die there, the world may move on before it."""
        weather, life, world = self.trouble.weather, self.world.life, self.world
        world.trace.add(f"{name} {path}".encode())
        self.calls[name] += 1
        stops = weather.stop_in == 1
        weather.stop_in = max(0, weather.stop_in - 1)
        if stops:
            self.world.say(f"the daemon is killed at {name} {path}")
            raise Stopped(0, name)
        if life is not None and name == "write" and path.endswith("/cgroup.subtree_control"):
            for wrong in checks.undo_before(world, life, path.removeprefix(ROOT).rpartition("/")[0] or "/"):
                world.violate(wrong)
        on_disk = name != "pread" and not path.startswith(ROOT)
        if weather.vanishes and self._calls.random() < weather.vanishes:
            self._vanish()
        if weather.disk_full and on_disk and name in ("append", "replace"):
            self._fail(errno.ENOSPC, path)
        if weather.read_only and not on_disk and name == "write":
            self._fail(errno.EROFS, path)
        if weather.fails and self._calls.random() < weather.fails and name != "close":
            self._fail(self._calls.choice(_failures(name, on_disk)), path)

    def _fail(self, number: int, path: str) -> None:
        self.world.say(f"{errno.errorcode[number]} at {path or 'an open file'}")
        self._unrecorded = self._unrecorded or path == RECORD
        raise OSError(number, "harm on request", path)

    def _vanish(self) -> None:
        lives = self.world.running()
        if lives:
            live = self._calls.choice(lives)
            self.world.drop_cgroup(live)
            self._aside.append(asyncio.ensure_future(self._tell_of_end(live, self._calls.uniform(0, 1))))

    async def _tell_of_end(self, live: LiveContainer, late_s: float) -> None:
        await asyncio.sleep(late_s)
        await self.world.tell(ev.Stopped(live.sandbox, replace(live.container, phase=Phase.STOPPED)))
        await self.world.tell(ev.Removed(live.sandbox.id, live.container.id))

    # ---- pods

    async def tenant(self, number: int) -> None:
        random, world = Random(f"{self.seed}/pod/{number}"), self.world
        plan = make(number, random)
        in_api = plan.kind.in_api
        if in_api and random.random() < 0.6:
            world.put(plan.spec)
            await asyncio.sleep(random.uniform(0, 0.3))
        pod = world.start_pod(plan)
        if random.random() < 0.95:
            await world.tell(ev.SandboxStarted(pod.sandbox))
        late = random.uniform(0, 3)
        if in_api and not world.known(pod):
            asyncio.get_running_loop().call_later(late, self._tell_late, pod)
        await self._start_containers(pod, random)
        while not self._ending and random.random() < 0.85:
            await self._meanwhile(pod, random)
            await self._lively.wait()
            await asyncio.sleep(random.uniform(0, 4))
        await self._lively.wait()
        if random.random() < 0.5:
            world.delete(plan.spec.uid)
            await asyncio.sleep(random.uniform(0, 1))
        pod.ends.set()
        await world.end_pod(pod, random)
        await asyncio.sleep(random.uniform(0, 1))
        world.delete(plan.spec.uid)

    def _tell_late(self, pod: LivePod) -> None:
        if not pod.ends.is_set() and pod.plan.uid in self.world.pods:
            self.world.put(pod.plan.spec)

    async def _start_containers(self, pod: LivePod, random: Random) -> None:
        for spec in pod.plan.kind.containers:
            live = await self._start(pod, spec, random)
            if live is not None and spec.role is Role.INIT:
                await asyncio.sleep(random.uniform(0, 0.5))
                await self.world.end_container(live, random)

    async def _start(self, pod: LivePod, spec: ContainerSpec, random: Random) -> LiveContainer | None:
        await asyncio.sleep(random.uniform(0, 0.2))
        return await self.world.start_container(pod, spec, random)

    async def _meanwhile(self, pod: LivePod, random: Random) -> None:
        world, lives = self.world, list(pod.containers.values())
        what = random.random()
        if what < 0.4 and lives:
            live = random.choice(lives)
            world.charge(live, random.randint(1, 8) * PAGE)
        elif what < 0.55 and lives:
            await world.update_container(random.choice(lives))
        elif what < 0.7 and lives:
            live = random.choice(lives)
            spec = next((one for one in pod.plan.kind.containers if one.name == live.container.name), None)
            await world.end_container(live, random)
            if spec is not None:
                await self._start(pod, spec, random)
        elif what < 0.8 and world.known(pod):
            await self._start(pod, world.declared_later(pod), random)
        elif what < 0.88:
            for live in lives:
                await world.end_container(live, random)
            old = world.replace_sandbox(pod)
            await world.tell(ev.SandboxStarted(pod.sandbox))
            await self._start_containers(pod, random)
            await world.tell(ev.SandboxStopped(old))
            await world.tell(ev.SandboxRemoved(old))

    # ---- quiet

    async def quiet(self, what: str, holds: Iterable[Callable[[], list[str]]]) -> None:
        """All faults end. Within `QUIET_S` every one of these must hold."""
        self.trouble.ends()
        self.world.say(f"quiet: {what}")
        if not self._ending:
            self._lively.clear()
        wrong: list[str] = []
        checked = list(holds)
        for second in range(QUIET_S):
            await asyncio.sleep(1.0)
            life = self.world.life
            ready = life is not None and life.connected
            wrong = [text for check in checked for text in check()] if ready else ["the daemon is not connected"]
            if second >= self._calm_s and not wrong:
                break
        for text in wrong:
            self.world.violate(f"{what}: {text}")
        self._lively.set()

    def _settled(self) -> list[str]:
        return checks.settled(self.world, self._life())

    def _life(self) -> Life:
        assert self.world.life is not None
        return self.world.life

    def outcome(self) -> Outcome:
        world, counts = self.world, (self.events, self.lives, self.pods)
        told = (world.trace.digest(), world.decisions.hexdigest(), tuple(world.violations), tuple(world.trace.story))
        return Outcome(self.seed, *told, *counts)

    async def play(self) -> None:
        daemon = asyncio.ensure_future(self.daemon())
        tenants: list[asyncio.Task[None]] = []
        for part in ("with pods", "with pods again"):
            for _ in range(self.random.randint(8, 16)):
                if sum(not one.done() for one in tenants) < 6 and self.random.random() < 0.6:
                    self.pods += 1
                    tenants.append(asyncio.ensure_future(self.tenant(self.pods)))
                else:
                    self.trouble.disturb()
                await asyncio.sleep(self.random.choice((0.0, 0.01, 0.3, 2.0)))
            await self.quiet(part, (lambda: checks.limits_in_kernel(self.world), self._settled))
        self._ending = True
        if tenants:
            await asyncio.wait(tenants)
        await self.quiet("without pods", (lambda: checks.nothing_left(self.world, self._life()), self._settled))
        await self._end(daemon, tenants)

    async def _end(self, daemon: "asyncio.Task[None]", tenants: list["asyncio.Task[None]"]) -> None:
        world = self.world
        for task in (daemon, *tenants):
            if task.done() and task.exception() is not None:
                world.violate(f"the history itself failed: {task.exception()!r}")
        if world.life is None:
            return
        life = world.life
        for text in life.failures():
            world.violate(text)
        life.rest()
        await asyncio.sleep(1.0)
        life.recorder.flush()
        await asyncio.sleep(2 * assemble.DISK_DEADLINE_S)
        whole = not self._unrecorded and life.recorder.dropped == 0 and world.settings.record.max_bytes == UNBOUNDED
        for text in checks.replays(self.kernel, self.events if whole else None):
            world.violate(text)
        life.kill()
        daemon.cancel()
        await asyncio.sleep(0)
        for text in checks.taken_back(self.kernel, world.settings):
            world.violate(text)


def _failures(name: str, on_disk: bool) -> tuple[int, ...]:
    """What a call may fail with; a cgroup's file is ENODEV only on a handle that outlived the cgroup."""
    if name == "pread":
        return errno.EIO, errno.ENODEV
    return (errno.EIO, errno.ENOSPC) if on_disk else (errno.EIO, errno.EBUSY, errno.EINVAL)


def _settings(random: Random) -> Settings:
    limits = LimitsSettings(
        strict=random.random() < 0.15,
        unknown_pod=random.choice((UnknownPod.UNLIMITED,) * 4 + (UnknownPod.ZERO, UnknownPod.REFUSE)),
        unsupported=Unsupported.REFUSE if random.random() < 0.1 else Unsupported.ALLOW_UNENFORCED,
    )
    bound = random.choice((1 << 16, UNBOUNDED, UNBOUNDED))
    return replace(SETTINGS, limits=limits, record=RecordSection(RECORD, bound))


async def _end_all() -> None:
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left)


def run(seed: int, *, wall_jumps: bool = True) -> Outcome:
    with virtual_loop() as loop:
        history = History(seed, loop, wall_jumps=wall_jumps)
        loop.run_until_complete(history.play())
    return history.outcome()


@contextmanager
def virtual_loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    try:
        yield loop
        loop.run_until_complete(_end_all())
    finally:
        loop.close()
