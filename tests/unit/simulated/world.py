"""The node around the daemon in a simulated history: what is true, whoever has heard of it.

A runtime that creates, starts, updates and ends containers in the kernel double and tells the daemon while it is
connected, as NRI does; an API server whose watch is late; a kubelet that makes and removes pods' cgroups. All choices
come from one seed, each pod's from a source of its own.
"""

import asyncio
import errno
import hashlib
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from random import Random

from nodeward.core import events as ev
from nodeward.core.decision import Adjustment, Final
from nodeward.core.refusal import Refusal
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
from nodeward.features.settings import Settings
from nodeward.neighbours.formats import misc_files
from nodeward_sim.doubles.kernel import SimKernel
from tests.unit.simulated.life import Life
from tests.unit.simulated.plans import EPC, PAGE, Plan
from tests.unit.simulated.virtual import VirtualClock

ROOT = "/sys/fs/cgroup"
PATIENCE_S = 2.0


@dataclass(slots=True, eq=False)
class LiveContainer:
    """A container that exists. `heard`: an event or list that names it reached the daemon that lives now."""

    container: Container
    sandbox: Sandbox
    plan: Plan
    label: str
    created_with: str = ""
    heard: bool = False
    touched: bool = False
    """Somebody else wrote its limit."""
    running: bool = False


@dataclass(slots=True, eq=False)
class LivePod:
    plan: Plan
    sandbox: Sandbox
    containers: dict[str, LiveContainer] = field(default_factory=dict)
    ends: asyncio.Event = field(default_factory=asyncio.Event)
    heard: bool = False
    sandboxes: int = 1
    touched: bool = False


