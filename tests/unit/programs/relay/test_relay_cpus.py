"""CPUs behind a relay: what a program waits for, and what is found out of containers that CRI does not tell."""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import Final

import pytest

from nodeward.contracts import cri_pb2 as cri
from nodeward.core import cpuset
from nodeward.core.hints import Hint
from nodeward.core.workload import ContainerId
from nodeward.features.cpus.effects import grants
from nodeward.features.cpus.effects.hints import HintReader
from nodeward.features.cpus.pool_settings import BalloonsSettings, BalloonType, Expression
from nodeward.features.cpus.settings import Amount, AmountKind, CpusSettings, Driver, OnLate, PolicySettings
from nodeward.features.settings import Settings
from nodeward.host.hostfs import ensure_folder
from nodeward.neighbours.cri.calls import Call, Pass, Refuse, Replace, Verdict
from nodeward.neighbours.sockets.unary_client import DEADLINE_EXCEEDED, NO_STATUS, UNAVAILABLE, CallFailedError
from nodeward_sim.doubles.cpus import Plan
from tests.unit.features.build import ManualClock
from tests.unit.programs.relay.relayed import HELLO, Relayed, created_as

ROOT: Final = "/sys/fs/cgroup"
STATIC: Final = PolicySettings("static", reserved=Amount(AmountKind.QUANTITY, milli=1000))
POD_CGROUP: Final = {"": "/kubepods/podguaranteed", "burstable": "/kubepods/burstable/podburstable"}
SECOND_NS: Final = 1_000_000_000
WAITS_S: Final = 0.1
"""Long beside what a wait looks at again, some hundredths of a second."""


class Pinned(Relayed):
    """A policy gives CPUs, on a machine with four."""

    def __init__(
        self, late_ms: int = 30_000, on_late: OnLate = OnLate.START, records: bool = False, listed: bool = True
    ) -> None:
        cpus = CpusSettings(driver=Driver.RELAY, late_ms=late_ms, on_late=on_late)
        plan = Plan(sockets=1, nodes=1, cores=4, threads=1)
        super().__init__(Settings(cpus=cpus, policy=STATIC), machine=plan, records=records, listed=listed)

    def created(self, name: str, qos: str = "burstable", cpus: int = 0) -> tuple[str, Verdict]:
        """A container that is created in a pod of that class, with so many CPUs; its id, and what was answered."""
        container_id = name * 32
        verdict = self.create(request(name, qos, cpus), container_id)
        self.remembers[container_id] = given(verdict)
        return container_id, verdict

    def starts(self, container_id: str) -> tuple[Call, asyncio.Future[Verdict]]:
        call, asked = self.begin("StartContainer"), cri.StartContainerRequest(container_id=container_id)
        message = asked.SerializeToString()
        found = self.decider.decide(call, message, 60 * SECOND_NS)
        assert isinstance(found, Awaitable)
        return call, asyncio.ensure_future(found)

    def runs(self, call: Call, container_id: str, qos: str = "burstable") -> None:
        """The runtime has started it, in a cgroup of what it remembers."""
        self.make(container_id, qos, self.remembers[container_id])
        self.ended(call, cri.StartContainerRequest(container_id=container_id).SerializeToString())

    def make(self, container_id: str, qos: str, held: str) -> None:
        above = ROOT
        for name in (*POD_CGROUP[qos].split("/")[1:], container_id):
            self.kernel.write(f"{above}/cgroup.subtree_control", b"+cpuset")
            above = f"{above}/{name}"
            self.kernel.make_cgroup(above)
        self.kernel.write(f"{above}/cpuset.cpus", held.encode())

    async def begun(self, name: str, qos: str = "burstable", cpus: int = 0) -> str:
        """A container that runs, with everything written that is to be."""
        container_id, _ = self.created(name, qos, cpus)
        call, start = self.starts(container_id)
        assert await start == Pass()
        self.runs(call, container_id, qos)
        await self.written()
        return container_id

    def cpus_of(self, container_id: str, qos: str = "burstable") -> str:
        place = f"{ROOT}{POD_CGROUP[qos]}/{container_id}/cpuset.cpus"
        return self.kernel.read(place, 4096).decode().strip()


def request(name: str, qos: str, cpus: int) -> bytes:
    made = cri.CreateContainerRequest(pod_sandbox_id=f"s-{qos}")
    config = made.sandbox_config
    config.metadata.CopyFrom(cri.PodSandboxMetadata(name="pod", uid=f"uid-{qos}", namespace="default"))
    config.linux.cgroup_parent = POD_CGROUP[qos]
    made.config.metadata.name = name
    made.config.linux.resources.cpu_shares = cpus * 1024 or 204
    if cpus:
        made.config.linux.resources.cpu_quota, made.config.linux.resources.cpu_period = cpus * 100_000, 100_000
    return made.SerializeToString()


