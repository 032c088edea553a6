"""CPUs of the simulated node under the policy `static`: what happens to them, and what must never be.

Judged is what the kernel double lets each container run on, at the moment when a program begins and ten times a second.
How many CPUs a container is to have for its own follows from its pod's manifest; what the daemon says is compared
with the kernel and never believed. While no plugin is there nobody gives CPUs, so a container that is created or
started then is judged once the daemon is back and the grace is over.

Must not: know the engine, or choose CPUs.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from nodeward.contracts import nri_pb2
from nodeward.core import cpuset
from nodeward.core.cpuset import CpuSet
from nodeward.people.rows import NodeView
from nodeward_sim.doubles.kernel import CGROUP_MOUNT, SimKernel
from nodeward_sim.doubles.runtime import SimCpu, SimRuntime
from nodeward_sim.doubles.runtime_plugins import RuntimeRefusalError
from nodeward_sim.invariants import Judge

OVERLAP = "cpus-overlap"
EMPTY = "cpus-empty"
MOVED = "cpus-moved"
WRONG = "cpus-not-as-wanted"
NEEDLESS = "cpus-written-needlessly"
UNWAITED, UNWRITTEN = "starts-unwaited", "sets-not-written"
MUTANTS = (UNWAITED, UNWRITTEN)
SET, EFFECTIVE = "cpuset.cpus", "cpuset.cpus.effective"
SLOW_S = 0.01
"""So long a write of a set takes: a program that does not wait for it begins too early."""
AGAIN_S = 1.0
"""Kubelet tries a refused container again after so long."""
SHRINK_S = 2.0
"""Within this time others are off a new container's CPUs."""
STATIC, NONE = "static", "none"
Sections = dict[str, dict[str, object]]
POLICIES: tuple[dict[str, object], ...] = (
    {"Active": STATIC, "ReservedResources": {"CPU": "cpuset:0"}},
    {"Active": STATIC, "ReservedResources": {"CPU": "cpuset:0,16"}},
    {"Active": NONE},
)
"""The node's, in the order in which `change-policy` takes them; after the last comes the first."""
RESERVED: tuple[CpuSet, ...] = (cpuset.of((0,)), cpuset.of((0, 16)), 0)


@dataclass(slots=True, eq=False)
class _One:
    """A container. `own` is how many CPUs it is to have for itself, 0 for one that shares."""

    id: str
    cgroup: str
    own: int
    told: bool
    """Whether the daemon had a say in its creation."""
    from_s: float = math.inf
    """When judging begins."""
    cpus: CpuSet = 0
    """Those it has had for its own since it began; 0 where that is not known, or may change."""
    runs: bool = False


@dataclass(slots=True)
class Counts:
    """What happened, for the summary."""

    starts: int = 0
    """Programs whose begin was judged."""
    exclusive: int = 0
    refused: int = 0
    why: str = ""
    resized: int = 0
    unresized: int = 0
    written: int = 0
    """Sets that the daemon has written."""
    late: int = 0
    drifts: int = 0
    unplaced: int = 0