class Trace:
    """Everything that happened, as a hash, and the last words of it for people."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.story: list[str] = []

    def add(self, data: bytes) -> None:
        """Bytes that must be the same in each run of this seed."""
        self._hash.update(data)

    def tell(self, at_s: float, line: str) -> None:
        self.story.append(f"{at_s:9.3f} {line}")
        self.add(line.encode())

    def digest(self) -> str:
        return self._hash.hexdigest()


class World:
    def __init__(self, seed: int, kernel: SimKernel, clock: VirtualClock, settings: Settings) -> None:
        self.seed, self.kernel, self.clock, self.settings = seed, kernel, clock, settings
        self.trace, self.decisions = Trace(), hashlib.sha256()
        self.capacity = False
        self.violations: list[str] = []
        self.pods: dict[PodUid, LivePod] = {}
        self.api: dict[PodUid, PodSpec] = {}
        self.api_log: list[ev.Event] = []
        self.api_up = True
        self.api_moved = asyncio.Event()
        self.life: Life | None = None
        self.serial = Random(f"{seed}/serial").random() < 0.8
        self.enables_misc = Random(f"{seed}/oci").random() < 0.7
        self.reached: dict[str, int] = {}
        self._turn = asyncio.Lock()
        self._made = 0

    def say(self, line: str) -> None:
        self.trace.tell(asyncio.get_running_loop().time(), line)

    def violate(self, what: str) -> None:
        self.say(f"VIOLATION {what}")
        self.violations.append(what)

    # ---- the runtime, towards the daemon

    def _in_turn(self) -> AbstractAsyncContextManager[object]:
        return self._turn if self.serial else nullcontext()

    async def tell(self, event: ev.Event) -> None:
        async with self._in_turn():
            if self.life is not None and self.life.connected:
                self.life.core.tell(event)
                self._heard(event)

    def _heard(self, event: ev.Event) -> None:
        if isinstance(event, ev.SandboxStarted):
            self._mark(event.sandbox, None)
        elif isinstance(event, (ev.Created, ev.Started, ev.Updating, ev.Updated)):
            self._mark(event.sandbox, event.container.id)

    def _mark(self, sandbox: Sandbox, container_id: ContainerId | None) -> None:
        pod = self.pods.get(sandbox.pod_uid)
        if pod is None:
            return
        pod.heard = pod.heard or pod.sandbox.id == sandbox.id
        if container_id in pod.containers:
            pod.containers[container_id].heard = True

    async def ask(self, question: ev.Question, patience_s: float = PATIENCE_S) -> Adjustment | Refusal | None:
        """The daemon's answer; None where there is none in time (the runtime goes on without)."""
        async with self._in_turn():
            return await self._asked(question, patience_s)

    async def _asked(self, question: ev.Question, patience_s: float) -> Adjustment | Refusal | None:
        life = self.life
        if life is None or not life.connected:
            return None
        answer = life.core.ask(question, 1_000_000_000)
        self._heard(question)
        if isinstance(answer, Final):
            return answer.value
        began, task = asyncio.get_running_loop().time(), life.spawn(answer)
        await asyncio.wait({task}, timeout=patience_s)
        if not task.done():
            if patience_s >= PATIENCE_S:
                self.violate(f"no answer to {type(question).__name__} within {patience_s} s")
            task.cancel()
            return None
        if task.cancelled() or task.exception() is not None:
            return None
        if asyncio.get_running_loop().time() - began > 1.01:
            self.violate("an answer after its deadline")
        final = task.result()
        assert isinstance(final, Final)
        return final.value

    async def synchronize(self, life: Life, random: Random) -> None:
        """One connection's start: Configure, then the list of what there is, which may be late."""
        as_of = life.core.seq()
        life.tell(ev.RuntimeConnected("virtual", "2.4", "0.12"))
        await asyncio.sleep(random.uniform(0, 0.1))
        async with self._in_turn():
            await self._listed(life, as_of, random)

    async def _listed(self, life: Life, as_of: int, random: Random) -> None:
        pods = list(self.pods.values())
        inside = [one for pod in pods for one in pod.containers.values()]
        listed = tuple(one.container for one in inside)
        sandboxes = tuple(pod.sandbox for pod in pods)
        await asyncio.sleep(random.uniform(0, 0.3))
        if not life.alive:
            return
        life.tell(ev.Listed(sandboxes, listed, as_of))
        life.connected = True
        for pod in pods:
            pod.heard = pod.heard or pod.sandbox in sandboxes
        for one in inside:
            one.heard = True

    def nobody_has_heard(self) -> None:
        """The daemon that lives from now on knows nothing."""
        for pod in self.pods.values():
            pod.heard = False
            for live in pod.containers.values():
                live.heard = False
                # A life before this one may have written what the runtime's record does not say.
                live.touched = live.touched or EPC not in live.container.recorded

    # ---- pods and containers in the kernel

    def start_pod(self, plan: Plan) -> LivePod:
        self.kernel.make_cgroup(ROOT + plan.cgroup)
        sandbox = self._sandbox(plan, 1)
        pod = self.pods[plan.uid] = LivePod(plan, sandbox)
        self.say(f"pod {plan.uid} starts at {plan.cgroup}")
        return pod

    def replace_sandbox(self, pod: LivePod) -> Sandbox:
        """The sandbox has died and the pod gets another one in the same cgroup; returns the old one."""
        old, pod.sandboxes = pod.sandbox, pod.sandboxes + 1
        pod.sandbox, pod.heard = self._sandbox(pod.plan, pod.sandboxes), False
        self.say(f"pod {pod.plan.uid} gets another sandbox")
        return old

    def _sandbox(self, plan: Plan, number: int) -> Sandbox:
        sandbox_id = SandboxId(f"s{number}-{plan.uid}")
        return Sandbox(sandbox_id, plan.uid, "shop", plan.spec.name, plan.kind.annotations, plan.cgroup)

    async def start_container(self, pod: LivePod, spec: ContainerSpec, random: Random) -> LiveContainer | None:
        """Creates and starts a container as a runtime does; None where it was refused or could not be made."""
        self._made += 1
        container_id = ContainerId(f"{self._made:064x}")
        label = f"c{self._made}-{spec.name}"
        path = pod.plan.container_cgroup(container_id)
        made = Container(container_id, pod.sandbox.id, spec.name, Phase.CREATING, path)
        sandbox = pod.sandbox
        answer = await self.ask(ev.Creating(sandbox, made), PATIENCE_S if random.random() < 0.9 else 0.05)
        if isinstance(answer, Refusal):
            self.say(f"{label} is refused")
            return None
        text = answer.unified.get("misc.max", "") if answer is not None else ""
        if pod.sandbox is not sandbox or random.random() < 0.05 or not self._make(path, text):
            self.say(f"{label} could not be made")
            if random.random() < 0.5:
                await self.tell(ev.CreateFailed(container_id))
            return None
        made = replace(made, phase=Phase.CREATED, recorded=misc_files.parse_limits(text.encode()))
        live = pod.containers[container_id] = LiveContainer(made, sandbox, pod.plan, label, text)
        self.say(f"{label} is made with {text!r}")
        if random.random() < 0.9:
            await self.tell(ev.Created(sandbox, made))
        await asyncio.sleep(random.uniform(0, 0.1))
        live.container, live.running = replace(made, phase=Phase.RUNNING), True
        await self.tell(ev.Started(sandbox, live.container))
        return live

    def _make(self, path: str, text: str) -> bool:
        try:
            if self.enables_misc:
                self._enable_above(path)
            self.kernel.mkdir(ROOT + path)
        except OSError:
            return False
        try:
            for line in text.splitlines():
                self.kernel.write(f"{ROOT}{path}/misc.max", line.encode())
        except OSError:
            self.kernel.rmdir(ROOT + path)
            return False
        return True

    def _enable_above(self, path: str) -> None:
        here = ROOT
        for name in path.split("/")[1:]:
            if b"misc" in self.kernel.read(f"{here}/cgroup.controllers", PAGE).split():
                self.kernel.write(f"{here}/cgroup.subtree_control", b"+misc")
            here = f"{here}/{name}"

    async def update_container(self, live: LiveContainer) -> None:
        """Somebody asks the runtime for other resources: it writes all of them anew, our answer among them."""
        answer = await self.ask(ev.Updating(live.sandbox, live.container))
        text = live.created_with
        if isinstance(answer, Adjustment):
            text = answer.unified.get("misc.max", text)
        if live.container.id not in self.pods[live.plan.uid].containers:
            return
        self.say(f"{live.label} is updated with {text!r}")
        self.reached.pop(live.container.cgroups_path, None)
        live.created_with = text
        live.container = replace(live.container, recorded=misc_files.parse_limits(text.encode()))
        try:
            for line in text.splitlines():
                self.kernel.write(f"{ROOT}{live.container.cgroups_path}/misc.max", line.encode())
        except OSError:
            return
        await self.tell(ev.Updated(live.sandbox, live.container))

    async def end_container(self, live: LiveContainer, random: Random) -> None:
        pod = self.pods[live.plan.uid]
        if pod.containers.get(live.container.id) is not live:
            return
        first = random.random() < 0.7
        if first:
            self.drop_cgroup(live)
        stopped = replace(live.container, phase=Phase.STOPPED)
        if random.random() < 0.95:
            await self.tell(ev.Stopped(live.sandbox, stopped))
        if not first:
            self.drop_cgroup(live)
        await asyncio.sleep(random.uniform(0, 0.2))
        await self.tell(ev.Removed(live.sandbox.id, live.container.id))

    def drop_cgroup(self, live: LiveContainer) -> None:
        """The container's processes are gone and so is its cgroup."""
        self.pods[live.plan.uid].containers.pop(live.container.id, None)
        path = live.container.cgroups_path
        for one in self.kernel.charges():
            if one.path == ROOT + path:
                self.kernel.uncharge(one.path, one.resource, one.amount)
        self.reached.pop(path, None)
        try:
            self.kernel.rmdir(ROOT + path)
        except FileNotFoundError:
            return
        self.say(f"{live.label} is gone")

    async def end_pod(self, pod: LivePod, random: Random) -> None:
        for live in list(pod.containers.values()):
            await self.end_container(live, random)
        early = random.random() < 0.5
        if early:
            self._drop_pod(pod)
        if random.random() < 0.9:
            await self.tell(ev.SandboxStopped(pod.sandbox))
        await asyncio.sleep(random.uniform(0, 0.3))
        if not early:
            self._drop_pod(pod)
        await self.tell(ev.SandboxRemoved(pod.sandbox))
        self.say(f"pod {pod.plan.uid} is gone")

    def _drop_pod(self, pod: LivePod) -> None:
        self.pods.pop(pod.plan.uid, None)
        self.reached.pop(pod.plan.cgroup, None)
        self.kernel.rmdir(ROOT + pod.plan.cgroup)

    def running(self) -> list[LiveContainer]:
        return [live for pod in self.pods.values() for live in pod.containers.values()]

    # ---- charges

    def counted(self, path: str) -> int:
        """What the kernel counts here: not what was charged while misc was off."""
        try:
            return misc_files.parse(self.kernel.read(f"{ROOT}{path}/misc.current", PAGE)).get(EPC, 0)
        except OSError:
            return 0

    def charge(self, live: LiveContainer, amount: int) -> None:
        """Enclave pages are taken; judged against what was reached here and at the pod."""
        path, parent = live.container.cgroups_path, live.plan.cgroup
        try:
            self.kernel.charge(ROOT + path, EPC, amount)
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.EINVAL, errno.ENOENT):
                raise
            self.say(f"{live.label} is refused {amount}")
            return
        self.say(f"{live.label} takes {amount}")
        for place in (path, parent):
            promised = self.reached.get(place)
            if promised is not None and self.counted(place) > promised:
                self.violate(f"{place} holds {self.counted(place)} though {promised} was promised and reached")

    # ---- the API server

    def put(self, spec: PodSpec) -> None:
        self.api[spec.uid] = spec
        self.api_log.append(ev.PodSeen(spec))
        self._moved()

    def delete(self, uid: PodUid) -> None:
        if self.api.pop(uid, None) is not None:
            self.api_log.append(ev.PodGone(uid))
            self._moved()

    def _moved(self) -> None:
        self.api_moved.set()

    def set_api(self, up: bool) -> None:
        self.api_up = up
        self._moved()

    async def reflect(self, life: Life, random: Random) -> None:
        """The watch: a list, then changes in order, each a little late."""
        while True:
            while not self.api_up:
                await self._move()
            as_of = life.core.seq()
            await asyncio.sleep(random.uniform(0, 0.1))
            pods, read = tuple(self.api.values()), len(self.api_log)
            await asyncio.sleep(random.uniform(0, 0.2))
            if self.api_up:
                life.tell(ev.ApiBack())
                life.tell(ev.PodsListed(pods, as_of))
            while self.api_up:
                while self.api_up and read < len(self.api_log):
                    await asyncio.sleep(random.uniform(0, 0.05))
                    if self.api_up:
                        life.tell(self.api_log[read])
                        read += 1
                if self.api_up:
                    await self._move()
            life.tell(ev.ApiLost("nobody listens"))

    async def _move(self) -> None:
        self.api_moved.clear()
        await self.api_moved.wait()

    def known(self, pod: LivePod) -> bool:
        return pod.plan.spec.uid in self.api

    def declared_later(self, pod: LivePod) -> ContainerSpec:
        extra = ContainerSpec("debug", Role.EPHEMERAL)
        spec = self.api[pod.plan.spec.uid]
        if all(one.name != extra.name for one in spec.containers):
            self.put(replace(spec, containers=(*spec.containers, extra)))
        return extra


class ApiFacts(NoFacts):
    """Reads one pod from the API server, a little late; what it found was true when the server was asked."""

    def __init__(self, world: World, random: Random) -> None:
        self._world, self._random = world, random

    async def fetch(self, fact: str, key: str) -> str:
        life, uid = self._world.life, key.split("/")[2]
        await asyncio.sleep(self._random.uniform(0, 0.15))
        if not self._world.api_up:
            return "nobody listens"
        found = [spec for spec in self._world.api.values() if uid in (spec.uid, spec.config_hash)]
        await asyncio.sleep(self._random.uniform(0, 0.15))
        if not found or life is None or not life.alive:
            return "no such pod"
        life.core.tell(ev.PodSeen(found[0]))
        return ""