def given(verdict: Verdict) -> str:
    assert isinstance(verdict, Replace)
    return cri.CreateContainerRequest.FromString(verdict.message).config.linux.resources.cpuset_cpus


async def still_waits(start: asyncio.Future[Verdict]) -> bool:
    await asyncio.sleep(WAITS_S)
    return not start.done()


@pytest.fixture
def node() -> Pinned:
    return Pinned()


async def test_a_program_waits_until_others_were_read_back_off_its_cpus(node: Pinned) -> None:
    other = await node.begun("c1")
    assert node.barrier.needed()
    whole, verdict = node.created("c2", "", 2)
    assert given(verdict) == "1-2"
    _, start = node.starts(whole)
    assert await still_waits(start)
    assert node.cpus_of(other) == "0-3"
    node.lane.drain()
    assert await start == Pass()
    assert node.cpus_of(other) == "0,3"
    assert node.updates == []


async def test_what_the_runtime_remembers_is_put_right_before_a_start_if_it_has_changed(node: Pinned) -> None:
    shared, verdict = node.created("c1")
    assert given(verdict) == "0-3"
    node.created("c2", "", 2)
    _, start = node.starts(shared)
    assert await start == Pass()
    assert node.updates == [("c1", "0,3")]


async def test_a_start_under_way_is_met_before_cpus_are_taken_from_it(node: Pinned) -> None:
    shared, _ = node.created("c1")
    under_way, first = node.starts(shared)
    assert await first == Pass()
    whole, _ = node.created("c2", "", 2)
    _, start = node.starts(whole)
    node.lane.drain()
    assert await still_waits(start)
    node.runs(under_way, shared)
    await node.written()
    assert await start == Pass()
    assert node.cpus_of(shared) == "0,3"


@pytest.mark.parametrize("relay_goes", [False, True])
async def test_a_start_over_before_it_was_decided_is_not_met_by_later_ones(node: Pinned, *, relay_goes: bool) -> None:
    shared, _ = node.created("c1")
    whole, _ = node.created("c2", "", 2)
    node.answers.clear()
    over, first = node.starts(shared)
    await asyncio.sleep(0)
    if relay_goes:
        node.starting.gone()
    else:
        node.ended(over, cri.StartContainerRequest(container_id=shared).SerializeToString(), ok=False)
    node.answers.set()
    await first
    node.passes("RemoveContainer", cri.RemoveContainerRequest(container_id=shared).SerializeToString())
    _, start = node.starts(whole)
    await node.written()
    assert not await still_waits(start)


async def test_a_create_that_was_answered_too_late_has_nothing_of_the_answer(node: Pinned) -> None:
    call, message = node.begin("CreateContainer"), request("c1", "", 2)
    assert given(node.decide(call, message)) == "1-2"
    node.ended(call, message, created_as("c1" * 32), decided=False)
    assert [one.given for one in node.core.state.cpus.held.values()] == [0]


@pytest.mark.parametrize("on_late", OnLate)
async def test_what_is_not_read_back_in_time_is_started_or_refused_as_the_settings_say(on_late: OnLate) -> None:
    node = Pinned(1, on_late)
    other = await node.begun("c1")
    whole, _ = node.created("c2", "", 2)
    _, start = node.starts(whole)
    verdict = await start
    assert node.core.state.cpus.late == 1
    if on_late is OnLate.START:
        assert verdict == Pass()
    else:
        assert isinstance(verdict, Refuse)
        assert verdict.status == 14
        assert other[:13] in verdict.text


async def test_a_create_is_answered_once_its_cpus_are_on_record_for_the_next_daemon() -> None:
    node = Pinned(records=True)
    ensure_folder(node.kernel, "/run/nodeward")
    found = node.decider.decide(node.begin("CreateContainer"), request("c2", "", 2), SECOND_NS)
    assert isinstance(found, Awaitable)
    asked = asyncio.ensure_future(found)
    await asyncio.sleep(0)
    assert not asked.done()
    while not asked.done():
        await node.written()
    assert given(await asked) == "1-2"
    _, next_one = grants.read(node.kernel, "/run/nodeward")
    assert next_one.recorded is not None
    assert {key: cpuset.text(grant.own) for key, grant in next_one.recorded.pools.grants.items()} == {"uid-/c2": "1-2"}


