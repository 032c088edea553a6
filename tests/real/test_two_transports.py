"""One stream of pods, told by a real containerd over NRI and by its client over CRI, leads to the same CPUs.

What containerd tells a plugin of each create, and what its client had asked, are captured once. 1,000 histories are
made of them, each told to an engine by NRI's mapping and to a relay's core by CRI's.
"""

import asyncio
import random
from collections.abc import Awaitable
from dataclasses import dataclass

from nodeward.contracts import cri_pb2, nri_pb2
from nodeward.core import events as ev
from nodeward.core.cpuset import text
from nodeward.core.decision import Adjustment, Decision, Final
from nodeward.core.workload import Phase
from nodeward.features.cpus.place import wanted
from nodeward.features.cpus.pool_settings import (
    BalloonsSettings,
    BalloonType,
    DynamicPoolsSettings,
    DynamicPoolType,
    Expression,
    Within,
)
from nodeward.features.cpus.settings import Amount, AmountKind, CpusSettings, Driver, PolicySettings
from nodeward.features.root import State
from nodeward.features.settings import EngineSettings, Settings
from nodeward.neighbours.cri.calls import Refuse, Replace
from nodeward.neighbours.nri import mapping as nri
from nodeward.neighbours.nri.ttrpc import Request
from nodeward.neighbours.nri.ttrpc_unix import Answer
from nodeward.neighbours.sysfs import topology
from nodeward_sim.doubles.cpus import Plan
from nodeward_sim.doubles.kernel import SimKernel
from tests.peers.containerd import IMAGE, Containerd
from tests.peers.cri import container_config, pod_config, remove_pod
from tests.peers.nriside import Record
from tests.peers.nriside import text as text_of
from tests.peers.plugin import RawPlugin, raw_plugin
from tests.rigs.containers import a_containerd
from tests.unit.features.build import Told
from tests.unit.programs.relay.relayed import Relayed

HISTORIES = 1000
STEPS = 14
PODS = 6
KINDS = (("", 1), ("", 2), ("", 5), ("burstable", 0), ("besteffort", 0))
"""QoS class by the pod's cgroup, and whole CPUs of a Guaranteed one."""
PLAN = Plan(sockets=1)
POLICIES = ("static", "static-plus", "balloons", "dynamic-pools", "topology-aware")
GUARANTEED = Expression("qosclass", "Equals", ("Guaranteed",))
BALLOONS = BalloonsSettings(
    balloon_types=(
        BalloonType("own", match_expressions=(GUARANTEED,), max_balloons=2, prefer_new_balloons=True),
        BalloonType("rest", ("*",), share_idle_cpus_in_same=Within.NUMA),
    )
)
DYNAMIC = DynamicPoolsSettings(dynamic_pool_types=(DynamicPoolType("all", ("*",)),))


@dataclass(frozen=True, slots=True)
class Captured:
    told: nri_pb2.CreateContainerRequest
    asked: cri_pb2.CreateContainerRequest


def captured() -> list[Captured]:
    told: list[bytes] = []

    def note(request: Request) -> Answer | Awaitable[Answer]:
        told.append(request.payload)
        return b""

    async def story(containerd: Containerd) -> list[bytes]:
        plugin = RawPlugin({"CreateContainer": note}, events=1 << (nri_pb2.CREATE_CONTAINER - 1))
        async with raw_plugin(containerd.nri_socket, plugin):
            return [await asyncio.to_thread(_play, containerd, number) for number in range(len(KINDS))]

    with a_containerd() as runtime:
        asked = asyncio.run(story(runtime))
    parse = nri_pb2.CreateContainerRequest.FromString, cri_pb2.CreateContainerRequest.FromString
    return [Captured(parse[0](one), parse[1](other)) for one, other in zip(told, asked, strict=True)]


def _play(containerd: Containerd, number: int) -> bytes:
    """Creates a container as kubelet would, and removes its pod; the bytes of the request."""
    qos, cpus = KINDS[number]
    above = "/".join(part for part in (containerd.cgroup_parent, "kubepods", qos) if part)
    with containerd.cri() as cri:
        pod = pod_config(f"kind{number}", above, containerd.folder / "logs")
        container = container_config("app", IMAGE)
        resources: Record = {"cpu_shares": cpus * 1024 or (512 if qos == "burstable" else 2)}
        resources |= {"cpu_quota": cpus * 100_000, "cpu_period": 100_000} if cpus else {}
        container["linux"] = {"resources": resources}
        home = text_of(cri.call("RunPodSandbox", {"config": pod}), "pod_sandbox_id")
        request: Record = {"pod_sandbox_id": home, "config": container, "sandbox_config": pod}
        cri.call("CreateContainer", request)
        remove_pod(cri, home)
        return cri.encoded("CreateContainer", request)


