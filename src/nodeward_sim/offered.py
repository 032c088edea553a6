"""Kubelet, its scheduler and a quote service of the simulated node, where the daemon offers keys in earnest.

A pod of KubeVirt's kind is scheduled by what the node's status has left, admitted by the kubelet double, which asks the
daemon's device plugin on real sockets, and started once PreStartContainer lets it through. Each admission is judged by
what the simulated kernel had left at any moment between kubelet's question and the answer; each list by the pods that
have ids; the node's capacity by what it was. Beside that the public proposal's rule is fed with the samples that the
daemon shows (`naive`), and both rules are held against what was left.

Must not: decide anything for the daemon, or know its engine.
"""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from nodeward.core.errors import NodewardError
from nodeward.host.clock import SystemClock
from nodeward.people.rows import NodeView
from nodeward_sim.doubles.kernel import SimKernel
from nodeward_sim.doubles.kubelet import AdmissionError, Asks, SimKubelet
from nodeward_sim.doubles.qgs import Qgs
from nodeward_sim.invariants import Judge
from nodeward_sim.machines import LEARNED_S, TDX, Machines
from nodeward_sim.naive import Column, proposed
from nodeward_sim.shapes import LAUNCHER, OFFERED

UNSAFE = "grant-unsafe"
UNHEALTHY = "granted-id-unhealthy"
LOST = "grant-lost"
BLINKED = "capacity-blinked"
AGAIN_S = 0.5
"""Kubelet tries a refused start again after so long; the scheduler looks again."""
REFUSED_S = 2.0
"""So long whoever made a pod waits after a refusal before it makes another one."""
FIRST_LIST_S = 30.0
PULL_S = (0.5, 9.0)
"""How long an image is pulled: between these two."""
NOTICED_S = 6.0
"""Within this time the daemon has noticed that nobody makes quotes, which it asks about each five seconds."""
LOSE_S = 10.0
"""So long the loss of quotes waits at most for a pod whose image takes longer than that."""
MUTANTS = ("grants-unhealthy", "grants-lost", "capacity-blinks", "grants-unasked")
Ids = dict[str, None]


@dataclass(slots=True)
class Counts:
    """What kubelet and the daemon did, for the summary."""

    granted: int = 0
    refused: int = 0
    starts_refused: int = 0
    why: str = ""
    """Of the last refusal."""
    why_put_off: str = ""
    """Of the last start."""


