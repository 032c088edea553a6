"""Pod after pod as `lifetimes`, of which the daemon hears as on a node: by NRI.

The runtime double calls the production session over a socket of its own, frame by frame: mux, ttrpc, NRI's messages.
It makes the cgroups and writes what it was answered; now and then it restarts, and lists what it has.
"""

import asyncio
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from nodeward.core import events as ev
from nodeward.core.workload import PodSpec, PodUid
from nodeward.features.cpus.effects.start_barrier import StartBarrier
from nodeward.features.limits.answer import leaves_rest
from nodeward.features.settings import NriSection
from nodeward.neighbours.nri import session
from nodeward.neighbours.nri.session import NriSettings
from nodeward_sim.doubles.runtime import SimContainer, SimPod, SimRuntime
from tests.unit.simulated.life import SETTINGS, Life
from tests.unit.simulated.lifetimes import SPECS, Lifetimes

RESTARTS_AFTER = 500
"""Pods."""


class NriLifetimes(Lifetimes):
    sockets = True

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="nwl"))
        self.settings = replace(SETTINGS, nri=NriSection(socket=str(self._folder / "nri.sock")))
        self.created = self.restarts = 0
        super().__init__()

    @property
    def faults(self) -> dict[str, int]:
        return self._life.core.faults

    async def _connect(self, life: Life) -> None:
        self.runtime = SimRuntime(Path(self.settings.nri.socket), self.kernel)
        await self.runtime.serve()
        core = life.core
        at_start, chosen = StartBarrier(core, life.slots, leaves_rest), NriSettings(self.settings.nri.socket)
        life.spawn(session.run(chosen, core.ask, life.tell, core.seq, self._clock, lambda: 0.5, at_start))
        await self.runtime.nri.wait_for_plugins(1)

    async def _restart(self) -> None:
        self.restarts += 1
        await self.runtime.restart()
        await self.runtime.nri.wait_for_plugins(1)

    async def _pod(self) -> None:
        self._number += 1
        if self._number % RESTARTS_AFTER == 0:
            await self._restart()
        uid, core, runtime = PodUid(f"{self._number:08d}"), self._life.core, self.runtime
        told = ev.PodSeen(PodSpec(uid, "shop", f"pod-{uid}", (*SPECS, *self.more)))
        late = self._random.random() < 0.3
        if not late:
            core.tell(told)
        sandbox = await runtime.run_pod(SimPod(uid, f"pod-{uid}", "shop"))
        await asyncio.sleep(self._random.uniform(0, 0.05))
        for name in ("init", "app", "fails"):
            await self._contained(sandbox, name)
            if late:
                core.tell(told)
                late = False
        await runtime.stop_pod(sandbox)
        await runtime.remove_pod(sandbox)
        core.tell(ev.PodGone(uid))

    async def _contained(self, sandbox: str, name: str) -> None:
        runtime = self.runtime
        made = await runtime.create_container(sandbox, SimContainer(name))
        self.created += 1
        if name != "fails":
            await runtime.start(made)
            await asyncio.sleep(0.02)
            self._charge(runtime.cgroup(made))
            await runtime.update_container(made)
            await asyncio.sleep(self._random.uniform(0, 0.2))
            await runtime.stop(made)
        await runtime.remove_container(made)

    def close(self) -> None:
        self._loop.run_until_complete(self.runtime.close())
        super().close()
        shutil.rmtree(self._folder)
