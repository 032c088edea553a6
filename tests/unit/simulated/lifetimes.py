"""Pod after pod through one life of the daemon, as fast as virtual time goes: nothing may stay behind.

Each pod is told by the API server, started, limited, charged, drifted by somebody, updated and ended; some containers
fail to be created. Eight pods live at a time. Unlike the histories nothing is written down here, so that what grows
is the daemon's or a double's.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from types import MappingProxyType

from nodeward.core import events as ev
from nodeward.core.workload import (
    Container,
    ContainerId,
    ContainerSpec,
    Phase,
    PodSpec,
    PodUid,
    Role,
    Sandbox,
    SandboxId,
)
from nodeward.features.pods.wiring import NoFacts
from nodeward.features.settings import RecordSection
from nodeward.host.runner import Facts
from nodeward_sim.doubles.kernel import SimKernel
from tests.unit.simulated import checks
from tests.unit.simulated.life import RECORD, SETTINGS, Life, Surroundings
from tests.unit.simulated.plans import EPC, PAGE
from tests.unit.simulated.virtual import Pace, VirtualClock, VirtualLoop

ROOT = "/sys/fs/cgroup"
AT_ONCE = 8
SPECS = (ContainerSpec("init", Role.INIT, {EPC: 2 * PAGE}), ContainerSpec("app", declared={EPC: PAGE}))


@dataclass(frozen=True, slots=True)
class Left:
    """What is there once no pod is: entries of the engine's tables, slots, descriptors kept and open, charges."""

    entries: int
    slots: int
    kept: int
    handles: int
    charges: int


class Lifetimes:
    capacity: Mapping[str, int] = MappingProxyType({EPC: 1 << 40})
    facts: Facts = NoFacts()
    settings = SETTINGS
    more: tuple[ContainerSpec, ...] = ()
    """Containers that are in each pod's spec besides."""
    sockets = False
    """Whether something is told by sockets."""

    def __init__(self) -> None:
        self._loop = VirtualLoop(self.sockets)
        self._clock = VirtualClock(self._loop)
        self.kernel = SimKernel(dict(self.capacity))
        self._random = Random("lifetimes")
        self.refused = self.reached = self._number = 0
        self._life = self._loop.run_until_complete(self._start())

    async def _start(self) -> Life:
        settings = replace(self.settings, record=RecordSection(RECORD, 1 << 20))
        given = Surroundings(settings, self._clock, Random("lanes"), Pace(), self.facts, lambda *_: None, self._saw)
        life = Life(self.kernel, given)
        await self._connect(life)
        life.tell(ev.ApiBack())
        return life

    async def _connect(self, life: Life) -> None:
        life.tell(ev.RuntimeConnected("virtual", "2.4", "0.12"))
        life.tell(ev.Listed((), (), life.core.seq()))

    def _saw(self, event: ev.Event, decision: object, life: Life) -> None:
        if isinstance(event, ev.Reached):
            self.reached += len(event.targets)

    def live(self, count: int, every: int = 0, seen: Callable[[], None] = lambda: None) -> None:
        """So many pods live and end; `seen` is called after each `every` of them."""
        self._loop.run_until_complete(self._live(count, every, seen))

    async def _live(self, count: int, every: int, seen: Callable[[], None]) -> None:
        ended = 0

        async def place(pods: int) -> None:
            nonlocal ended
            for _ in range(pods):
                await self._pod()
                ended += 1
                if every and ended % every == 0:
                    seen()

        async with asyncio.TaskGroup() as group:
            for number in range(AT_ONCE):
                group.create_task(place(count // AT_ONCE + (number < count % AT_ONCE)))
        await asyncio.sleep(130)  # creates of which nothing came are given up, and a pass sees that nothing is left

    async def _pod(self) -> None:
        self._number += 1
        uid, core, random = PodUid(f"{self._number:08d}"), self._life.core, self._random
        home = f"/kubepods/burstable/pod{uid}"
        told = ev.PodSeen(PodSpec(uid, "shop", f"pod-{uid}", (*SPECS, *self.more)))
        sandbox = Sandbox(SandboxId(f"s{uid}"), uid, "shop", f"pod-{uid}", {}, home)
        late = random.random() < 0.3
        if not late:
            core.tell(told)
        self.kernel.make_cgroup(ROOT + home)
        core.tell(ev.SandboxStarted(sandbox))
        await asyncio.sleep(random.uniform(0, 0.05))
        for spec in (*SPECS, ContainerSpec("fails")):
            await self._container(sandbox, home, spec)
            if late:
                core.tell(told)
                late = False
        await self._live_on(sandbox)
        core.tell(ev.SandboxStopped(sandbox))
        self.kernel.rmdir(ROOT + home)
        core.tell(ev.SandboxRemoved(sandbox))
        core.tell(ev.PodGone(uid))

    async def _live_on(self, sandbox: Sandbox) -> None:
        """What else the pod does before it ends."""

    async def _container(self, sandbox: Sandbox, home: str, spec: ContainerSpec) -> None:
        core, path = self._life.core, f"{home}/{sandbox.pod_uid}-{spec.name}"
        made = Container(ContainerId(path.rpartition("/")[2]), sandbox.id, spec.name, Phase.CREATING, path)
        answer = core.ask(ev.Creating(sandbox, made), 1_000_000_000)
        if not hasattr(answer, "value"):
            await answer
        if spec.name == "fails":
            if self._random.random() < 0.5:
                core.tell(ev.CreateFailed(made.id))
            return
        self.kernel.make_cgroup(ROOT + path)
        running = replace(made, phase=Phase.RUNNING)
        core.tell(ev.Created(sandbox, replace(made, phase=Phase.CREATED)))
        core.tell(ev.Started(sandbox, running))
        await asyncio.sleep(0.02)
        self._charge(path)
        core.tell(ev.Updated(sandbox, running))
        await asyncio.sleep(self._random.uniform(0, 0.2))
        self.kernel.rmdir(ROOT + path)
        core.tell(ev.Stopped(sandbox, replace(made, phase=Phase.STOPPED)))
        core.tell(ev.Removed(sandbox.id, made.id))

    def _charge(self, path: str) -> None:
        try:
            self.kernel.charge(ROOT + path, EPC, 64 * PAGE)
        except OSError:
            self.refused += 1
        else:
            self.kernel.uncharge(ROOT + path, EPC, 64 * PAGE)

    def left(self) -> Left:
        life, kernel = self._life, self.kernel
        tables = sum(map(len, checks.tables(life.core.state).values()))
        return Left(tables, len(life.slots.targets), life.reader.open_files, kernel.open_handles, len(kernel.charges()))

    def close(self) -> None:
        self._life.kill()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()
