"""What a daemon decides and hears of the calls that a relay holds, without sockets, and the words of CRI that are said.

The engine behind is the real one, on the simulation's kernel with `sgx_epc`; the parts are put together as
`programs.node.relay_door` does.
"""

import asyncio
from functools import partial
from itertools import count
from typing import Final

from nodeward.contracts import cri_pb2 as cri
from nodeward.core.events import Listed, RuntimeConnected, TopologyRead
from nodeward.core.workload import Keys
from nodeward.features.all import ENGINE
from nodeward.features.cpus.ask import label_keys
from nodeward.features.cpus.effects.cri_starts import UPDATE, CriStarts
from nodeward.features.cpus.effects.grants import CpuGrants, boot_of
from nodeward.features.cpus.effects.start_barrier import StartBarrier
from nodeward.features.cpus.settings import Driver
from nodeward.features.cpus.values import CpusRecalled
from nodeward.features.limits.answer import leaves_rest
from nodeward.features.pods.effects.cri_runtime import Cgroups, CriRuntime
from nodeward.features.root import SettingsChanged, State
from nodeward.features.settings import RelaySection, Settings
from nodeward.host.facts import FactsByKind
from nodeward.host.runner import Core
from nodeward.host.slots import ByEdge, Slots
from nodeward.neighbours.cgroups import cpusets
from nodeward.neighbours.cgroups.hierarchy import Tree, read_capacity
from nodeward.neighbours.cri.calls import Call, Pass, Refuse, Replace, Verdict
from nodeward.neighbours.cri.decider import ContainersDecider
from nodeward.neighbours.cri.door_frames import Hello, Passed
from nodeward.neighbours.sysfs import topology
from nodeward_sim.doubles.cpus import Plan
from nodeward_sim.doubles.kernel import SimKernel
from tests.lanes import InlineLane
from tests.unit.features.build import ManualClock

LIMIT: Final = {"epc-limit.nri.io/container.app": "8192", "secret.example.com/token": "hidden"}
HELLO: Final = Hello(1, 7, "/run/cri.sock", "/run/runtime.sock")
ROOT: Final = "/sys/fs/cgroup"


class Relayed:
    """The calls of one client, as the daemon is asked about them and told of them, and the runtime's answers to its own
    calls. What it writes waits for `lane.drain`."""

    def __init__(
        self,
        settings: Settings | None = None,
        capacity: int = 1 << 20,
        machine: Plan | None = None,
        records: bool = False,
        listed: bool = True,
    ) -> None:
        """`records`: a verdict waits until the CPUs that it gives are on disk, which needs a running loop. `listed`:
        the runtime has told that it has nothing."""
        self.clock, self.lane = ManualClock(), InlineLane()
        self.kernel = SimKernel({"sgx_epc": capacity} if capacity else {"sev_es": 5}, machine=machine)
        tree = Tree(self.kernel, ROOT)
        tree.look()
        kinds = {kind: ByEdge(kind) for kind in ("misc.max", "subtree", "offer", "nfd")}
        slots = Slots(self.lane, {**kinds, **cpusets.performers(self.kernel, ROOT)}, self.clock)
        self.facts = FactsByKind()
        wanted = settings or Settings(relay=RelaySection(limits=True))
        core = self.core = Core(State(settings=wanted.engine), ENGINE, self.clock, slots, self.facts, _no_commit)
        if records:
            record = CpuGrants(core, self.kernel, "/run/nodeward", self.lane, lambda do: do())
            record.begin(boot_of(self.kernel), CpusRecalled())
        core.tell(read_capacity(self.kernel, tree))
        core.tell(TopologyRead(topology.read(self.kernel)))
        self.updates, self.statuses = list[tuple[str, str]](), dict[str, bytes | Exception]()
        self.lists = b"", b""
        self.answers = asyncio.Event()
        """The runtime answers updates."""
        self.answers.set()
        self.remembers = dict[str, str]()
        """The CPUs of each container by the runtime's record."""

        async def joins() -> bool:
            return False

        cgroups = Cgroups(self.kernel, self.lane, ROOT, "/")

        def labels() -> Keys:
            return label_keys(core.state)

        pins = wanted.cpus.driver is Driver.RELAY
        self.runtime = CriRuntime(core, core.tell, self._call, joins, labels, self.clock, cgroups, pins)
        self.barrier = StartBarrier(core, slots, leaves_rest)
        self.starting = CriStarts(core, self.runtime, self.barrier, partial(self._call, UPDATE))
        self.decider = ContainersDecider(
            core.ask, self.runtime.told, self.runtime, self.starting, labels, self.clock.now_ns
        )
        self._numbers = count(1)
        if listed:
            self.runtime.begins(HELLO)
            core.tell(RuntimeConnected("CRI", ""))
            core.tell(Listed((), (), core.seq()))
            self.runtime._listed.set()

    async def listing(self) -> None:
        """The runtime tells what it has in `lists`."""
        listing = asyncio.ensure_future(self.runtime._list())
        while not listing.done():
            await self.written()
        listing.result()

    async def written(self) -> None:
        """What is to be written, or read, is."""
        for _ in range(6):
            await asyncio.sleep(0)
            self.lane.drain()

    async def _call(self, path: str, request: bytes, within_s: float) -> bytes:
        name = path.rpartition("/")[2]
        if name == "UpdateContainerResources":
            await self.answers.wait()
            asked = cri.UpdateContainerResourcesRequest.FromString(request)
            self.updates.append((asked.container_id[:2], asked.linux.cpuset_cpus))
            self.remembers[asked.container_id] = asked.linux.cpuset_cpus
            return b""
        if name == "ContainerStatus":
            container_id = cri.ContainerStatusRequest.FromString(request).container_id
            status = self.statuses.get(container_id, b"")
            if isinstance(status, Exception):
                raise status
            return status
        return self.lists[name == "ListContainers"]

    def settle(self, settings: Settings) -> None:
        self.core.tell(SettingsChanged(settings.engine))

    def begin(self, name: str, version: str = "v1") -> Call:
        path = f"/runtime.{version}.RuntimeService/{name}"
        return Call(next(self._numbers), 1, path, 0, self.decider.holds(path))

    def decide(self, call: Call, request: bytes) -> Verdict:
        found = self.decider.decide(call, request, 1_000_000_000)
        assert isinstance(found, Pass | Replace | Refuse)
        return found

    def ended(
        self,
        call: Call,
        request: bytes,
        answer: bytes = b"",
        *,
        ok: bool = True,
        decided: bool = True,
        cut: bool = False,
    ) -> None:
        self.decider.passed(call.number, Passed(call.number, call.path, request, answer, ok, decided, cut))

    def passes(self, name: str, request: bytes, answer: bytes = b"", *, ok: bool = True, decided: bool = True) -> None:
        self.ended(self.begin(name), request, answer, ok=ok, decided=decided)

    def create(self, request: bytes, container_id: str = "c1", version: str = "v1") -> Verdict:
        call = self.begin("CreateContainer", version)
        verdict = self.decide(call, request)
        self.ended(call, request, created_as(container_id), ok=not isinstance(verdict, Refuse))
        return verdict

    def update(self, container_id: str = "c1") -> Verdict:
        return self.decide(self.begin("UpdateContainerResources"), update(container_id))

    @property
    def containers(self) -> list[str]:
        pods = self.core.state.pods
        return [*pods.containers, *pods.creating]

    @property
    def sandboxes(self) -> list[str]:
        return [*self.core.state.pods.sandboxes]