async def test_an_update_that_is_refused_leaves_the_record_as_it_was(node: Pinned) -> None:
    whole = await node.begun("c2", "", 2)

    def updated(asked: cri.LinuxContainerResources) -> Verdict:
        message = cri.UpdateContainerResourcesRequest(container_id=whole, linux=asked).SerializeToString()
        return node.decide(node.begin("UpdateContainerResources"), message)

    more = cri.LinuxContainerResources(cpu_shares=9216, cpu_quota=900_000, cpu_period=100_000)
    assert isinstance(updated(more), Refuse)
    partly = updated(cri.LinuxContainerResources(memory_limit_in_bytes=1 << 30))
    assert isinstance(partly, Replace)
    assert cri.UpdateContainerResourcesRequest.FromString(partly.message).linux.cpuset_cpus == "1-2"


async def test_a_cgroup_not_found_at_the_start_is_sought_again(node: Pinned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ManualClock, "sleep", lambda _, __: asyncio.sleep(0))
    shared, _ = node.created("c1")
    call, start = node.starts(shared)
    assert await start == Pass()
    node.ended(call, cri.StartContainerRequest(container_id=shared).SerializeToString())
    await node.written()
    node.make(shared, "burstable", "0-3")
    seeking = asyncio.ensure_future(node.runtime.keep_placed())
    await node.written()
    node.created("c2", "", 2)
    await node.written()
    seeking.cancel()
    assert node.cpus_of(shared) == "0,3"


def running(node: Pinned, *ones: tuple[str, str, int, str]) -> None:
    """What a runtime has when a relay begins: containers of that name, class, whole CPUs and set."""
    sandboxes, containers = cri.ListPodSandboxResponse(), cri.ListContainersResponse()
    for name, qos, cpus, held in ones:
        home = sandboxes.items.add(id=f"s-{qos}", state=cri.SANDBOX_READY)
        home.metadata.CopyFrom(cri.PodSandboxMetadata(name="pod", uid=f"uid-{qos}", namespace="default"))
        one = containers.containers.add(id=name * 32, pod_sandbox_id=f"s-{qos}", state=cri.CONTAINER_RUNNING)
        one.metadata.name = name
        status = cri.ContainerStatusResponse()
        status.status.resources.linux.cpu_shares = cpus * 1024 or 204
        status.status.resources.linux.cpuset_cpus = "0-3"  # of its creation; what came later only the kernel has
        status.status.resources.linux.memory_limit_in_bytes = 64 << 20
        node.statuses[name * 32] = status.SerializeToString()
        node.make(name * 32, qos, held)
    node.lists = sandboxes.SerializeToString(), containers.SerializeToString()


def restarted() -> Pinned:
    """The runtime has a container with CPUs of its own, and one that shares; it is not listed yet."""
    node = Pinned(listed=False)
    node.runtime.begins(HELLO)
    running(node, ("c1", "", 2, "2-3"), ("c3", "burstable", 0, "0-1"))
    return node


