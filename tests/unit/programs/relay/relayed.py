"""A relay's decider without sockets, and the words of CRI that are said to it.

The engine behind is the real one, by the relay's own wiring, on the simulation's kernel with `sgx_epc`.
"""

from itertools import count
from typing import Final

from nodeward.contracts import cri_pb2 as cri
from nodeward.features.settings import Settings
from nodeward.neighbours.cri.calls import Call, Ended, Interest, Message, Pass, Refuse, Replace, Verdict
from nodeward.neighbours.cri.decider import LimitsDecider, Soon
from nodeward.programs.relay.limits import RelayLimits
from nodeward_sim.doubles.cpus import Plan
from nodeward_sim.doubles.kernel import SimKernel
from tests.unit.features.build import ManualClock

LIMIT: Final = {"epc-limit.nri.io/container.app": "8192", "secret.example.com/token": "hidden"}


class Relayed:
    """A relay's decider as calls of one client see it, and the runtime's answers to them."""

    def __init__(
        self,
        settings: Settings | None = None,
        capacity: int = 1 << 20,
        soon: Soon = lambda do, _: do(),
        machine: Plan | None = None,
        records: bool = False,
    ) -> None:
        """`records`: a verdict waits until the CPUs that it gives are on disk, which needs a running loop."""
        self.clock = ManualClock()
        self.kernel = SimKernel({"sgx_epc": capacity} if capacity else {"sev_es": 5}, machine=machine)
        self.limits = RelayLimits(settings or Settings(), self.kernel, self.clock, soon)
        if not records:
            self.limits.core.settles = lambda: None
            self.limits.core.followers.clear()
        self.decider: LimitsDecider = self.limits.decider
        self._numbers = count(1)

    def begin(self, name: str, version: str = "v1") -> Call:
        path = f"/runtime.{version}.RuntimeService/{name}"
        call = Call(next(self._numbers), 1, path, 0, self.decider.holds(path))
        if self.decider.interest(path) is not Interest.NONE:
            self.decider.began(call)
        return call

    def decide(self, call: Call, request: bytes) -> Verdict:
        found = self.decider.decide(call, request, 1_000_000_000)
        assert isinstance(found, Pass | Replace | Refuse)
        return found

    def passes(self, name: str, request: bytes, *answers: bytes, status: int = 0) -> None:
        call = self.begin(name)
        self.decider.request(call, Message((request,), len(request), False, 0))
        for answer in answers:
            self.decider.response(call, Message((answer,), len(answer), False, 0))
        self.decider.ended(call, Ended(status, "", 0))

    def create(self, request: bytes, container_id: str = "c1", version: str = "v1") -> Verdict:
        call = self.begin("CreateContainer", version)
        verdict = self.decide(call, request)
        refused = isinstance(verdict, Refuse)
        if not refused:
            answer = cri.CreateContainerResponse(container_id=container_id).SerializeToString()
            self.decider.response(call, Message((answer,), len(answer), False, 0))
        self.decider.ended(call, Ended(8 if refused else 0, "", 0, refused))
        return verdict

    def update(self, container_id: str = "c1") -> Verdict:
        return self.decide(self.begin("UpdateContainerResources"), update(container_id))

    @property
    def containers(self) -> list[str]:
        pods = self.limits.core.state.pods
        return [*pods.containers, *pods.creating]

    @property
    def sandboxes(self) -> list[str]:
        return list(self.limits.core.state.pods.sandboxes)


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