async def _no_commit(record: str) -> str:
    return "nothing is kept"


def created_as(container_id: str) -> bytes:
    return cri.CreateContainerResponse(container_id=container_id).SerializeToString()


def sandbox_config(annotations: dict[str, str] | None = None) -> cri.PodSandboxConfig:
    metadata = cri.PodSandboxMetadata(name="pod", uid="uid-1", namespace="default")
    return cri.PodSandboxConfig(metadata=metadata, annotations=LIMIT if annotations is None else annotations)


def create(annotations: dict[str, str] | None = None, name: str = "app") -> bytes:
    made = cri.CreateContainerRequest(pod_sandbox_id="s1", sandbox_config=sandbox_config(annotations))
    made.config.metadata.name = name
    made.config.envs.add(key="PASSWORD", value=b"hidden")
    return made.SerializeToString()


def update(container_id: str) -> bytes:
    made = cri.UpdateContainerResourcesRequest(container_id=container_id)
    made.linux.cpu_shares = 512
    return made.SerializeToString()


def created(verdict: Verdict) -> str:
    assert isinstance(verdict, Replace)
    return cri.CreateContainerRequest.FromString(verdict.message).config.linux.resources.unified["misc.max"]


def updated(verdict: Verdict) -> str:
    assert isinstance(verdict, Replace)
    return cri.UpdateContainerResourcesRequest.FromString(verdict.message).linux.unified["misc.max"]


def listed(**running: bool) -> tuple[bytes, bytes]:
    """A list of a ready sandbox and of the one that it has replaced, and one of its containers, running or exited."""
    metadata = cri.PodSandboxMetadata(name="pod", uid="uid-1", namespace="default")
    sandboxes = cri.ListPodSandboxResponse(
        items=[
            cri.PodSandbox(id="s1", metadata=metadata, annotations=LIMIT, state=cri.SANDBOX_READY),
            cri.PodSandbox(id="s0", metadata=metadata, state=cri.SANDBOX_NOTREADY),
        ]
    )
    containers = cri.ListContainersResponse()
    for container_id, state in running.items():
        one = containers.containers.add(id=container_id, pod_sandbox_id="s1")
        one.metadata.name = "app"
        one.state = cri.CONTAINER_RUNNING if state else cri.CONTAINER_EXITED
    return sandboxes.SerializeToString(), containers.SerializeToString()