def cpu_of(cpu_m: int, limit_m: int) -> SimCpu:
    """The CPU resources as kubelet passes them to the runtime."""
    return SimCpu(max(2, cpu_m * 1024 // 1000), limit_m * 100, 100_000 if limit_m else 0)


class Pinned:
    """The containers and who has which CPUs. Times are the simulation's."""

    def __init__(
        self,
        kernel: SimKernel,
        runtime: SimRuntime,
        judge: Judge,
        now: Callable[[], float],
        random: Random,
        mutant: str = "",
    ) -> None:
        self._kernel, self._runtime, self._judge, self._now, self._random = kernel, runtime, judge, now, random
        self._mutant = mutant
        self._ones: dict[str, _One] = {}
        self._policy = 0
        self._away = False
        self._resizing = ""
        self._unplaced: dict[str, None] = {}
        self._wrong_since: dict[str, float] = {}
        self._caught: tuple[asyncio.Future[None], asyncio.Future[None]] | None = None
        self.counts = Counts()
        runtime.on_program = self.program

    @property
    def sections(self) -> Sections:
        """The daemon's settings now. A start that would overlap is refused, so that no overlap is ever right."""
        return {"policy": POLICIES[self._policy], "cpus": {"on_late": "refuse"}}

    @property
    def _active(self) -> str:
        return str(POLICIES[self._policy]["Active"])

    def break_now(self) -> None:
        """The mutant that is not in the files."""
        if self._mutant == UNWAITED:
            self._runtime.nri.unasked = (nri_pb2.START_CONTAINER,)

    # ---- containers come and go

    async def created(self, container_id: str, own: int) -> None:
        """The runtime has made it, and its program does not run yet. Returns when it may be started."""
        one = _One(container_id, self._runtime.cgroup(container_id), own, bool(self._record(container_id)))
        self._ones[container_id] = one
        if self._caught is not None and own and one.told:
            (reached, goes_on), self._caught = self._caught, None
            await self._are_off(container_id)
            reached.set_result(None)
            await goes_on

    def program(self, container_id: str) -> None:
        """Its program begins in this moment."""
        one = self._ones.get(container_id)
        if one is None:
            return
        one.runs, cpus, now_s = True, self._effective(one), self._now()
        if self._active == NONE or not (one.told and self._runtime.nri.plugins):
            one.from_s = math.inf if self._away else now_s + self._judge.grace_s
            return
        one.from_s = now_s
        self.counts.starts += 1
        self._judge.checks += 1
        if one.own:
            self.counts.exclusive += 1
            one.cpus = cpus
            if cpus.bit_count() != one.own:
                self._judge.broken(WRONG, f"{one.cgroup}: begins on {cpuset.text(cpus)} and is to have {one.own} CPUs")
        for other in self._running():
            if other is not one and other.from_s <= now_s:
                self._apart(one, other, "begins")

    def ended(self, container_id: str) -> None:
        """It is about to be gone."""
        self._ones.pop(container_id, None)

    def refused(self, why: str) -> None:
        """Kubelet got a refusal, and tries again."""
        self.counts.refused += 1
        self.counts.why = why

    # ---- what the daemon does

    def written(self, path: str, data: bytes) -> None:
        """The daemon is about to write this file."""
        if not path.endswith(f"/{SET}"):
            return
        self.counts.written += 1
        cgroup = path.removeprefix(CGROUP_MOUNT).removesuffix(f"/{SET}")
        if not data.strip():
            self._judge.broken(EMPTY, f"{cgroup}: an empty set is written")
        if cgroup != self._resizing and self._read(cgroup, SET) == cpuset.parse(data.decode()):
            self._judge.broken(NEEDLESS, f"{cgroup}: {data.decode()} is written, and is there already")

    def look(self) -> None:
        """What the kernel says now."""
        now_s = self._now()
        settled = [one for one in self._running() if one.from_s <= now_s and one.id not in self._unplaced]
        for place, one in enumerate(settled):
            self._judge.checks += 1
            if self._active == NONE:
                if one.told and self._effective(one) != self._read("", EFFECTIVE):
                    self._again(one, WRONG, "is still pinned, and the policy is none")
                continue
            if not self._read(one.cgroup, SET):
                self._again(one, EMPTY, "has no set of its own")
            self._stays(one)
            for other in settled[:place]:
                self._apart(one, other, "runs")

    def compare(self, view: NodeView | None) -> None:
        """What the daemon shows with what the kernel says."""
        if view is None or view.cpus is None or self._away:
            self._wrong_since.clear()
            return
        now_s = self._now()
        self.counts.late, self.counts.drifts = view.cpus.late, view.cpus.drifts
        self._unplaced = {row.id: None for row in view.cpus.holders if row.state == "unplaced"}
        self.counts.unplaced = max(self.counts.unplaced, len(self._unplaced))
        wrong = dict[str, float]()
        shown = {row.id: row for row in view.cpus.holders if row.id}
        for one in self._running():
            row = shown.get(one.id)
            has = cpuset.text(self._effective(one))
            if row is not None and row.state not in ("unpinned", "unplaced") and (row.cpus, row.state) != (has, "held"):
                wrong[f"{one.cgroup}: is to run on {row.cpus} ({row.state}) and runs on {has}"] = now_s
            elif row is None and one.told and self._active != NONE:
                wrong[f"{one.cgroup}: is not shown"] = now_s
        if view.cpus.policy != self._active:
            wrong[f"the policy {view.cpus.policy} is in force: {view.cpus.refused}"] = now_s
        self._wrong_since = {what: self._wrong_since.get(what, since_s) for what, since_s in wrong.items()}
        for what, since_s in self._wrong_since.items():
            self._judge.checks += 1
            if now_s - since_s > self._judge.grace_s:
                self._judge.broken(WRONG, what)
                self._wrong_since[what] = now_s

    # ---- what happens to it

    def drift(self) -> None:
        """Somebody else gives a container all CPUs."""
        ones = [one for one in self._running() if one.from_s <= self._now()]
        if ones:
            one = self._random.choice(ones)
            one.from_s = self._now() + self._judge.grace_s
            with contextlib.suppress(OSError):
                self._kernel.write(f"{CGROUP_MOUNT}{one.cgroup}/{SET}", b"0-31")

    async def resize(self, ask: Callable[[str, int], None]) -> None:
        """Some container with CPUs of its own is to have another number of them; `ask` changes its pod's manifest.
        Where there is no room, the user takes it back."""
        ones = [one for one in self._running() if one.own and one.cpus and one.from_s <= self._now()]
        if not ones or self._resizing or self._away:
            return
        one = self._random.choice(ones)
        to, before, had = (
            self._random.choice([count for count in (1, 2, 3, 4, 6) if count != one.own]),
            one.own,
            one.cpus,
        )
        ask(one.id, to * 1000)
        one.from_s, self._resizing = math.inf, one.cgroup
        try:
            await self._runtime.update_container(one.id, cpu=cpu_of(to * 1000, to * 1000))
        except RuntimeRefusalError as error:
            if one.id in self._ones:
                self.counts.unresized += 1
                self.counts.why = str(error)
                ask(one.id, before * 1000)
        else:
            if one.id in self._ones:
                self.counts.resized += 1
                one.own, one.cpus = to, self._effective(one) if self._runtime.nri.plugins else 0
                if not one.cpus:
                    pass  # the daemon went meanwhile, and has not heard of it
                elif one.cpus & ~had if to < before else had & ~one.cpus:
                    moved = f"{cpuset.text(had)} became {cpuset.text(one.cpus)}"
                    self._judge.broken(MOVED, f"{one.cgroup}: {moved} as it was resized from {before} to {to} CPUs")
        self._resizing, one.from_s = "", self._now() + self._judge.grace_s

    def change(self) -> Sections:
        """The next settings of the policy, in force from now on. Whoever may stay is to stay."""
        self._policy = (self._policy + 1) % len(POLICIES)
        settled_s = self._now() + self._judge.grace_s
        for one in self._running():
            one.from_s = max(one.from_s, settled_s)
            if self._active == NONE or one.cpus & RESERVED[self._policy]:
                one.cpus = 0
        return self.sections

    async def between(self) -> asyncio.Future[None]:
        """Returns once a container with CPUs of its own is there, others are off them, and its program does not run
        yet. It begins when the future that is returned is done."""
        loop = asyncio.get_running_loop()
        reached, goes_on = loop.create_future(), loop.create_future()
        self._caught = (reached, goes_on)
        await reached
        return goes_on

    def lost(self) -> None:
        """The daemon is away."""
        self._away = True

    def back(self) -> None:
        """It is there again."""
        self._away = False
        for one in self._running():
            if one.from_s == math.inf:
                one.from_s = self._now() + self._judge.grace_s

    # ---- what is compared

    def _running(self) -> Iterator[_One]:
        return (one for one in list(self._ones.values()) if one.runs)

    def _apart(self, one: _One, other: _One, does: str) -> None:
        """No two share a CPU of which one has it for its own."""
        both = self._effective(one) & self._effective(other)
        if both and (one.own or other.own):
            self._again(one, OVERLAP, f"{does} on CPUs {cpuset.text(both)} of {other.cgroup}")

    def _stays(self, one: _One) -> None:
        cpus = self._effective(one)
        if one.own and cpus.bit_count() != one.own:
            self._again(one, WRONG, f"runs on {cpuset.text(cpus)} and is to have {one.own} CPUs")
        elif one.own and one.cpus and cpus != one.cpus:
            self._again(one, MOVED, f"was on {cpuset.text(one.cpus)} and is on {cpuset.text(cpus)}")
        if one.own:
            one.cpus = cpus

    def _again(self, one: _One, invariant: str, what: str) -> None:
        """Told once, and again after the grace."""
        self._judge.broken(invariant, f"{one.cgroup}: {what}")
        one.from_s = self._now() + self._judge.grace_s

    async def _are_off(self, container_id: str) -> None:
        """Waits until others are off the new container's CPUs, so long as SHRINK_S."""
        cpus, end_s = cpuset.parse(self._record(container_id)), self._now() + SHRINK_S
        while any(self._effective(other) & cpus for other in self._running()) and self._now() < end_s:
            await asyncio.sleep(0.005)

    def _record(self, container_id: str) -> str:
        return next(one.linux.resources.cpu.cpus for one in self._runtime.containers() if one.id == container_id)

    def _effective(self, one: _One) -> CpuSet:
        """0 for a cgroup that is gone."""
        return self._read(one.cgroup, EFFECTIVE)

    def _read(self, cgroup: str, file: str) -> CpuSet:
        try:
            return cpuset.parse(self._kernel.read(f"{CGROUP_MOUNT}{cgroup}/{file}", 4096).decode())
        except OSError:
            return 0
