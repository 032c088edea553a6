"""What a relay hears of calls that pass and of lists, and what it makes up for once it has let a call go undecided."""

import asyncio
import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import pytest

from nodeward.contracts import cri_pb2 as cri
from nodeward.core.decision import Decision
from nodeward.core.events import Event
from nodeward.core.feature import Hear
from nodeward.core.modes import Mode, OnError
from nodeward.core.workload import ContainerId, CpuRecord, Phase, SandboxId
from nodeward.features.limits.settings import LimitsSettings
from nodeward.features.root import State
from nodeward.features.settings import Settings
from nodeward.neighbours.cri import decider
from nodeward.neighbours.cri.calls import Call, Ended, Interest, Message, Pass
from nodeward.neighbours.cri.decider import LIST_LATER_S, LIST_READ_NS, LISTS_NS, MOST_KEPT, MOST_RESTORED
from nodeward.neighbours.sockets.unary_client import CallFailedError
from tests.unit.programs.relay.relayed import Relayed, create, listed, sandbox_config, updated


def test_a_create_that_fails_leaves_nothing() -> None:
    node = Relayed()
    for end in (Ended(13, "no", 0), Ended(None, "the client cancelled", 0)):
        call = node.begin("CreateContainer")
        node.decide(call, create())
        assert len(node.containers) == 1
        node.decider.ended(call, end)
        assert node.containers == []


def test_containers_and_sandboxes_end_with_their_calls() -> None:
    node = Relayed()
    for number in range(3):
        node.create(create(), f"c{number}")
    node.passes("StopContainer", cri.StopContainerRequest(container_id="c0", timeout=30).SerializeToString(), b"")
    node.passes("RemoveContainer", cri.RemoveContainerRequest(container_id="c1").SerializeToString(), b"")
    node.passes("RemoveContainer", cri.RemoveContainerRequest(container_id="c2").SerializeToString(), status=13)
    assert node.containers == ["c2"]
    node.passes("StopPodSandbox", cri.StopPodSandboxRequest(pod_sandbox_id="s1").SerializeToString(), b"")
    assert (node.containers, node.sandboxes) == ([], [])


def test_after_a_restart_lists_that_pass_say_what_there_is() -> None:
    node = Relayed()
    sandboxes, containers = listed(c1=True, c2=False)
    assert not node.decider.listed
    node.passes("ListContainers", b"", containers)
    node.passes("ListPodSandbox", b"\x0a\x00", sandboxes)
    assert node.decider.listed
    assert updated(node.update()) == "sgx_epc 8192"
    assert (node.containers, node.sandboxes) == (["c1"], ["s1"])
    assert node.decider.interest("/runtime.v1.RuntimeService/ListContainers") is Interest.NONE
    node.clock.ns += LISTS_NS
    assert node.decider.interest("/runtime.v1.RuntimeService/ListContainers") is Interest.ALL


def test_a_long_list_is_read_once_its_client_has_had_time_to_take_it_and_what_else_passes_at_once() -> None:
    """Or the last bytes of its answer would wait for that where the client is slower than the relay."""
    waits: list[float] = []
    node = Relayed(soon=lambda do, after_s: waits.append(after_s))
    node.passes("ListContainers", b"", listed(c1=True)[1])
    node.passes("StartContainer", cri.StartContainerRequest(container_id="c1").SerializeToString(), b"")
    assert waits == [LIST_LATER_S, 0.0]


def test_a_list_in_pieces_is_one_list() -> None:
    node = Relayed()
    sandboxes, one = listed(c1=True)
    _, two = listed(c2=True)
    node.passes("StreamPodSandboxes", b"", sandboxes)
    node.passes("StreamContainers", b"", one, two)
    assert node.containers == ["c1", "c2"]


def test_a_list_proves_no_absence_of_what_came_after_its_request() -> None:
    node = Relayed()
    sandboxes, containers = listed(c1=True)
    late = node.begin("ListContainers")
    node.decider.request(late, Message((b"",), 0, False, 0))
    node.passes("ListPodSandbox", b"", sandboxes)
    node.create(create(), "newer")
    node.decider.response(late, Message((containers,), len(containers), False, 0))
    node.decider.ended(late, Ended(0, "", 0))
    assert sorted(node.containers) == ["c1", "newer"]


