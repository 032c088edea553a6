"""Kata pods of the simulated node: guests that use more and more memory, and what the daemon must say of them.

Judged is by the kernel double and the double of Kata's side: where each process is, what cgroups hold, whom the kernel
has killed. What the daemon shows is compared with it, at the moment of the reading that it shows.

Must not: know the engine, or say by its rules what fits.
"""

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from nodeward.features.sandboxes.rows import SandboxRow
from nodeward.people.rows import NodeView
from nodeward_sim.doubles.kata import FIRST, OVERHEAD, KataHost, KataVm
from nodeward_sim.doubles.kernel import CGROUP_MOUNT, SimKernel
from nodeward_sim.doubles.memory_controller import PAGE
from nodeward_sim.doubles.runtime import SimRuntime
from nodeward_sim.invariants import Judge
from nodeward_sim.shapes import KataPod

TRUTH = "sandboxes-truth"
UNWRITTEN = "sandboxes-unwritten"
WARNED = "sandboxes-warned"
UNSEEN, UNDERSTATED, ENFORCED = "vmm-moves-unseen", "vm-understated", "sandboxes-enforced"
MUTANTS = (UNSEEN, UNDERSTATED, ENFORCED)
KILLED = "will be killed"
PERIOD_S = 1.0
"""The daemon reads so often."""
SLACK_S = 0.6
"""It is asked each half second."""
TOLD_S = 2 * PERIOD_S + SLACK_S
"""Within two periods it says what has happened."""
GONE_S = 3 * PERIOD_S + SLACK_S
"""Within this time it says so no more: of threads the place is read every other period."""
KNOWN_S = 20.0
"""For so long what was is kept."""
BOOT_S, FULL_S, STEP_S = 5.0, 8.0, 0.25
"""A guest uses more memory from BOOT_S on, until it has used all FULL_S later."""
DEAD_S = 5.0
"""Kubelet ends a pod so long after its VMM was killed."""
ELSEWHERE = "/system.slice/somebody.service"
Sections = dict[str, dict[str, object]]


@dataclass(frozen=True, slots=True)
class _Sight:
    """What was so from this moment on."""

    at_s: float
    places: dict[str, str]
    memory: int
    guest: int
    kills: int


@dataclass(slots=True, eq=False)
class _One:
    """A sandbox. `limit` of its pod, None where kubelet set none."""

    vm: KataVm
    limit: int | None
    since_s: float
    sights: deque[_Sight] = field(default_factory=deque)
    warned: bool = False
    """The daemon has said that it will be killed, while it lived."""
    killed_at: int | None = None
    """So much memory of its guest brings the kill, as the daemon said last."""
    killed_s: float | None = None
    moved_s: float | None = None
    """Since when somebody has its VMM elsewhere."""
    back_s: float | None = None
    """Since when it is back. Memory stays charged where it was, so it is not compared any more."""
    told: bool = False
    """The daemon has shown the move,"""
    told_back: bool = False
    """that it is back,"""
    counted: bool = False
    """and the kill."""


@dataclass(slots=True)
class Counts:
    """What happened, for the summary."""

    sandboxes: int = 0
    warned: int = 0
    killed: int = 0
    counted: int = 0
    """Kills that the daemon has shown."""
    moved: int = 0
    told: int = 0
    """Moves that the daemon has shown as such."""
    told_back: int = 0
    read: int = 0
    """Rows that were compared."""