class Offered:
    """The doubles that keys are offered to. `settings` is what the daemon is to be told of them."""

    def __init__(
        self,
        kernel: SimKernel,
        judge: Judge,
        machines: Machines,
        capacity: int,
        now: Callable[[], float],
        mutant: str,
        share: str,
    ) -> None:
        """`share` is how the keys are shared by NFD's number."""
        self._judge, self._machines, self._capacity, self._now, self._mutant = judge, machines, capacity, now, mutant
        self._share = share
        self._home = Path(
            tempfile.mkdtemp(prefix="nw-")
        )  # a socket's path has 107 characters, and tests have long ones
        for folder in (*reversed(self._home.parents[:-1]), self._home, self._home / "device-plugins"):
            with contextlib.suppress(FileExistsError):
                kernel.mkdir(str(folder))
        self.kubelet = SimKubelet(str(self._home), kernel, SystemClock())
        self.kubelet.heard = self._heard
        self._qgs = Qgs(self._home / "qgs.socket")
        self._one = asyncio.Lock()
        self._pulling: dict[str, float] = {}
        """When the image of each pod that was admitted will be there, where it is not yet."""
        self._bound: dict[str, None] = {}
        """Pods that were scheduled here and have not ended."""
        self._spared_s = 0.0
        """Until then kubelet itself begins anew, and knows no capacity."""
        self._garbles = False
        self._began_s = 0.0
        self._healthy: Ids = {}
        """Of the newest list."""
        self.counts = Counts()
        self.proposal, self.ours, self.listed = Column(), Column(), Column()
        """The proposal; ours, by what an Allocate is granted from; and by our list alone."""

    @property
    def settings(self) -> dict[str, object]:
        """The daemon's section `keys`."""
        row = {
            "resources": [OFFERED, "tdx.intel.com/keys"],
            "publisher": "device-plugin",
            "publish": OFFERED,
            "share": self._share,
            "attestation": "enforce",
            "attestation_socket": str(self._qgs.path),
        }
        return {"mode": "enforce", "kubelet_dir": str(self._home), "kinds": {TDX: row}}

    async def start(self) -> None:
        """Kubelet and the quote service begin."""
        self._began_s = self._now()
        await self._qgs.start()
        await self.kubelet.start()

    async def stop(self) -> None:
        """They end, and leave nothing behind."""
        await self.kubelet.stop()
        await self._qgs.stop()
        shutil.rmtree(self._home)

    async def begun(self) -> None:
        """Returns when the node has the resource for the first time."""
        end_s = self._now() + FIRST_LIST_S
        while not (self.kubelet.capacity(OFFERED) or (0, 0))[1]:
            if self._now() > end_s:
                raise NodewardError(f"the daemon offered no {OFFERED} within {FIRST_LIST_S:g} s; see its log")
            await asyncio.sleep(0.05)
        self._garbles = True

    # ---- pods --------------------------------------------------------------------------------------------------------

    async def admit(self, uid: str, keys: int, tell: Callable[[], object]) -> bool:
        """Waits for a place as a pod does that cannot be scheduled; whether kubelet has admitted it then."""
        while True:
            async with self._one:
                if (self.kubelet.capacity(OFFERED) or (0, 0))[1] - len(self._bound) >= keys:
                    self._bound[uid] = None
                    tell()
                    return await self._admitted(uid, keys)
            await asyncio.sleep(AGAIN_S)

    async def _admitted(self, uid: str, keys: int) -> bool:
        window = self._machines.watch_left()
        try:
            await self.kubelet.admit(uid, OFFERED, [Asks(LAUNCHER, keys)])
        except AdmissionError as error:
            self.counts.refused += 1
            self.counts.why = str(error)
            if self._mutant != "grants-unasked":
                return False
        finally:
            self._machines.unwatch(window)
        self.counts.granted += 1
        self._judge.checks += 1
        if window.most < keys:
            self._judge.broken(UNSAFE, f"{uid} was given {keys} key(s), and {window.most} were left")
        self._machines.promised(uid, keys)
        return True

    async def started(self, uid: str, container: str) -> None:
        """Returns when kubelet may start the container, after the pull of its image."""
        pull_s = Random(f"{uid}/image").uniform(*PULL_S)
        self._pulling[uid] = self._now() + pull_s
        try:
            await asyncio.sleep(pull_s)
        finally:
            del self._pulling[uid]
        while why := await self.kubelet.start_container(uid, container):
            self.counts.starts_refused += 1
            self.counts.why_put_off = why
            await asyncio.sleep(AGAIN_S)

    def end(self, uid: str) -> None:
        """The pod has ended."""
        self.kubelet.end(uid)
        self._bound.pop(uid, None)

    # ---- what happens ------------------------------------------------------------------------------------------------

    async def restart_kubelet(self) -> None:
        """Kill -9, and a second later it is back."""
        async with self._one:
            self._spared_s = self._now() + self._judge.grace_s
            await self.kubelet.kill()
            await asyncio.sleep(1.0)
            await self.kubelet.start()

    async def lose_quotes(self) -> None:
        """The quote service dies while an image is pulled, if one soon is; its socket stays. The pod has its ids then,
        and its start is put off."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOSE_S):
                while max(self._pulling.values(), default=0.0) < self._now() + NOTICED_S:
                    await asyncio.sleep(0.02)
        await self._qgs.stop()

    async def restore_quotes(self) -> None:
        """It is back."""
        await self._qgs.start()

    # ---- judgement ---------------------------------------------------------------------------------------------------

    def _heard(self, resource: str, healthy: Ids, unhealthy: Ids) -> tuple[Ids, Ids]:
        """A list has come; what kubelet takes it for."""
        held = self._held()
        if self._garbles and held and self._mutant in MUTANTS:
            healthy, unhealthy = self._garbled(healthy, unhealthy, held)
        for name in held:
            if name in unhealthy:
                self._judge.broken(UNHEALTHY, f"{name}, which {held[name]} has")
            elif name not in healthy:
                self._judge.broken(LOST, f"{name}, which {held[name]} has, is not listed any more")
        self._judge.checks += 1
        self._healthy = healthy
        return healthy, unhealthy

    def _garbled(self, healthy: Ids, unhealthy: Ids, held: Mapping[str, str]) -> tuple[Ids, Ids]:
        """The list as a daemon would send it that has this fault."""
        if self._mutant == "capacity-blinks":
            return {}, {}
        if self._mutant == "grants-unasked":
            return {**healthy, **unhealthy}, {}
        left = {name: None for name in healthy if name not in held}
        if self._mutant == "grants-unhealthy":
            return left, {**unhealthy, **dict.fromkeys(held)}
        return (left if self._mutant == "grants-lost" else healthy), unhealthy

    def _held(self) -> dict[str, str]:
        """The pod that has each id."""
        return {name: uid for uid in self._bound for name in self.kubelet.held(uid, OFFERED)}

    def look(self) -> None:
        """Judges what the node's status says now."""
        if self._now() < self._spared_s:
            return
        self._judge.checks += 1
        capacity = self.kubelet.capacity(OFFERED)
        if not capacity or not capacity[0]:
            self._judge.broken(BLINKED, f"the node has no {OFFERED} any more, and kubelet was not restarted")
            self._spared_s = self._now() + self._judge.grace_s

    def compare(self, view: NodeView | None, asked_s: float) -> None:
        """Holds both rules against the most that was left since the sample that the daemon showed when it was asked
        then, and since promises could be known."""
        row = next((row for row in view.keys if row.key == TDX), None) if view is not None else None
        if row is None or row.used is None or row.free is None or row.age_ms is None:
            return
        left = self._judge.most_left(asked_s - max(row.age_ms / 1e3, LEARNED_S))
        if left is None:
            return
        held, at_s = self._held(), self._now() - self._began_s
        self.proposal.note(max(0, proposed(self._capacity, row.used, len(held)) - len(held)), left, at_s)
        self.ours.note(row.free, left, at_s)
        self.listed.note(len([name for name in self._healthy if name not in held]), left, at_s)