async def test_after_a_restart_containers_are_found_by_their_ids_and_creates_wait_for_that() -> None:
    node = restarted()
    early = node.decider.decide(node.begin("CreateContainer"), request("c2", "burstable", 0), SECOND_NS)
    assert isinstance(early, Awaitable)
    verdict = asyncio.ensure_future(early)
    await asyncio.sleep(0)
    assert node.core.state.pods.containers == {}
    await node.listing()
    assert given(await verdict) == "0-1"
    state = node.core.state
    grant = state.cpus.pools.grants["uid-/c1"]
    assert cpuset.text(grant.own) == "2-3"
    one = state.pods.containers[ContainerId("c1" * 32)].container
    assert (one.cgroups_path, one.memory) == (f"/kubepods/podguaranteed/{'c1' * 32}", 64 << 20)
    await node.written()
    assert (node.cpus_of("c1" * 32, ""), node.cpus_of("c3" * 32)) == ("2-3", "0-1")


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(FileNotFoundError(2, "No such file or directory"), id="no socket"),
        pytest.param(TimeoutError(), id="no answer"),
        pytest.param(CallFailedError("/status", NO_STATUS, "the runtime closed the connection"), id="closed"),
        pytest.param(CallFailedError("/status", UNAVAILABLE, "shutting down"), id="unavailable"),
        pytest.param(CallFailedError("/status", 2, "server is not initialized yet"), id="starting"),
    ],
)
async def test_a_runtime_that_goes_away_between_its_lists_and_its_statuses_is_asked_anew(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is known of any container until the runtime has answered whole, and nobody is moved."""
    node = restarted()
    told_later, node.statuses["c3" * 32] = node.statuses["c3" * 32], error
    monkeypatch.setattr(ManualClock, "sleep", lambda _, __: asyncio.sleep(0))
    learning = asyncio.ensure_future(node.runtime.keep_listed())
    await node.written()
    await node.written()
    assert not node.runtime.listed
    assert node.core.state.pods.containers == {}
    node.statuses["c3" * 32] = told_later
    while not node.runtime.listed:
        await node.written()
    learning.cancel()
    await node.written()
    assert (node.cpus_of("c1" * 32, ""), node.cpus_of("c3" * 32)) == ("2-3", "0-1")


@pytest.mark.parametrize("status", [13, DEADLINE_EXCEEDED])
async def test_a_status_that_cannot_be_read_leaves_that_one_container_where_it_is_and_is_asked_for_again(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = restarted()
    told_later, node.statuses["c1" * 32] = node.statuses["c1" * 32], CallFailedError("/status", status, "broken")
    monkeypatch.setattr(ManualClock, "sleep", lambda _, __: asyncio.sleep(0))
    learning = asyncio.ensure_future(node.runtime.keep_listed())
    while not node.runtime.listed:
        await node.written()
    await node.written()
    assert (node.cpus_of("c1" * 32, ""), node.cpus_of("c3" * 32)) == ("2-3", "0-1")
    node.statuses["c1" * 32] = told_later
    while any(known.container.cpu.unread for known in node.core.state.pods.containers.values()):
        await node.written()
    learning.cancel()
    await node.written()
    state = node.core.state
    assert cpuset.text(state.cpus.pools.grants["uid-/c1"].own) == "2-3"
    assert (node.cpus_of("c1" * 32, ""), node.cpus_of("c3" * 32)) == ("2-3", "0-1")


async def test_a_label_that_newer_settings_name_is_known_by_the_next_lists(node: Pinned) -> None:
    def by_label(name: str) -> Settings:
        has = (Expression(f"pod/labels/{name}", "Equals", ("db",)),)
        types = (BalloonType("l", match_expressions=has),)
        rules = replace(STATIC, active="balloons", balloons=BalloonsSettings(balloon_types=types))
        return Settings(cpus=CpusSettings(driver=Driver.RELAY), policy=rules)

    node.settle(by_label("none"))
    container_id = await node.begun("c1")
    pools = [grant.pool for grant in node.core.state.cpus.pools.grants.values()]
    node.settle(by_label("tier"))
    home = cri.PodSandbox(id="s-burstable", labels={"tier": "db", "other": "x"}, state=cri.SANDBOX_READY)
    home.metadata.CopyFrom(cri.PodSandboxMetadata(name="pod", uid="uid-burstable", namespace="default"))
    one = cri.Container(id=container_id, pod_sandbox_id=home.id, state=cri.CONTAINER_RUNNING)
    one.metadata.name = "c1"
    node.lists = (
        cri.ListPodSandboxResponse(items=[home]).SerializeToString(),
        cri.ListContainersResponse(containers=[one]).SerializeToString(),
    )
    await node.listing()
    pools += [grant.pool for grant in node.core.state.cpus.pools.grants.values()]
    assert pools == ["default[0]", "l[0]"]
    (known,) = node.core.state.pods.sandboxes.values()
    assert known.sandbox.labels == {"pod/labels/tier": "db"}


async def test_a_container_is_placed_near_what_its_request_lets_it_write_to() -> None:
    """A disk near node 2; another one, near node 1, is mounted read-only. A second create of the pod waits its turn."""
    disks = {"8:1": ("sda", "8-11,24-27"), "8:16": ("sdb", "4-7,20-23")}
    tree = PolicySettings("topology-aware", reserved=Amount(AmountKind.QUANTITY, milli=1000))
    node = Relayed(Settings(cpus=CpusSettings(driver=Driver.RELAY), policy=tree), machine=Plan())
    for number, (name, cpus) in disks.items():
        node.kernel.lay({f"/sys/devices/{name}/local_cpulist": cpus})
        node.kernel.link(f"/sys/dev/block/{number}", f"/sys/devices/{name}")
    node.kernel.lay(
        {"/proc/1/mountinfo": "1 0 8:1 / /data rw - ext4 /dev/sda1 rw\n2 0 8:16 / /ro rw - ext4 /dev/sdb rw\n"}
    )

    async def nothing(*_: object) -> list[Hint]:
        return []

    node.decider._read_hints = HintReader(lambda: node.core.state, node.kernel, node.lane, nothing)
    verdicts = list[asyncio.Future[Verdict]]()
    for name in ("c1", "c2"):
        made = cri.CreateContainerRequest.FromString(request(name, "burstable", 0))
        made.config.mounts.add(container_path="/data", host_path="/data/pv1")
        made.config.mounts.add(container_path="/ro", host_path="/ro", readonly=True)
        found = node.decider.decide(node.begin("CreateContainer"), made.SerializeToString(), SECOND_NS)
        assert isinstance(found, Awaitable)
        verdicts.append(asyncio.ensure_future(found))
    await node.written()
    assert [given(await verdict) for verdict in verdicts] == ["8-11,24-27"] * 2
