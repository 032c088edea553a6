"""A simulated node: kernel, runtime and API server doubles on real sockets, the real daemon beside them, and life.

One seed decides what is asked for; the processes run in real time, and the world by a clock that leaves out what they
wait for a processor (`clock`). The daemon is judged by what the kernel double holds
(`invariants`), never by its own word alone.
"""

import asyncio
import contextlib
import math
import os
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from nodeward.core.errors import NodewardError
from nodeward.people.rows import NodeView
from nodeward_sim.charges import EPC, FORGOTTEN, Charger, Charges
from nodeward_sim.claimed import MUTANTS as OF_CLAIMED
from nodeward_sim.claimed import UNMOVED, Claimed
from nodeward_sim.clock import NodeClock, Waiting
from nodeward_sim.daemon import Daemon
from nodeward_sim.doubles.apiserver import ApiServer
from nodeward_sim.doubles.cpus import Plan
from nodeward_sim.doubles.kernel import SimKernel
from nodeward_sim.doubles.remote_files import FilesServer
from nodeward_sim.doubles.runtime import SimContainer, SimPod, SimRuntime, SimShare
from nodeward_sim.doubles.runtime_plugins import RuntimeRefusalError
from nodeward_sim.gated import MUTANTS as OF_GATED
from nodeward_sim.gated import DeniedError, Gated
from nodeward_sim.guests import MUTANTS as OF_GUESTS
from nodeward_sim.guests import Guests
from nodeward_sim.invariants import DRIFT, KILL_DAEMON, RESTART_RUNTIME, Judge
from nodeward_sim.katas import MUTANTS as OF_KATAS
from nodeward_sim.katas import Katas
from nodeward_sim.machines import TDX, Machines
from nodeward_sim.offered import MUTANTS as OF_OFFERED
from nodeward_sim.offered import REFUSED_S, Offered
from nodeward_sim.pinned import AGAIN_S, SET, SLOW_S, UNWRITTEN, Pinned, cpu_of
from nodeward_sim.pinned import MUTANTS as OF_PINNED
from nodeward_sim.relayed import MUTANTS as OF_RELAYED
from nodeward_sim.relayed import Relayed
from nodeward_sim.scenario import Happening, Scenario
from nodeward_sim.shapes import (
    Planned,
    Shape,
    asked,
    make,
    make_claimed,
    make_guest,
    make_kata,
    make_machine,
    make_pinned,
    make_sandboxed,
)
from nodeward_sim.sharing import MUTANTS as OF_SHARING
from nodeward_sim.sharing import Sharing

READY_S = 60.0
MUTANTS = (
    "limits-not-written",
    *FORGOTTEN,
    "runtime-forgets-events",
    "lane-hangs",
    "loss-unnoticed",
    "keys-uncounted",
    "keys-unread",
    *OF_OFFERED,
    *OF_CLAIMED,
    *OF_RELAYED,
    *OF_SHARING,
    *OF_PINNED,
    *OF_KATAS,
    *OF_GATED,
    *OF_GUESTS,
)


@dataclass(slots=True)
class Tally:
    """What happened, for the summary."""

    pods: int = 0
    containers: int = 0
    refused_creates: int = 0
    happenings: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Live:
    charger: Charger
    shape: Shape
    plan: Planned


class _NoLimits:
    """Kernel files whose limits are never written: the mutant of a runtime that ignores its plugins."""

    def __init__(self, kernel: SimKernel) -> None:
        self._kernel = kernel
        self.mkdir, self.rmdir = kernel.mkdir, kernel.rmdir

    def write(self, path: str, data: bytes) -> None:
        if not path.endswith("misc.max"):
            self._kernel.write(path, data)


