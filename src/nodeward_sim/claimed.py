"""Claims of TDX keys on the simulated node: their scheduler, kubelet's manager of claims, and who ends them.

A pod with a claim is bound where the slice in the API server has more keys than claims consume, by a view of the slice
that is a moment old; kubelet's double has the daemon prepare the claim before the pod's sandbox is made; and the claim
is taken back when the pod's containers have ended. After a forced deletion the claim is free in the API server before
that. Each Prepare is judged by what the simulated kernel had left at any moment of it; what containers get must be
there when they are made; the slice must not stay away.

Must not: decide anything for the daemon, or know its engine.
"""

import asyncio
import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from nodeward.core.errors import NodewardError
from nodeward.host.clock import SystemClock
from nodeward_sim.doubles.apiserver import ApiServer
from nodeward_sim.doubles.kernel import SimKernel
from nodeward_sim.doubles.kube_refusals import Json
from nodeward_sim.doubles.kubelet_claims import KubeClaim, PrepareError, SimClaims
from nodeward_sim.invariants import Judge
from nodeward_sim.machines import TDX, Machines
from nodeward_sim.shapes import OFFERED

DRIVER, NODE, NAMESPACE = "tee.nodeward.io", "sim", "default"
UNSAFE = "claim-unsafe"
BARE = "claim-without-device"
STUCK = "claim-stuck"
AWAY = "slice-away"
UNMOVED = "move-refused"
LATE_S = (0.0, 1.0)
"""So old the scheduler's view of the slice is: between these two."""
AGAIN_S = 0.5
"""Scheduler and kubelet try again after so long; kubelet waits longer for a claim, which would only make it idle."""
FORCED_S = (1.0, 3.0)
"""So long a pod that was deleted by force runs on."""
FIRST_SLICE_S = 30.0
MUTANTS = ("claims-unasked", "slice-forgotten", "claims-emptied")


@dataclass(slots=True)
class Counts:
    """What happened, for the summary."""

    prepared: int = 0
    put_off: int = 0
    taken_back: int = 0
    forced: int = 0
    why: str = ""
    """Of the last Prepare that was put off."""


