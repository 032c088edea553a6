"""What a daemon hears of calls that pass a relay, and of what the runtime lists."""

import pytest

from nodeward.contracts import cri_pb2 as cri
from nodeward.core.workload import ContainerId, CpuRecord, Phase, SandboxId
from nodeward.neighbours.cri.decider import MOST_RESTORED
from nodeward.neighbours.sockets.unary_client import UNIMPLEMENTED, CallFailedError
from tests.unit.programs.relay import relayed

RUN = cri.RunPodSandboxRequest(config=relayed.sandbox_config(), runtime_handler="kata").SerializeToString()
RAN = cri.RunPodSandboxResponse(pod_sandbox_id="s1").SerializeToString()


@pytest.fixture
def node() -> relayed.Relayed:
    return relayed.Relayed()


def test_a_create_that_fails_leaves_nothing(node: relayed.Relayed) -> None:
    call = node.begin("CreateContainer")
    node.decide(call, relayed.create())
    assert len(node.containers) == 1
    node.ended(call, relayed.create(), ok=False)
    assert node.containers == []


def test_containers_and_sandboxes_end_with_their_calls(node: relayed.Relayed) -> None:
    for number in range(3):
        node.create(relayed.create(), f"c{number}")
    node.passes("StopContainer", cri.StopContainerRequest(container_id="c0", timeout=30).SerializeToString())
    node.passes("RemoveContainer", cri.RemoveContainerRequest(container_id="c1").SerializeToString())
    node.passes("RemoveContainer", cri.RemoveContainerRequest(container_id="c2").SerializeToString(), ok=False)
    assert node.containers == ["c2"]
    node.passes("StopPodSandbox", cri.StopPodSandboxRequest(pod_sandbox_id="s1").SerializeToString())
    assert (node.containers, node.sandboxes) == ([], [])


def test_a_create_that_nobody_decided_is_known_all_the_same(node: relayed.Relayed) -> None:
    """By its request; what it was to have is a goal, and is in its next update."""
    node.passes("CreateContainer", relayed.create(), relayed.created_as("c1"), decided=False)
    assert node.containers == ["c1"]
    assert relayed.updated(node.update()) == "sgx_epc 8192"


def test_an_update_that_nobody_decided_tells_what_its_client_asked_for(node: relayed.Relayed) -> None:
    node.create(relayed.create())
    node.passes("UpdateContainerResources", relayed.update("c1"), decided=False)
    assert node.core.state.pods.containers[ContainerId("c1")].container.cpu.shares == 512


def test_a_container_keeps_its_sandboxs_handler_which_a_create_does_not_name(node: relayed.Relayed) -> None:
    node.passes("RunPodSandbox", RUN, RAN)
    node.create(relayed.create())
    assert node.core.state.pods.sandboxes[SandboxId("s1")].sandbox.handler == "kata"


@pytest.mark.parametrize("what", ["cut", "no-CRI"])
def test_what_cannot_be_read_is_counted_and_listed_soon(node: relayed.Relayed, what: str) -> None:
    node.runtime._due.clear()
    node.ended(node.begin("RunPodSandbox"), b"" if what == "cut" else b"\xff", cut=what == "cut")
    assert (node.sandboxes, node.decider.unread, node.runtime._due.is_set()) == ([], 1, True)


async def test_a_relay_that_connects_has_the_runtime_listed_before_anything_is_decided() -> None:
    node = relayed.Relayed(listed=False)
    node.lists = relayed.listed(c1=True, c2=False)
    node.runtime.begins(relayed.HELLO)
    assert not node.runtime.listed
    await node.listing()
    assert node.runtime.listed
    assert (node.containers, node.sandboxes) == (["c1"], ["s1"])
    assert relayed.updated(node.update()) == "sgx_epc 8192"
    node.runtime.ends("it went")
    assert (node.runtime.listed, node.core.state.pods.runtime) == (False, "")