class Katas:
    """The Kata pods of a node. Times are the simulation's."""

    def __init__(
        self,
        kernel: SimKernel,
        runtime: SimRuntime,
        judge: Judge,
        now: Callable[[], float],
        random: Random,
        mutant: str = "",
    ) -> None:
        self._kernel, self._judge, self._now, self._random, self._mutant = kernel, judge, now, random, mutant
        self.host = KataHost(kernel, understated=mutant == UNDERSTATED)
        runtime.vms = self.host
        self._ones: dict[str, _One] = {}
        self._ended_s: dict[str, float] = {}
        self._judged_s = 0.0
        """Before this nothing is judged: the daemon was away."""
        self.counts = Counts()

    @property
    def sections(self) -> Sections:
        """The daemon's settings."""
        mode = "enforce" if self._mutant == ENFORCED else "observe"
        return {"sandboxes": {"mode": mode, "period_ms": int(PERIOD_S * 1000)}}

    @property
    def root(self) -> str:
        """Above the pods' cgroups. Without kubelet the daemon may set a limit, which the mutant is for."""
        return "/standalone" if self._mutant == ENFORCED else "/kubepods"

    def break_now(self) -> None:
        """The mutant that is in /proc."""
        self.host.processes.frozen = self._mutant == UNSEEN

    def admit(self, parent: str, pod: KataPod) -> None:
        """Kubelet makes the pod's cgroup and limits it."""
        self.host.make(parent)
        if self._mutant != ENFORCED:
            self._kernel.write(f"{CGROUP_MOUNT}{parent}/memory.max", f"{pod.limit}".encode())
            self._kernel.write(f"{CGROUP_MOUNT}{parent}/cpu.max", f"{pod.cpu_limit_m * 100} 100000".encode())

    async def live(self, sandbox: str, pod: KataPod, life_s: float) -> None:
        """The VM of this sandbox: its guest runs, and uses more and more memory. Returns at the end of the pod's life,
        or some time after the VMM was killed."""
        self.begun(sandbox, pod)
        one, began_s = self._ones[sandbox], self._now()
        most = int((one.vm.memory - FIRST) * pod.fills)
        step = int(most * STEP_S / FULL_S) // PAGE * PAGE
        end_s = began_s + life_s
        try:
            while (left_s := end_s - self._now()) > 0:
                await asyncio.sleep(min(STEP_S, left_s))
                if one.killed_s is not None:
                    end_s = min(end_s, one.killed_s + DEAD_S)
                    continue
                self.host.run(one.vm, self._random.randrange(10_000, 200_000))
                grows = self._now() - began_s > BOOT_S and one.vm.vmm.guest + step <= FIRST + most
                self.use(sandbox, step if grows else 0)
        finally:
            del self._ones[sandbox]
            self._ended_s[sandbox] = self._now()

    def begun(self, sandbox: str, pod: KataPod) -> None:
        """The runtime has started it."""
        limit = pod.limit if self._mutant != ENFORCED else None
        self._ones[sandbox] = one = _One(self.host.vms[sandbox], limit, self._now())
        self.counts.sandboxes += 1
        self._note(one)

    def use(self, sandbox: str, amount: int) -> None:
        """Its guest uses so much more memory."""
        one = self._ones[sandbox]
        if not self.host.touch(one.vm, amount) and one.killed_s is None:
            self._killed(one, one.vm.vmm.guest + amount)
        self._note(one)

    # ---- what happens to them

    def move_vmm(self) -> None:
        """Somebody moves a VMM out of its pod."""
        able = [one for one in self._alive() if one.moved_s is None and one.back_s is None and self._is_settled(one)]
        if able:
            one = self._random.choice(able)
            self.host.make(ELSEWHERE)
            self.host.processes.move(one.vm.vmm, ELSEWHERE)
            one.moved_s = self._now()
            self.counts.moved += 1
            self._note(one)

    def return_vmm(self) -> None:
        """Every VMM that was moved is where it was."""
        for one in self._alive():
            if one.moved_s is not None:
                self.host.processes.move(one.vm.vmm, one.vm.home)
                one.moved_s, one.back_s = None, self._now()
                self._note(one)

    def lost(self) -> None:
        """The daemon is away."""
        self._judged_s = math.inf

    def back(self) -> None:
        """The daemon is ready again, and has to find everything again within two periods."""
        self._judged_s = self._now()

    def _killed(self, one: _One, wanted: int) -> None:
        """The kernel has killed its VMM, whose guest wanted so much memory."""
        now_s = self._now()
        one.killed_s = now_s
        self.counts.killed += 1
        self._judge.checks += 1
        if one.limit is None or one.vm.memory <= one.limit:
            return
        if not one.warned and now_s >= self._judged_s and self._is_settled(one):
            what = f"the VM has {one.vm.memory} bytes, its pod's limit is {one.limit}"
            self._judge.broken(WARNED, f"{one.vm.home}: the kernel has killed its VMM and nobody had said so; {what}")
        if one.killed_at is not None and wanted < one.killed_at:
            what = f"said was {one.killed_at} bytes of guest memory, and its guest wanted {wanted}"
            self._judge.broken(WARNED, f"{one.vm.home}: the kernel has killed its VMM earlier than was said; {what}")

    def _alive(self) -> Iterator[_One]:
        return (one for one in list(self._ones.values()) if one.vm.vmm.alive)

    def _is_settled(self, one: _One) -> bool:
        return self._now() - max(one.since_s, self._judged_s) > TOLD_S

    # ---- what the daemon does

    def written(self, path: str, data: bytes) -> None:
        """The daemon is about to write this file. It only observes, so none of a sandbox's cgroups."""
        self._judge.checks += 1
        cgroup = path.removeprefix(CGROUP_MOUNT).rpartition("/")[0]
        places = [*(one.vm.pod for one in self._ones.values()), OVERHEAD]
        if path.startswith(CGROUP_MOUNT) and any(f"{cgroup}/".startswith(f"{place}/") for place in places):
            self._judge.broken(UNWRITTEN, f"{path}: {data.decode('utf-8', 'replace').strip()} is written")

    def look(self) -> None:
        """Looks at the present state."""
        for one in self._ones.values():
            self._note(one)

    def compare(self, view: NodeView | None, asked_s: float) -> None:
        """What the daemon showed since `asked_s` with what was so when it read it."""
        if view is None or view.sandboxes is None or asked_s < self._judged_s:
            return
        rows = {row.id: row for row in view.sandboxes.rows}
        for sandbox, one in self._ones.items():
            row = rows.get(sandbox)
            if row is not None:
                self._heard(one, row)
            if asked_s - max(one.since_s, self._judged_s) > TOLD_S:
                self._judge.checks += 1
                self.counts.read += 1
                for what in self._wrong(one, row, asked_s):
                    self._judge.broken(TRUTH, f"{one.vm.home}: {what}")
        self._ended_s = {one: at_s for one, at_s in self._ended_s.items() if one in rows or asked_s - at_s < KNOWN_S}
        for sandbox in rows:
            if asked_s - self._ended_s.get(sandbox, asked_s) > TOLD_S:
                self._judge.broken(TRUTH, f"{sandbox}: is shown and has ended")
                self._ended_s[sandbox] = asked_s

    def _heard(self, one: _One, row: SandboxRow) -> None:
        """Counts what the daemon has said, once each."""
        is_away = any(drift.is_fault and drift.role == "vmm" for drift in row.drifts)
        if one.vm.vmm.alive:
            one.killed_at = row.fit.killed_at
        if row.fit.fit == KILLED and one.vm.vmm.alive and not one.warned:
            one.warned, self.counts.warned = True, self.counts.warned + 1
        if one.moved_s is not None and is_away and not one.told:
            one.told, self.counts.told = True, self.counts.told + 1
        if one.back_s is not None and not row.drifts and not one.told_back:
            one.told_back, self.counts.told_back = True, self.counts.told_back + 1
        if one.killed_s is not None and row.oom_kills and not one.counted:
            one.counted, self.counts.counted = True, self.counts.counted + 1

    def _wrong(self, one: _One, row: SandboxRow | None, asked_s: float) -> Iterator[str]:
        """What of a sandbox is not as it is."""
        if row is None:
            yield "is not shown"
            return
        age_s = (row.age_ms or 0) / 1000
        if age_s > TOLD_S:
            yield f"was read {age_s:.1f} s ago"
            return
        seen = list(self._during(one, asked_s - age_s - PERIOD_S - SLACK_S))
        for task in row.tasks:
            role = "vmm" if task.role in ("vcpu", "io") else task.role
            if not any(sight.places.get(role) == task.where for sight in seen):
                yield f"{task.role} is shown in {task.where} and is in {seen[-1].places.get(role, 'no cgroup')}"
        missing = seen[-1].places.keys() - {task.role for task in row.tasks}
        if missing and all(role in sight.places for role in missing for sight in seen):
            yield f"{', '.join(sorted(missing))} not shown"
        moved = one.moved_s is not None or one.back_s is not None
        figures = (
            ("memory", row.memory, [sight.memory for sight in seen], moved or one.killed_s is not None),
            ("guest memory", row.guest_memory, [sight.guest for sight in seen], one.killed_s is not None),
            ("OOM kills", row.oom_kills, [sight.kills for sight in seen], False),
        )
        for name, shown, were, is_left_out in figures:
            if shown is not None and shown not in were and not is_left_out:
                yield f"{name} is shown as {shown} and was {min(were)} to {max(were)}"
        yield from self._verdicts(one, row, asked_s)

    def _verdicts(self, one: _One, row: SandboxRow, asked_s: float) -> Iterator[str]:
        """What is said of it, and should not be, or is not and should."""
        fits = one.limit is None or one.vm.memory <= one.limit
        if one.killed_s is None and (row.fit.fit == KILLED) is fits and one.moved_s is None and one.back_s is None:
            yield f"a VM of {one.vm.memory} bytes in a pod of {one.limit}: {row.fit.fit}"
        if not one.vm.outside and row.fit.killed_at is not None and one.vm.vmm.guest > row.fit.killed_at:
            yield f"its guest has {one.vm.vmm.guest} bytes and lives; said is a kill at {row.fit.killed_at}"
        drifts = [drift for drift in row.drifts if drift.is_fault]
        if one.moved_s is not None and asked_s - max(one.moved_s, self._judged_s) > TOLD_S and not drifts:
            yield "its VMM was moved, which is not said"
        came_s = max(self._judged_s, one.since_s, one.back_s or 0.0)
        if one.moved_s is None and asked_s - came_s > GONE_S and drifts:
            yield f"everything is where it should be; said is: {drifts[0].sentence}"
        if one.killed_s is not None and asked_s - max(one.killed_s, self._judged_s) > TOLD_S and not row.oom_kills:
            yield "its VMM was killed, which is not counted"

    # ---- what is so

    def _note(self, one: _One) -> None:
        processes = self.host.processes
        places = {role: processes.cgroup(each) for role, each in one.vm.processes().items()}
        outside = self._number(one.vm.outside, "memory.current") if one.vm.outside else 0
        memory = self._number(one.vm.pod, "memory.current") + outside
        sight = _Sight(self._now(), places, memory, one.vm.vmm.guest, self._kills(one.vm.pod))
        if one.sights and (last := one.sights[-1]) == _Sight(last.at_s, places, memory, sight.guest, sight.kills):
            return
        one.sights.append(sight)
        while len(one.sights) > 1 and one.sights[1].at_s < sight.at_s - KNOWN_S:
            one.sights.popleft()

    def _during(self, one: _One, since_s: float) -> Iterator[_Sight]:
        """All that was so at some moment since then."""
        sights = list(one.sights)
        for place, sight in enumerate(sights):
            if place + 1 == len(sights) or sights[place + 1].at_s >= since_s:
                yield sight

    def _number(self, cgroup: str, file: str) -> int:
        with contextlib.suppress(OSError):
            return int(self._kernel.read(f"{CGROUP_MOUNT}{cgroup}/{file}", 64))
        return 0

    def _kills(self, cgroup: str) -> int:
        with contextlib.suppress(OSError):
            for line in self._kernel.read(f"{CGROUP_MOUNT}{cgroup}/memory.events", 4096).decode().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return 0