class World:
    """The node. `run` lives for some seconds and leaves its findings in `judge` and `tally`."""

    def __init__(
        self,
        scenario: Scenario,
        folder: Path,
        seed: int,
        *,
        mutant: str = "",
        record: str = "",
        log: Path | None = None,
        metrics: str = "",
    ) -> None:
        """`record` is a path on the simulated node; `log` a file on this machine for what the daemon logs; `metrics`
        the address where it serves its own."""
        self._metrics = metrics
        self.scenario, self._folder, self._mutant, self._record, self._log = scenario, folder, mutant, record, log
        self._seed = seed
        self._random = Random(seed)  # for charges and drift, in the order of real time; each pod has one of its own
        self.kernel = SimKernel(scenario.capacity, machine=Plan())
        self._files = FilesServer(self.kernel, folder / "kernel.sock")
        self.kernel.on_refusal = self._files.changed
        self._api = ApiServer()
        files = _NoLimits(self.kernel) if mutant == "limits-not-written" else self.kernel
        self._runtime = SimRuntime(folder / "nri.sock", files)
        self.judge = Judge(scenario.grace_s, enforceable=EPC in scenario.capacity)
        self.machines = Machines(
            self.kernel,
            scenario.capacity.get(TDX, 0),
            lambda keys: self.judge.left(keys, self._now()),
            self._now,
            uncounted=mutant == "keys-uncounted",
        )
        self.offered = self._offering() if scenario.offer else None
        self.claimed = self._claiming() if scenario.claims else None
        keys, nfd = scenario.capacity.get(TDX, 0), self._api.nfd
        self.sharing = Sharing(nfd, self.judge, self.machines, keys, self._now, mutant) if scenario.nfd else None
        self.tally = Tally()
        self.daemon: Daemon | None = None
        self.view: NodeView | None = None
        self.charges = Charges(self.kernel, self.judge, self._random, scenario.greedy, mutant)
        self.guests = Guests(folder, self.judge, self._life, mutant) if scenario.guests else None
        self.relayed = self._relaying(log) if scenario.relay else None
        self.pinned = self._pinning() if scenario.pinned else None
        self.katas = self._kata() if scenario.katas else None
        gates = Random(f"{seed}/gates")
        self.gated = Gated(folder, self.judge, self._now, gates, mutant) if scenario.gate else None
        self._live: dict[str, _Live] = {}
        self._sandboxes: dict[str, Charger] = {}
        """By pod, those that charge."""
        self._number = 0
        self._api_port = 0
        self._begins = False
        """The daemon was killed and is not ready again: what it shows meanwhile is not judged."""

    async def run(self, seconds: float, shown: Callable[[], None] = lambda: None) -> None:
        """Lives for `seconds` of the node's clock, which is the loop's from now on; calls `shown` whenever `view` is
        new."""
        self._clock = NodeClock(Waiting(self._pids).starved_s)
        vars(asyncio.get_running_loop())["time"] = self._clock.time
        await self._files.start()
        self._api_port = (await self._api.start()).port
        await self._runtime.serve()
        self.daemon = Daemon(
            self._folder,
            self._api.url,
            self._folder / "kernel.sock",
            self._record,
            self._log,
            self._metrics,
            sections=self._sections(),
        )
        try:
            if self.relayed is not None:
                await self.relayed.begin(self.daemon.config)
            if self.offered is not None:
                await self.offered.start()
            if self.claimed is not None:
                await self.claimed.start()
            if self.sharing is not None:
                self.sharing.start(self._api.url)
            self.judge.left(self.machines.unsold, self._now())
            await self.daemon.start()
            await self._ready()
            if self.offered is not None:
                await self.offered.begun()
            if self.claimed is not None:
                await self.claimed.begun()
            self._mutate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._live_on(shown)
        finally:
            if self.relayed is not None:  # before the daemon: an update that nobody decides any more would be judged
                await self.relayed.close()
            await self.daemon.stop()
            if self.offered is not None:
                await self.offered.stop()
            if self.claimed is not None:
                await self.claimed.stop()
            if self.sharing is not None:
                await self.sharing.stop()
            await self._runtime.close()
            await self._api.stop()
            await self._files.stop()

    def _journals(self) -> None:
        """Makes the folder where the daemon's journals of grants and claims are, on the simulated node."""
        run = self._folder / "run"
        for folder in (*reversed(run.parents[:-1]), run):
            with contextlib.suppress(FileExistsError):
                self.kernel.mkdir(str(folder))

    def _claiming(self) -> Claimed:
        self._journals()
        of_node = (self._api, self.kernel, self.judge, self.machines, self._now, Random(f"{self._seed}/claims"))
        return Claimed(*of_node, self._mutant, self.scenario.claim_share)

    def _offering(self) -> Offered:
        self._journals()
        capacity = self.scenario.capacity.get(TDX, 0)
        share = "auto" if self.scenario.nfd else "own"
        return Offered(self.kernel, self.judge, self.machines, capacity, self._now, self._mutant, share)

    def _pinning(self) -> Pinned:
        random = Random(f"{self._seed}/cpus")
        pinned = Pinned(self.kernel, self._runtime, self.judge, self._now, random, self._mutant)
        self._files.slow, self._files.on_write = (f"/{SET}", SLOW_S), pinned.written
        return pinned

    def _kata(self) -> Katas:
        random = Random(f"{self._seed}/katas")
        katas = Katas(self.kernel, self._runtime, self.judge, self._now, random, self._mutant)
        before = self._files.on_write

        def written(path: str, data: bytes) -> None:
            before(path, data)
            katas.written(path, data)

        self._files.on_write = written
        return katas

    @property
    def _node(self) -> SimRuntime | Relayed:
        """Where kubelet's calls go."""
        return self.relayed or self._runtime

    def _relaying(self, log: Path | None) -> Relayed:
        random = Random(f"{self._seed}/relay")
        of_node = (self._folder, self._runtime, self.judge, self.charges, self._now, random, self._mutant, log)
        return Relayed(*of_node, self.guests)

    def _life(self) -> object | None:
        """Of daemon and relay together; None while one is away."""
        assert self.relayed is not None
        assert self.daemon is not None
        relay = self.relayed.life
        return None if relay is None or self._begins else (relay, self.daemon.starts)

    def _sections(self) -> dict[str, dict[str, object]]:
        """The daemon's settings beside those that it always has."""
        found = self.relayed.sections if self.relayed is not None else {}
        if self.pinned is not None:
            found = {**found, **self.pinned.sections}
        if self.katas is not None:
            found = {**found, **self.katas.sections}
        if self.gated is not None:
            found = {**found, **self.gated.sections}
        if self.guests is not None:
            found = {**found, **self.guests.sections}
        if self.offered is not None or self.claimed is not None:
            return {**found, "keys": self._keys()}
        return {**found, "keys": {"mode": "observe"}} if self.scenario.vms else found

    def _keys(self) -> dict[str, object]:
        """The section `keys`, where keys are given out in earnest."""
        claims = self.claimed.settings if self.claimed is not None else {}
        if self.offered is not None:
            return {**self.offered.settings, **claims}
        assert self.claimed is not None
        return {**claims, "kinds": self.claimed.kinds}

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _pids(self) -> list[int]:
        """The processes of the node: this one, daemon and relay."""
        found = (os.getpid(), self.daemon and self.daemon.pid, self.relayed and self.relayed.pid)
        return [pid for pid in found if pid]

    async def _ready(self) -> None:
        assert self.daemon is not None
        end_s = self._now() + READY_S
        while (view := await self.daemon.view()) is None or not self._is_ready(view):
            if self.daemon.ended is not None:
                raise NodewardError(f"the daemon ended at its start with exit code {self.daemon.ended}; see its log")
            if self._now() > end_s:
                raise NodewardError(f"the daemon was not ready within {READY_S:.0f} s; see its log")
            await asyncio.sleep(0.05)
        self.view = view
        await self._look_at_relay()

    def _is_ready(self, view: NodeView) -> bool:
        return view.api == "answers" and bool(view.runtime)

    def _mutate(self) -> None:
        """Breaks the node in the way an invariant must notice; after the daemon has started well."""
        if self._mutant == "limits-not-written":
            self._files.ignore_writes_to = "misc.max"
        elif self._mutant == "runtime-forgets-events":
            self._runtime.nri.silent = True
        elif self._mutant == "lane-hangs":
            self._files.hang_on = "cgroup.subtree_control"
        elif self._mutant == "keys-unread":
            self._files.hang_on = "misc.capacity"
        elif self._mutant == UNWRITTEN:
            self._files.ignore_writes_to = f"/{SET}"
        elif self._mutant in OF_KATAS and self.katas is not None:
            self.katas.break_now()
        elif self.pinned is not None:
            self.pinned.break_now()
        elif self.relayed is not None:
            self.relayed.break_now()
        elif self.sharing is not None:
            self.sharing.break_now()

    async def _live_on(self, shown: Callable[[], None]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.scenario.pods):
                    group.create_task(self._tenant(make))
                for _ in range(self.scenario.sandboxes):
                    group.create_task(self._tenant(make_sandboxed))
                for _ in range(self.scenario.pinned):
                    group.create_task(self._tenant(make_pinned))
                for _ in range(self.scenario.katas):
                    group.create_task(self._tenant(self._make_kata))
                for _ in range(self.scenario.guests):
                    group.create_task(self._tenant(make_guest))
                for _ in range(self.scenario.claims):
                    group.create_task(self._tenant(make_claimed))
                for _ in range(self.scenario.vms):
                    group.create_task(self._tenant(make_machine))
                group.create_task(self._charge())
                group.create_task(self._look(shown))
                for happening in self.scenario.events:
                    group.create_task(self._happen(happening))
        except ExceptionGroup as group_error:
            told = group_error.subgroup(NodewardError)
            if told is None:
                raise
            raise NodewardError("; ".join(str(error) for error in told.exceptions)) from group_error

    def _make_kata(self, number: int, random: Random) -> Shape:
        return make_kata(number, random, self.scenario.oversized)

    async def _tenant(self, make: Callable[[int, Random], Shape]) -> None:
        """One place on the node: pod after pod."""
        await asyncio.sleep(self._random.uniform(0, 1.0))
        while True:
            self._number += 1
            random = Random(f"{self._seed}/{self._number}")
            shape, life_s = make(self._number, random), random.uniform(*self.scenario.life_s)
            with contextlib.suppress(RuntimeRefusalError):
                await self._pod(shape, life_s)
                self.tally.pods += 1

    async def _pod(self, shape: Shape, life_s: float) -> None:
        metadata = shape.manifest["metadata"]
        assert isinstance(metadata, dict)
        name, uid = str(metadata["name"]), str(metadata["uid"])
        late = self.scenario.late_spec_s
        if self.claimed is not None and shape.claim:
            late = 0.0
            await self.claimed.bound(uid, name, lambda: self._api.add_pod(shape.manifest))
        elif self.offered is not None and shape.machine is not None and shape.machine.inside:
            late = 0.0
            if not await self.offered.admit(uid, shape.machine.keys, lambda: self._api.add_pod(shape.manifest)):
                self._gone(uid, name)
                await asyncio.sleep(REFUSED_S)
                return
        elif not late:
            self._tell(shape, uid)
        parent = self._parent(shape, uid)
        if self.guests is not None and shape.image:
            self.guests.admit(uid, shape.image, {plan.name: plan.cpu_m for plan in shape.containers})
        pod_id = await self._sandbox(shape, uid, name)
        if shape.image:
            await self._pull(shape, uid, name, pod_id)
        teller = asyncio.ensure_future(self._tell_late(shape, uid, late)) if late else None
        machine: asyncio.Future[None] | None = None
        attests = asyncio.ensure_future(self.gated.attest(uid)) if self.gated is not None and shape.kata else None
        try:
            if shape.budget is not None:
                self.judge.watch(parent, shape.budget, self._told_s(late))
            if shape.overhead:
                sandbox = self._node.sandbox_cgroup(pod_id)
                self._sandboxes[pod_id] = Charger(sandbox, shape.overhead, parent, shape.budget or 0)
            for plan in shape.containers:
                if self.offered is not None and not shape.claim:
                    await self.offered.started(uid, plan.name)
                cgroup = await self._container_at_last(pod_id, shape, plan, late)
                self._status(shape, plan.name, cgroup)
                if machine is None:
                    machine = asyncio.ensure_future(self.machines.live(shape, uid, name, cgroup))
            if self.katas is not None and shape.kata is not None:
                await self.katas.live(pod_id, shape.kata, life_s)
            elif self.claimed is not None and shape.claim:
                await self.claimed.live(uid, life_s)
            else:
                await asyncio.sleep(life_s)
        except DeniedError:
            pass  # its user deletes it
        finally:
            await _cancelled(teller, machine, attests)
            if self.gated is not None:
                self.gated.ended(uid)
        for container_id in [i for i, live in self._live.items() if live.charger.cgroup.startswith(parent + "/")]:
            await self._end(container_id)
        if pod_id in self._sandboxes:
            self.charges.give_back(self._sandboxes.pop(pod_id).cgroup)
        self.judge.forget(parent)
        await self._node.stop_pod(pod_id)
        await self._node.remove_pod(pod_id)
        if self.claimed is not None and shape.claim:
            self.machines.forget(uid)
            await self.claimed.end(uid)
        if not late or teller is None or teller.done():
            self._gone(uid, name)
        else:
            self.machines.forget(uid)

    async def _sandbox(self, shape: Shape, uid: str, name: str) -> str:
        if self.relayed is not None:
            return await self.relayed.run_pod(self.relayed.pod(shape, uid, name))
        pod = SimPod(uid=uid, name=name, cgroup_parent=self._parent(shape, uid))
        if self.katas is not None and (kata := shape.kata) is not None:
            self.katas.admit(pod.cgroup_parent, kata)
            share = SimShare(cpu_of(kata.cpu_m, kata.cpu_m), kata.memory)
            beside = SimShare(cpu_of(kata.overhead_cpu_m, kata.overhead_cpu_m), kata.overhead_memory)
            pod = replace(pod, annotations=kata.annotations, handler=kata.handler, asked=share, overhead=beside)
        return await self._runtime.run_pod(pod)

    async def _pull(self, shape: Shape, uid: str, name: str, pod_id: str) -> None:
        """Kubelet has its image pulled, and the runtime's guest does."""
        assert self.guests is not None
        assert self.relayed is not None
        life = self.guests.life()
        await self.relayed.pull(pod_id, shape.image, self.guests.nameless)
        await self.guests.compare("default", name, uid, pod_id, life)
        self.guests.end(uid)

    def _parent(self, shape: Shape, uid: str) -> str:
        """The pod's cgroup."""
        root = self.katas.root if self.katas is not None and shape.kata is not None else "/kubepods"
        return "/".join((root, *[shape.qos] * bool(shape.qos), f"pod{uid}"))

    def _gone(self, uid: str, name: str) -> None:
        """The pod has ended, or was never admitted."""
        self.machines.forget(uid)
        if self.offered is not None:
            self.offered.end(uid)
        with contextlib.suppress(KeyError):
            self._api.delete_pod("default", name)

    def _told_s(self, late_s: float) -> float:
        """When the daemon can know of a pod that starts now; never, while the API server is away."""
        return math.inf if self.judge.api_away else self._now() + late_s

    async def _tell_late(self, shape: Shape, uid: str, late_s: float) -> None:
        await asyncio.sleep(late_s)
        self._tell(shape, uid)

    def _tell(self, shape: Shape, uid: str) -> None:
        self.machines.promise(shape, uid)
        self._api.add_pod(shape.manifest)

    async def _container_at_last(self, pod_id: str, shape: Shape, plan: Planned, late_s: float) -> str:
        """Its cgroup. Where CPUs are given or a gate is shut, kubelet tries a refused container again until it runs."""
        while True:
            try:
                return await self._container(pod_id, shape, plan, late_s)
            except RuntimeRefusalError as error:
                if self.gated is not None and shape.kata is not None:
                    await self.gated.refused(shape.uid, error)
                    continue
                if self.pinned is None:
                    raise
                self.pinned.refused(str(error))
            await asyncio.sleep(AGAIN_S)

    async def _container(self, pod_id: str, shape: Shape, plan: Planned, late_s: float) -> str:
        """Its cgroup."""
        wanted = SimContainer(name=plan.name, cpu=cpu_of(plan.cpu_m, plan.cpu_limit_m))
        try:
            container_id = await self._node.create_container(pod_id, wanted)
        except RuntimeRefusalError:
            self.tally.refused_creates += 1
            raise
        if self.gated is not None and shape.kata is not None:
            self.gated.made(shape.uid)
        await self._begun(container_id, shape, plan)
        cgroup = self._node.cgroup(container_id)
        self._live[container_id] = _Live(Charger(cgroup, plan.promised or 0), shape, plan)
        self.tally.containers += 1
        if plan.promised is not None:
            self.judge.watch(cgroup, plan.promised, self._told_s(late_s))
        if plan.seconds:
            await asyncio.sleep(plan.seconds)
            await self._end(container_id)
        return cgroup

    async def _begun(self, container_id: str, shape: Shape, plan: Planned) -> None:
        """Its program runs."""
        if self.pinned is None:
            await self._node.start(container_id)
            return
        await self.pinned.created(container_id, shape.own(plan))
        try:
            await self._node.start(container_id)
        except RuntimeRefusalError:
            self.pinned.ended(container_id)
            await self._node.remove_container(container_id)
            raise

    def _status(self, shape: Shape, name: str, cgroup: str) -> None:
        """Kubelet writes down the container's id: without NRI nothing else says whose a cgroup is."""
        status = shape.manifest["status"]
        assert isinstance(status, dict)
        one = {"name": name, "containerID": f"containerd://{cgroup.rpartition('/')[2]}"}
        status["containerStatuses"] = [*status.get("containerStatuses", ()), one]
        with contextlib.suppress(KeyError):  # the API server was not told of the pod yet
            self._api.update_pod(shape.manifest)

    async def _end(self, container_id: str) -> None:
        live = self._live.pop(container_id, None)
        if live is None:
            return
        self.judge.forget(live.charger.cgroup)
        self.charges.give_back(live.charger.cgroup)
        if self.pinned is not None:
            self.pinned.ended(container_id)
        await self._node.stop(container_id)
        await self._node.remove_container(container_id)

    async def _charge(self) -> None:
        """Enclaves take and give back pages; some take more than they may."""
        while True:
            await asyncio.sleep(self.scenario.charge_every_s)
            able = [live.charger for live in self._live.values() if live.shape.kata is None]
            chargers = [*able, *self._sandboxes.values()]
            if chargers:
                self.charges.one(self._random.choice(chargers))

    async def _look(self, shown: Callable[[], None]) -> None:
        """Judges ten times a second by the kernel, twice a second by what the daemon shows."""
        assert self.daemon is not None
        count = 0
        while True:
            await asyncio.sleep(0.1)
            self.judge.limits({path: self.charges.limit(path) for path in list(self.judge.cgroups)}, self._now())
            if self.offered is not None:
                self.offered.look()
            if self.claimed is not None:
                self.claimed.look(spared=self._begins or self.judge.api_away)
            if self.sharing is not None:
                self.sharing.note()
            if self.pinned is not None:
                self.pinned.look()
            if self.katas is not None:
                self.katas.look()
            count += 1
            if count % 5 == 0:
                asked_s, begins = self._now(), self._begins
                self.view = await self.daemon.view()
                await self._look_at_relay()
                if not (begins or self._begins):
                    self._judge_view(asked_s)
                shown()

    async def _look_at_relay(self) -> None:
        if self.relayed is not None:
            await self.relayed.look()
            if self.view is not None:
                self.view = replace(self.view, relay=self.relayed.view)

    def _judge_view(self, asked_s: float) -> None:
        besides = self.relayed.unremoved if self.relayed is not None else ()
        starved = self._clock.owes and not self._files.hangs
        self.judge.view(self.view, list(self._live), self._now(), besides, starved=starved)
        if self.scenario.vms or self.scenario.claims:
            self.judge.keys(self.view, asked_s, self._now())
        if self.offered is not None:
            self.offered.compare(self.view, asked_s)
        if self.sharing is not None:
            self.sharing.compare(self.view)
        if self.pinned is not None:
            self.pinned.compare(self.view)
        if self.katas is not None:
            self.katas.compare(self.view, asked_s)

    async def _happen(self, happening: Happening) -> None:
        actions: dict[str, Callable[[], Coroutine[None, None, None] | None]] = {
            KILL_DAEMON: self._kill_daemon,
            RESTART_RUNTIME: self._restart_runtime,
            DRIFT: self._drift,
            "lose-api": self._lose_api,
            "restore-api": self._restore_api,
            "start-vm": self.machines.start_outside,
            "end-vm": self.machines.end_outside,
            "leave-orphan": self.machines.orphan,
            "restart-kubelet": self._restart_kubelet,
        }
        if self.offered is not None:
            actions["lose-quotes"] = self.offered.lose_quotes
            actions["restore-quotes"] = self.offered.restore_quotes
        if self.claimed is not None:
            actions["delete-slice"] = self.claimed.delete_slice
            actions["force-delete"] = self.claimed.force_delete
            actions["move-to-dra"] = lambda: self._move("dra")
            actions["move-to-plugin"] = lambda: self._move("plugin")
        if self.relayed is not None:
            actions["kill-relay"] = self.relayed.kill_relay
        if self.sharing is not None:
            actions["install-nfd"] = self.sharing.install
            actions["remove-nfd"] = self.sharing.remove
        if self.pinned is not None:
            actions["resize"] = self._resize
            actions["change-policy"] = self._change_policy
            actions["kill-between"] = self._kill_between
        if self.katas is not None:
            actions["move-vmm"] = self.katas.move_vmm
            actions["return-vmm"] = self.katas.return_vmm
        await asyncio.sleep(happening.at_s)
        while True:
            if (begun := actions[happening.do]()) is not None:
                await begun
            self.tally.happenings[happening.do] = self.tally.happenings.get(happening.do, 0) + 1
            if not happening.every_s:
                return
            await asyncio.sleep(happening.every_s)

    async def _kill_daemon(self) -> None:
        if not self._begins:
            await self._killed()
            await self._again()

    async def _kill_between(self) -> None:
        """The daemon is killed when others are off a new container's CPUs, and before its program begins."""
        assert self.pinned is not None
        goes_on = await self.pinned.between()
        was_away = self._begins  # another has killed it
        if not was_away:
            await self._killed()
        goes_on.set_result(None)
        if not was_away:
            await self._again()

    async def _killed(self) -> None:
        assert self.daemon is not None
        self._begins = True
        if self.relayed is not None:
            self.relayed.daemon_went()
        if self.pinned is not None:
            self.pinned.lost()
        if self.katas is not None:
            self.katas.lost()
        await self.daemon.stop(signal.SIGKILL)

    async def _again(self) -> None:
        """The daemon is back."""
        assert self.daemon is not None
        await asyncio.sleep(1.0)
        await self.daemon.start()
        await self._ready()
        self.judge.disturbed(KILL_DAEMON, self._now())
        if self.pinned is not None:
            self.pinned.back()
        if self.katas is not None:
            self.katas.back()
        self._begins = False

    async def _resize(self) -> None:
        assert self.pinned is not None

        def ask(container_id: str, cpu_m: int) -> None:
            live = self._live.get(container_id)
            if live is not None:
                asked(live.shape, live.plan.name, cpu_m)
                with contextlib.suppress(KeyError):
                    self._api.update_pod(live.shape.manifest)

        await self.pinned.resize(ask)

    def _change_policy(self) -> None:
        assert self.pinned is not None
        assert self.daemon is not None
        self.daemon.change(self.pinned.change())

    async def _restart_runtime(self) -> None:
        await self._node.restart()
        self.judge.disturbed(RESTART_RUNTIME, self._now())

    async def _drift(self) -> None:
        """Somebody writes `max` where Nodeward wrote a limit."""
        if self.pinned is not None:
            self.pinned.drift()
        reached = [path for path, watched in self.judge.cgroups.items() if watched.reached]
        if reached:
            cgroup = self._random.choice(reached)
            self.judge.disturbed(DRIFT, self._now(), cgroup)
            with contextlib.suppress(OSError):
                self.charges.lift(cgroup)

    async def _restart_kubelet(self) -> None:
        """Both of its managers, at once."""
        found = (self.offered, self.claimed)
        await asyncio.gather(*(one.restart_kubelet() for one in found if one is not None))

    async def _move(self, to: str) -> None:
        """An operator asks for it; the daemon may be away."""
        assert self.daemon is not None
        since_s: float | None = None
        while not await self.daemon.post("keys/move", {"to": to}):
            since_s = None if self._begins else since_s or self._now()
            if since_s is not None and self._now() - since_s > self.judge.grace_s:
                self.judge.broken(UNMOVED, f"the daemon is there, and does not take the move to {to}")
                since_s = None
            await asyncio.sleep(0.5)

    async def _lose_api(self) -> None:
        """Nobody listens any more at the API server's address."""
        if not self.judge.api_away:
            self.judge.lost_api(self._now())
            if self._mutant != "loss-unnoticed":
                await self._api.stop()

    async def _restore_api(self) -> None:
        if self.judge.api_away:
            if self._mutant != "loss-unnoticed":
                await self._api.start(port=self._api_port)
            self.judge.restored_api(self._now())


async def _cancelled(*tasks: asyncio.Future[None] | None) -> None:
    """Cancels those that are there, and waits until they have ended. What one has failed with is raised."""
    there = [task for task in tasks if task is not None]
    for task in there:
        task.cancel()
    for error in await asyncio.gather(*there, return_exceptions=True):
        if isinstance(error, Exception):
            raise error