async def test_an_older_runtime_is_listed_by_its_own_version(
    node: relayed.Relayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = node._call

    async def older(path: str, request: bytes, within_s: float) -> bytes:
        if ".v1." in path:
            raise CallFailedError(path, UNIMPLEMENTED, "unknown service runtime.v1.RuntimeService")
        return await whole(path, request, within_s)

    monkeypatch.setattr(node.runtime, "_call", older)
    node.lists = relayed.listed(c1=True)
    await node.listing()
    assert node.containers == ["c1"]


async def test_a_list_which_cannot_tell_them_leaves_the_pods_cgroup_and_what_a_create_and_an_update_told(
    node: relayed.Relayed,
) -> None:
    request = cri.CreateContainerRequest.FromString(relayed.create())
    request.sandbox_config.linux.cgroup_parent = "/kubepods/burstable/poduid-1"
    resources = request.config.linux.resources
    resources.cpu_shares, resources.cpu_quota, resources.cpu_period = 2048, 200_000, 100_000
    resources.memory_limit_in_bytes = 64 << 20
    node.create(request.SerializeToString())
    node.update()
    node.lists = relayed.listed(c1=True)
    node.statuses["c1"] = CallFailedError("/status", 13, "broken")
    await node.listing()
    pods = node.core.state.pods
    assert pods.sandboxes[SandboxId("s1")].sandbox.cgroup_parent == "/kubepods/burstable/poduid-1"
    one = pods.containers[ContainerId("c1")].container
    assert (one.cpu, one.memory) == (CpuRecord(512, 200_000, 100_000), 64 << 20)


def restored(*container_ids: str, sandbox: str = "s1") -> bytes:
    made = cri.RestorePodResponse(pod_sandbox_id=sandbox)
    for container_id in container_ids:
        made.restored_containers.add(name="app", container_id=container_id)
    return made.SerializeToString()


def test_a_restored_pod_is_known_by_its_own_uid_and_cgroup_beside_the_pod_that_was_checkpointed(
    node: relayed.Relayed,
) -> None:
    node.passes("RunPodSandbox", RUN, RAN)
    node.create(relayed.create())
    asked = cri.RestorePodRequest(checkpoint_path="/checkpoints/1", runtime_handler="runc")
    asked.config.metadata.CopyFrom(cri.PodSandboxMetadata(name="twin", uid="uid-2", namespace="default"))
    asked.config.linux.cgroup_parent = "/kubepods/poduid-2"
    asked.config.annotations["epc-limit.nri.io/container.app"] = "4096"
    resources = asked.container_configs.add(metadata=cri.ContainerMetadata(name="app")).linux.resources
    resources.cpu_shares, resources.memory_limit_in_bytes = 512, 64 << 20
    node.passes("RestorePod", asked.SerializeToString(), restored("c2", sandbox="s2"))
    assert relayed.updated(node.update("c2")) == "sgx_epc 4096"
    node.passes("RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id="s1").SerializeToString())
    pods = node.core.state.pods
    assert (pods.sandbox_of, [*pods.containers]) == ({"uid-2": "s2"}, ["c2"])
    home, one = pods.sandboxes[SandboxId("s2")].sandbox, pods.containers[ContainerId("c2")].container
    assert (home.name, home.cgroup_parent, home.handler) == ("twin", "/kubepods/poduid-2", "runc")
    assert (one.name, one.phase, one.cpu.shares, one.memory) == ("app", Phase.CREATED, 512, 64 << 20)


@pytest.mark.parametrize(
    ("answer", "ok", "unread"),
    [
        (restored("c1"), False, 0),
        (b"\xff", True, 1),
        (restored(*map(str, range(MOST_RESTORED + 1))), True, 1),
        (restored("c1"), True, 1),
    ],
    ids=["failed", "no-CRI", "of-too-many", "of-no-pod"],
)
def test_a_restore_that_names_nobody_tells_nothing(node: relayed.Relayed, answer: bytes, ok: bool, unread: int) -> None:
    node.passes("RestorePod", b"", answer, ok=ok)
    assert (node.containers, node.decider.unread) == ([], unread)