class Claimed:
    """The doubles that keys are given out with by claim. `settings` is what the daemon is to be told of them."""

    def __init__(
        self,
        api: ApiServer,
        kernel: SimKernel,
        judge: Judge,
        machines: Machines,
        now: Callable[[], float],
        random: Random,
        mutant: str,
        share: str,
    ) -> None:
        self._api, self._kernel, self._judge, self._machines = api, kernel, judge, machines
        self._now, self._random, self._mutant, self._share = now, random, mutant, share
        self._home = Path(tempfile.mkdtemp(prefix="nw-"))  # a socket's path has 107 characters
        for folder in (*reversed(self._home.parents[:-1]), self._home, self._home / "cdi"):
            with contextlib.suppress(FileExistsError):
                kernel.mkdir(str(folder))
        metadata: Json = {"name": NODE, "uid": f"uid-{NODE}"}
        api.nfd.nodes.setdefault(NODE, {"kind": "Node", "metadata": metadata, "status": {}})
        self.kubelet = SimClaims(str(self._home), kernel, SystemClock(), api.dra.wipe)
        self._claims: dict[str, KubeClaim] = {}
        """By pod, until its containers have ended."""
        self._waiting: dict[str, None] = {}
        """Pods whose claim kubelet has to have prepared."""
        self._free: dict[str, None] = {}
        """Pods whose claim the API server has no more."""
        self._forced: dict[str, asyncio.Event] = {}
        """By pod that runs: it was deleted by force."""
        self._stuck_s: float | None = None
        self._away_s: float | None = None
        self._begun = False
        self.counts = Counts()

    @property
    def settings(self) -> Mapping[str, object]:
        """What the daemon's section `keys` has beside what it would have."""
        dra = {"mode": "enforce", "share": self._share, "cdi_dir": str(self._home / "cdi")}
        return {"mode": "enforce", "kubelet_root": str(self._home), "dra": dra}

    @property
    def kinds(self) -> Mapping[str, object]:
        """Its kinds, where no device plugin offers the keys too."""
        return {TDX: {"resources": [OFFERED], "devices": ["/dev/null"]}}

    async def start(self) -> None:
        """Kubelet begins."""
        await self.kubelet.start()

    async def stop(self) -> None:
        """It ends, and leaves nothing behind."""
        await self.kubelet.stop()
        shutil.rmtree(self._home)

    async def begun(self) -> None:
        """Returns when the slice is there for the first time."""
        end_s = self._now() + FIRST_SLICE_S
        while self._slice() is None:
            if self._now() > end_s:
                raise NodewardError(f"the daemon published no slice within {FIRST_SLICE_S:g} s; see its log")
            await asyncio.sleep(0.05)
        self._begun = True

    # ---- pods --------------------------------------------------------------------------------------------------------

    async def bound(self, uid: str, name: str, tell: Callable[[], object]) -> None:
        """Returns when the scheduler has bound the pod to this node, and kubelet may make its sandbox."""
        while True:
            seen = self._sold()
            await asyncio.sleep(self._random.uniform(*LATE_S))
            if not self._judge.api_away and self._consumed() < seen:
                break
            await asyncio.sleep(AGAIN_S)
        self._allocate(uid, name)
        tell()
        self._waiting[uid] = None
        while not await self._prepared(uid):
            await asyncio.sleep(AGAIN_S)
        del self._waiting[uid]

    async def live(self, uid: str, life_s: float) -> None:
        """Lives so long, or until soon after a forced deletion."""
        forced = self._forced[uid] = asyncio.Event()
        try:
            async with asyncio.timeout(life_s):
                await forced.wait()
                await asyncio.sleep(self._random.uniform(*FORCED_S))
        except TimeoutError:
            return
        finally:
            del self._forced[uid]

    async def end(self, uid: str) -> None:
        """The pod's containers have ended: kubelet takes the claim back until that is done; then it is free."""
        while await self.kubelet.unprepare(uid):
            await asyncio.sleep(AGAIN_S)
        self.counts.taken_back += 1
        await self._freed(uid)
        del self._claims[uid], self._free[uid]

    def _allocate(self, uid: str, name: str) -> None:
        claim = KubeClaim(NAMESPACE, f"key-{name}", f"claim-{uid}", (DRIVER,))
        result: Json = {"request": "key", "driver": DRIVER, "pool": NODE, "device": TDX, "shareID": f"share-{uid}"}
        result["consumedCapacity"] = {"keys": "1"}
        reserved = [{"resource": "pods", "name": name, "uid": uid}]
        status: Json = {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}
        metadata: Json = {"namespace": NAMESPACE, "name": claim.name, "uid": claim.uid}
        self._api.dra.claims[NAMESPACE, claim.name] = {"kind": "ResourceClaim", "metadata": metadata, "status": status}
        self._claims[uid] = claim

    async def _prepared(self, uid: str) -> bool:
        window = self._machines.watch_left()
        try:
            asked = [self._claims[uid]] if self._mutant != "claims-unasked" else []
            names = await self.kubelet.prepare(uid, asked)
        except PrepareError as error:
            self.counts.put_off += 1
            self.counts.why = str(error)
            return False
        finally:
            self._machines.unwatch(window)
        self.counts.prepared += 1
        self._judge.checks += 1
        if window.most < 1:
            self._judge.broken(UNSAFE, f"{uid} was given a key by claim, and {window.most} were left")
        self._machines.promised(uid, 1)
        self._delivered(uid, names)
        return True

    def _delivered(self, uid: str, names: list[str]) -> None:
        """The runtime finds what the pod's containers get."""
        self._judge.checks += 1
        folder = self._home / "cdi"
        there = []
        for file in self._kernel.listdir(str(folder)):
            spec = json.loads(self._kernel.read(f"{folder}/{file}", 1 << 20))
            there += [f"{spec['kind']}={device['name']}" for device in spec["devices"]]
        if self._mutant == "claims-emptied":
            there.clear()
        if not names or any(name not in there for name in names):
            self._judge.broken(BARE, f"{uid}: {names or 'nothing'} is not in {folder}, where there is {there}")

    async def _freed(self, uid: str) -> None:
        """The controllers free the claim, once the API server is there."""
        while self._judge.api_away:
            await asyncio.sleep(AGAIN_S)
        if uid not in self._free:
            self._free[uid] = None
            self._api.dra.claims.pop((NAMESPACE, self._claims[uid].name), None)

    # ---- what happens ------------------------------------------------------------------------------------------------

    async def restart_kubelet(self) -> None:
        """Kill -9, and a second later it is back, and deletes the slices of the node."""
        await self.kubelet.stop()
        await asyncio.sleep(1.0)
        await self.kubelet.start()

    def delete_slice(self) -> None:
        """Somebody deletes it."""
        self._api.dra.wipe(DRIVER)

    async def force_delete(self) -> None:
        """A pod is deleted by force: the API server knows nothing of it any more, and its VM still runs."""
        running = [uid for uid, forced in self._forced.items() if not forced.is_set()]
        if not running or self._judge.api_away:
            return
        uid = self._random.choice(running)
        self.counts.forced += 1
        await self._freed(uid)
        with contextlib.suppress(KeyError):
            self._api.delete_pod(NAMESPACE, self._claims[uid].name.removeprefix("key-"))
        self._forced[uid].set()

    # ---- judgement ---------------------------------------------------------------------------------------------------

    def look(self, *, spared: bool) -> None:
        """Judges whether claims wait for which keys are left, and whether the slice is there; `spared` while the daemon
        or the API server is away."""
        is_stuck = bool(self._waiting) and self._machines.unsold >= len(self._waiting) and not spared
        self._stuck_s = (self._stuck_s or self._now()) if is_stuck else None
        if self._stuck_s is not None and self._now() - self._stuck_s > 2 * self._judge.grace_s:
            self._judge.broken(STUCK, f"{len(self._waiting)} claims wait, and {self._machines.unsold} keys are left")
            self._stuck_s = None
        if self._mutant == "slice-forgotten" and self._begun:
            self._api.dra.wipe(DRIVER)
        if spared or self._slice() is not None or not self.kubelet.registered(DRIVER):
            self._away_s = None
            return
        now_s = self._now()
        self._away_s = self._away_s if self._away_s is not None else now_s
        if now_s - self._away_s > self._judge.grace_s:
            self._judge.broken(AWAY, f"the slice of {DRIVER} has been away for {now_s - self._away_s:.1f} s")
            self._away_s = now_s

    def _slice(self) -> Json | None:
        for one in self._api.dra.slices.values():
            spec = one["spec"]
            if isinstance(spec, dict) and spec.get("driver") == DRIVER:
                return spec
        return None

    def _sold(self) -> int:
        """How many keys the scheduler goes by."""
        if self._mutant == "claims-unasked":
            return 1000
        devices = (self._slice() or {}).get("devices")
        for device in devices if isinstance(devices, list) else ():
            if device["name"] == TDX:
                return 0 if device.get("taints") else int(device["capacity"]["keys"]["value"])
        return 0

    def _consumed(self) -> int:
        return len([uid for uid in self._claims if uid not in self._free])