def test_a_filtered_cut_compressed_or_garbled_list_says_nothing() -> None:
    node = Relayed()
    sandboxes, containers = listed(c1=True)
    node.passes("ListPodSandbox", b"", sandboxes)
    node.passes("ListContainers", b"\x0a\x02\x12\x00", containers)  # a filter by state
    node.passes("ListContainers", b"", b"\xff\xff")
    for message in (
        Message((containers[:9],), len(containers), False, 0),
        Message((containers,), len(containers), True, 0),
    ):
        call = node.begin("ListContainers")
        node.decider.request(call, Message((b"",), 0, False, 0))
        node.decider.response(call, message)
        node.decider.ended(call, Ended(0, "", 0))
    assert node.containers == []
    assert node.decider.unread == 3
    assert not node.decider.listed


def test_a_message_that_is_too_long_is_not_kept() -> None:
    """Whoever floods the relay with pods of a megabyte and leaves their calls open takes no memory by that."""
    node = Relayed()
    call = node.begin("RunPodSandbox")
    long = cri.RunPodSandboxRequest(config=sandbox_config(), runtime_handler="x" * MOST_KEPT).SerializeToString()
    answer = cri.RunPodSandboxResponse(pod_sandbox_id="s1").SerializeToString()
    node.decider.request(call, Message((long,), len(long), False, 0))
    node.decider.response(call, Message((answer,), len(answer), False, 0))
    node.decider.ended(call, Ended(0, "", 0))
    assert node.sandboxes == []
    assert node.decider.unread == 1