class ByNri:
    """An engine that hears what a plugin hears."""

    def __init__(self, policy: PolicySettings) -> None:
        self.engine = Told(State(settings=EngineSettings(policy=policy)))
        self.engine(ev.TopologyRead(topology.read(SimKernel({}, machine=PLAN))))
        self._of: dict[int, tuple[nri_pb2.PodSandbox, nri_pb2.Container]] = {}

    def create(self, pod: int, kind: Captured) -> str:
        told = nri_pb2.CreateContainerRequest()
        told.CopyFrom(kind.told)
        told.pod.id, told.pod.uid, told.pod.name = f"s{pod}", f"u{pod}", f"pod{pod}"
        told.container.id, told.container.pod_sandbox_id = f"c{pod}", f"s{pod}"
        self._of[pod] = told.pod, told.container
        home, made = nri.sandbox(told.pod), nri.container(told.container, Phase.CREATING)
        had = told.container.linux.resources.cpu.shares.value
        answered = self._answer(self.engine(ev.Creating(home, made, ask_id=self.engine.state.seq + 1)), had)
        if answered != "refused":
            self.engine(ev.Created(home, made.in_phase(Phase.CREATED)))
        return answered

    def resize(self, pod: int, cpus: int) -> str:
        home, raw = self._of[pod]
        asked = nri_pb2.LinuxResources()
        asked.cpu.shares.value, asked.cpu.quota.value, asked.cpu.period.value = cpus * 1024, cpus * 100_000, 100_000
        changed = nri.container(raw, asked=asked)
        question = ev.Updating(nri.sandbox(home), changed, ask_id=self.engine.state.seq + 1)
        return self._answer(self.engine(question), cpus * 1024)

    def end(self, pod: int) -> None:
        home, raw = self._of.pop(pod)
        self.engine(ev.Stopped(nri.sandbox(home), nri.container(raw, Phase.STOPPED)))
        self.engine(ev.SandboxStopped(nri.sandbox(home)))

    @staticmethod
    def _answer(decision: Decision, had: int) -> str:
        """CPUs and shares that the container has then."""
        assert isinstance(decision.answer, Final)
        value = decision.answer.value
        if not isinstance(value, Adjustment):
            return "refused"
        sent = nri_pb2.CreateContainerResponse.FromString(nri.create_answer(value)).adjust.linux.resources.cpu
        return f"{sent.cpus} {sent.shares.value or had}"

    @property
    def sets(self) -> dict[str, str]:
        return _sets(self.engine.state)


class ByCri:
    """The daemon behind a relay, which is asked what a client asks."""

    def __init__(self, policy: PolicySettings) -> None:
        self.relay = Relayed(Settings(cpus=CpusSettings(driver=Driver.RELAY), policy=policy), machine=PLAN)

    def create(self, pod: int, kind: Captured) -> str:
        asked = cri_pb2.CreateContainerRequest()
        asked.CopyFrom(kind.asked)
        asked.pod_sandbox_id = f"s{pod}"
        asked.sandbox_config.metadata.uid, asked.sandbox_config.metadata.name = f"u{pod}", f"pod{pod}"
        started = cri_pb2.RunPodSandboxResponse(pod_sandbox_id=f"s{pod}").SerializeToString()
        config = cri_pb2.RunPodSandboxRequest(config=asked.sandbox_config)
        self.relay.passes("RunPodSandbox", config.SerializeToString(), started)
        verdict = self.relay.create(asked.SerializeToString(), f"c{pod}")
        if isinstance(verdict, Refuse):
            return "refused"
        assert isinstance(verdict, Replace)
        sent = cri_pb2.CreateContainerRequest.FromString(verdict.message).config.linux.resources
        return f"{sent.cpuset_cpus} {sent.cpu_shares}"

    def resize(self, pod: int, cpus: int) -> str:
        asked = cri_pb2.LinuxContainerResources(cpu_shares=cpus * 1024, cpu_quota=cpus * 100_000, cpu_period=100_000)
        request = cri_pb2.UpdateContainerResourcesRequest(container_id=f"c{pod}", linux=asked)
        call = self.relay.begin("UpdateContainerResources")
        verdict = self.relay.decide(call, request.SerializeToString())
        if isinstance(verdict, Refuse):
            return "refused"
        assert isinstance(verdict, Replace)
        sent = cri_pb2.UpdateContainerResourcesRequest.FromString(verdict.message).linux
        return f"{sent.cpuset_cpus} {sent.cpu_shares}"

    def end(self, pod: int) -> None:
        for name, request in (
            ("StopContainer", cri_pb2.StopContainerRequest(container_id=f"c{pod}").SerializeToString()),
            ("StopPodSandbox", cri_pb2.StopPodSandboxRequest(pod_sandbox_id=f"s{pod}").SerializeToString()),
        ):
            self.relay.passes(name, request, b"")

    @property
    def sets(self) -> dict[str, str]:
        return _sets(self.relay.core.state)


def _sets(state: State) -> dict[str, str]:
    return {held.key: text(wanted(state.cpus.pools, held.key)) for held in state.cpus.held.values()}


def test_both_transports_lead_to_the_same_cpus() -> None:
    kinds = captured()
    seen = {"refused": 0, "moved": 0}
    for history in range(HISTORIES):
        choose = random.Random(history)
        reserved = Amount(AmountKind.QUANTITY, milli=1000)
        name = POLICIES[history % len(POLICIES)]
        policy = PolicySettings(name, reserved=reserved, balloons=BALLOONS, dynamic_pools=DYNAMIC)
        one, other = ByNri(policy), ByCri(policy)
        there: dict[int, int] = {}
        for step in range(STEPS):
            pod = choose.randrange(PODS)
            before = one.sets
            if pod not in there:
                kind = choose.randrange(len(KINDS))
                answers = one.create(pod, kinds[kind]), other.create(pod, kinds[kind])
                if answers[0] != "refused":
                    there[pod] = kind
            elif KINDS[there[pod]][1] and choose.random() < 0.5:
                cpus = choose.randint(1, 6)
                answers = one.resize(pod, cpus), other.resize(pod, cpus)
            else:
                del there[pod]
                one.end(pod)
                other.end(pod)
                answers = "", ""
            assert answers[0] == answers[1], (history, step, pod)
            assert one.sets == other.sets, (history, step, pod)
            seen["refused"] += answers[0] == "refused"
            seen["moved"] += any(before[key] != cpus for key, cpus in one.sets.items() if key in before)
    assert min(seen.values()) > HISTORIES // 10, seen