@pytest.mark.parametrize("size", [0, 1 << 20])
def test_a_streamed_list_without_end_is_not_kept(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of long messages or of empty ones: it says nothing in the end, and takes no more memory than a list may."""
    monkeypatch.setattr(decider, "MOST_OF_LIST", 4 << 20)
    node = Relayed()
    sandboxes, _ = listed()
    node.passes("ListPodSandbox", b"", sandboxes)
    call, more = node.begin("StreamContainers"), cri.ContainerMetadata(name="x" * size).SerializeToString()
    node.decider.request(call, Message((b"",), 0, False, 0))
    tracemalloc.start()
    try:
        for _ in range((6 << 20) // (size + decider.EACH)):
            payload = bytes(bytearray(more))  # each is another, as they are when they come
            node.decider.response(call, Message((payload,), len(payload), False, 0))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    node.decider.ended(call, Ended(0, "", 0))
    assert kept < 2 << 20
    assert node.decider.unread == 1
    assert not node.decider.listed


def test_one_list_of_a_kind_is_read_at_a_time() -> None:
    node = Relayed()
    first = node.begin("ListContainers")
    assert node.decider.interest(first.path) is Interest.NONE
    node.decider.ended(first, Ended(None, "the client cancelled", 0))
    assert node.decider.interest(first.path) is Interest.ALL


def test_a_client_that_never_reads_its_list_does_not_keep_others_from_being_read() -> None:
    """Given a list that never ends, then ten seconds later another one is read, and the end of the first says nothing
    of the second."""
    node = Relayed()
    sandboxes, containers = listed(c1=True)
    stuck = node.begin("ListContainers")
    node.decider.request(stuck, Message((b"",), 0, False, 0))
    node.clock.ns += LIST_READ_NS - 1
    assert node.decider.interest(stuck.path) is Interest.NONE
    node.clock.ns += 1
    assert node.decider.interest(stuck.path) is Interest.ALL
    second = node.begin("ListContainers")
    node.decider.ended(stuck, Ended(None, "the client went", 0))
    assert node.decider.interest(stuck.path) is Interest.NONE, "the second is being read"
    node.decider.ended(second, Ended(None, "the client went", 0))
    node.passes("ListContainers", b"", containers)
    node.passes("ListPodSandbox", b"", sandboxes)
    assert node.containers == ["c1"]


def test_lists_that_do_not_pass_are_asked_for() -> None:
    node = Relayed()
    assert node.decider.overdue
    node.decider.asked(*listed(c1=True), 0)
    assert not node.decider.overdue
    node.clock.ns += 2 * LISTS_NS
    assert node.decider.overdue


def test_a_list_which_cannot_tell_them_leaves_the_pods_cgroup_and_the_cpus_that_a_create_and_an_update_told() -> None:
    node = Relayed()
    request = cri.CreateContainerRequest.FromString(create())
    request.sandbox_config.linux.cgroup_parent = "/kubepods/burstable/poduid-1"
    resources = request.config.linux.resources
    resources.cpu_shares, resources.cpu_quota, resources.cpu_period = 2048, 200_000, 100_000
    node.create(request.SerializeToString())
    node.update()
    sandboxes, containers = listed(c1=True)
    node.passes("ListContainers", b"", containers)
    node.passes("ListPodSandbox", b"", sandboxes)
    pods = node.limits.core.state.pods
    assert pods.containers[ContainerId("c1")].container.cpu == CpuRecord(512, 200_000, 100_000)
    assert pods.sandboxes[SandboxId("s1")].sandbox.cgroup_parent == "/kubepods/burstable/poduid-1"


class Runtime:
    """Takes updates, or fails as it is told to; knows what `lists` says."""

    def __init__(self, node: Relayed, *faults: Exception) -> None:
        self.node, self.faults = node, list(faults)
        self.got: list[tuple[str, dict[str, str]]] = []
        self.listed = 0
        self.meanwhile: list[Callable[[], None]] = []
        """What happens while it takes each update."""

    async def update(self, request: bytes) -> None:
        if self.faults:
            raise self.faults.pop(0)
        if self.meanwhile:
            self.meanwhile.pop(0)()
        said = cri.UpdateContainerResourcesRequest.FromString(request)
        self.got.append((said.container_id, dict(said.linux.unified)))

    async def lists(self) -> None:
        self.listed += 1
        self.node.decider.asked(*listed(c1=True), self.node.limits.core.seq())

    async def paid(self) -> None:
        debts = self.node.limits.debts
        paying = asyncio.ensure_future(debts.pay(self.update, self.lists, self.node.clock))
        async with asyncio.timeout(30):
            while debts._owed:
                await asyncio.sleep(0)
        paying.cancel()


def let_go(node: Relayed, message: bytes | None, container_id: str = "c1") -> Call:
    """A create of which the runtime gives this id, and that nobody has decided."""
    call = node.begin("CreateContainer")
    assert node.decider.undecided(call, message, "no decision in time", ending=False) == Pass()
    answer = cri.CreateContainerResponse(container_id=container_id).SerializeToString()
    node.decider.response(call, Message((answer,), len(answer), False, 0))
    node.decider.ended(call, Ended(0, "", 0))
    return call


def update(node: Relayed, message: bytes | None, status: int = 0) -> None:
    call = node.begin("UpdateContainerResources")
    assert node.decider.undecided(call, message, "no decision in time", ending=False) == Pass()
    node.decider.ended(call, Ended(status, "", 0))


LIMITED = ("c1", {"misc.max": "sgx_epc 8192"})


def test_a_decision_that_came_too_late_is_made_up_for_as_soon_as_the_container_has_its_id() -> None:
    node = Relayed()
    runtime = Runtime(node)
    let_go(node, create())
    asyncio.run(runtime.paid())
    assert (runtime.got, runtime.listed, node.limits.debts.paid) == ([LIMITED], 0, 1)


def test_a_container_that_is_told_of_before_it_runs_is_told_of_again_when_it_does() -> None:
    """containerd 1.7 takes an update while it starts a container, and makes nothing of it."""
    node = Relayed()
    runtime = Runtime(node)
    let_go(node, create())
    let_go(node, create(), "c2")
    asyncio.run(runtime.paid())
    other = ("c2", LIMITED[1])
    assert runtime.got == [LIMITED, other]
    for container_id in ("c1", "c1"):
        node.passes("StartContainer", cri.StartContainerRequest(container_id=container_id).SerializeToString(), b"")
    asyncio.run(runtime.paid())
    assert runtime.got == [LIMITED, other, LIMITED]
    node.passes("RemoveContainer", cri.RemoveContainerRequest(container_id="c2").SerializeToString(), b"")
    asyncio.run(runtime.paid())
    assert (runtime.got, node.limits.debts._early) == ([LIMITED, other, LIMITED], {})


def test_a_container_that_begins_to_run_while_the_runtime_takes_the_update_is_told_of_again() -> None:
    node = Relayed()
    runtime = Runtime(node)
    let_go(node, create())
    start = cri.StartContainerRequest(container_id="c1").SerializeToString()
    runtime.meanwhile = [lambda: node.passes("StartContainer", start, b"")]
    asyncio.run(runtime.paid())
    assert runtime.got == [LIMITED, LIMITED]


def test_an_update_that_went_on_undecided_is_made_up_for_once_it_was_taken() -> None:
    """It may have brought a value of its client's. One that failed, or that nobody can read, has changed nothing that
    is known; one that was decided owes nothing."""
    node = Relayed()
    runtime = Runtime(node)
    node.decider.asked(*listed(c1=True), node.limits.core.seq())
    asked = cri.UpdateContainerResourcesRequest(container_id="c1").SerializeToString()
    update(node, asked, status=13)
    update(node, b"\xff\xff")
    update(node, None)
    decided = node.begin("UpdateContainerResources")
    node.decide(decided, asked)
    node.decider.ended(decided, Ended(0, "", 0))
    asyncio.run(runtime.paid())
    assert runtime.got == []
    update(node, asked)
    asyncio.run(runtime.paid())
    assert runtime.got == [LIMITED]


def test_whose_container_a_create_was_that_could_not_be_read_is_asked_of_the_runtime() -> None:
    node = Relayed()
    runtime = Runtime(node)
    let_go(node, None)
    asyncio.run(runtime.paid())
    assert (runtime.got, runtime.listed) == ([LIMITED], 1)


def restored(*container_ids: str, sandbox: str = "s1") -> bytes:
    made = cri.RestorePodResponse(pod_sandbox_id=sandbox)
    for container_id in container_ids:
        made.restored_containers.add(name="app", container_id=container_id)
    return made.SerializeToString()


def test_containers_out_of_a_checkpoint_are_given_their_limit_when_they_are_there() -> None:
    node = Relayed()
    runtime = Runtime(node)
    path = "/runtime.v1.RuntimeService/RestorePod"
    assert (node.decider.holds(path), node.decider.interest(path)) == (False, Interest.ALL)
    node.passes("RestorePod", b"", restored("c1", "c9"))
    asyncio.run(runtime.paid())
    assert (runtime.got, runtime.listed) == ([LIMITED], 2)


def test_a_restored_pod_is_known_by_its_own_uid_and_cgroup_beside_the_pod_that_was_checkpointed() -> None:
    node = Relayed()
    runtime = Runtime(node)
    node.decider.asked(*listed(c1=True), node.limits.core.seq())
    asked = cri.RestorePodRequest(checkpoint_path="/checkpoints/1", runtime_handler="runc")
    asked.config.metadata.CopyFrom(cri.PodSandboxMetadata(name="twin", uid="uid-2", namespace="default"))
    asked.config.linux.cgroup_parent = "/kubepods/poduid-2"
    asked.config.annotations["epc-limit.nri.io/container.app"] = "4096"
    asked.container_configs.add(metadata=cri.ContainerMetadata(name="app")).linux.resources.cpu_shares = 512
    assert node.decider.interest("/runtime.v1.RuntimeService/CheckpointPod") is Interest.NONE
    node.passes("RestorePod", asked.SerializeToString(), restored("c2", sandbox="s2"))
    asyncio.run(runtime.paid())
    assert (runtime.got, runtime.listed) == ([("c2", {"misc.max": "sgx_epc 4096"})], 0)
    node.passes("RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id="s1").SerializeToString(), b"")
    pods = node.limits.core.state.pods
    assert (pods.sandbox_of, [*pods.containers]) == ({"uid-2": "s2"}, ["c2"])
    home, one = pods.sandboxes[SandboxId("s2")].sandbox, pods.containers[ContainerId("c2")].container
    assert (home.name, home.cgroup_parent, home.handler) == ("twin", "/kubepods/poduid-2", "runc")
    assert (one.name, one.phase, one.cpu.shares) == ("app", Phase.CREATED, 512)


@pytest.mark.parametrize(
    ("answers", "status", "unread"),
    [
        ((restored("c1"),), 14, 0),
        ((restored(),), 0, 0),
        ((b"\xff",), 0, 1),
        ((restored(*map(str, range(MOST_RESTORED + 1))),), 0, 1),
        ((bytes(MOST_KEPT),), 0, 1),
    ],
    ids=["failed", "of-none", "no-CRI", "of-too-many", "too-long"],
)
def test_a_restore_that_names_nobody_owes_nothing(answers: tuple[bytes, ...], status: int, unread: int) -> None:
    node = Relayed()
    node.passes("RestorePod", b"", *answers, status=status)
    assert (list(node.limits.debts._owed), node.decider.unread) == ([], unread)


def test_where_limits_are_only_observed_a_restore_changes_nothing() -> None:
    node = Relayed(Settings(limits=LimitsSettings(mode=Mode.OBSERVE)))
    runtime = Runtime(node)
    node.passes("RestorePod", b"", restored("c1"))
    asyncio.run(runtime.paid())
    assert (runtime.got, runtime.listed) == ([], 1)


def test_an_engine_that_failed_is_asked_again_until_it_decides() -> None:
    node, left = Relayed(), [2]
    core = node.limits.core
    whole = core._engine

    def failing(hear: Hear[State]) -> Hear[State]:
        def once(state: State, event: Event) -> tuple[object, Decision]:
            if left[0] and type(event).__name__ in ("Creating", "Updating"):
                left[0] -= 1
                raise ValueError("odd")
            return hear(state, event)

        return once

    core._engine = replace(
        whole,
        features=tuple(
            replace(one, hears={kind: failing(hear) for kind, hear in one.hears.items()})
            if one.name == "limits"
            else one
            for one in whole.features
        ),
    )
    runtime = Runtime(node)
    assert node.create(create()) == Pass()
    asyncio.run(runtime.paid())
    assert (runtime.got, left) == ([LIMITED], [0])


@pytest.mark.parametrize(
    "fault", [ConnectionRefusedError(111, "refused"), TimeoutError(), CallFailedError("x", 14, "")]
)
def test_a_runtime_that_does_not_take_it_is_told_again(fault: Exception) -> None:
    node = Relayed()
    runtime = Runtime(node, fault, fault)
    let_go(node, create())
    asyncio.run(runtime.paid())
    assert runtime.got == [LIMITED]


def test_a_container_that_the_runtime_does_not_take_keeps_no_other_waiting() -> None:
    node = Relayed()
    runtime = Runtime(node, TimeoutError())
    let_go(node, create())
    let_go(node, create(), "c2")
    asyncio.run(runtime.paid())
    assert [container_id for container_id, _ in runtime.got] == ["c2", "c1"]


def test_a_container_that_has_gone_is_owed_nothing() -> None:
    node = Relayed()
    runtime = Runtime(node, CallFailedError("x", 5, "not found"))
    let_go(node, create())
    let_go(node, create(), "c2")
    node.passes("StopContainer", cri.StopContainerRequest(container_id="c2").SerializeToString(), b"")
    let_go(node, None, "c3")
    asyncio.run(runtime.paid())
    assert (runtime.got, node.limits.debts.paid) == ([], 0)


def test_nothing_is_owed_where_the_create_failed_or_nothing_is_wanted_or_others_would_be_refused() -> None:
    node = Relayed()
    runtime = Runtime(node)
    call = node.begin("CreateContainer")
    assert node.decider.undecided(call, create(), "odd", ending=False) == Pass()
    node.decider.ended(call, Ended(13, "no", 0))
    let_go(node, create({}), "c2")
    asyncio.run(runtime.paid())
    strict = Relayed(Settings(limits=LimitsSettings(on_error=OnError.REFUSE)))
    call = strict.begin("CreateContainer")
    assert strict.decider.undecided(call, create(), "odd", ending=False) != Pass()
    assert (runtime.got, strict.limits.debts._owed) == ([], {})
