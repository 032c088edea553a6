"""CRI's calls in the words of the model and back: what is asked, waited for, sent on instead, or refused and how.

And what is heard of calls that pass, and of what the runtime lists."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from nodeward.contracts import cri_pb2 as cri
from nodeward.core.errors import WireError
from nodeward.core.events import ApiBack, PodSeen
from nodeward.core.modes import Mode, OnError
from nodeward.core.refusal import Refused
from nodeward.core.workload import ContainerId, ContainerSpec, CpuRecord, Phase, PodSpec, PodUid, SandboxId
from nodeward.features.limits.settings import LimitsSettings, UnknownPod, Unsupported
from nodeward.features.pods.settings import PodsSettings
from nodeward.features.settings import RelaySection, Settings
from nodeward.neighbours.cri.calls import Call, Pass, Refuse, Replace, Verdict
from nodeward.neighbours.cri.decider import MOST_RESTORED, STATUSES
from nodeward.neighbours.sockets.unary_client import UNIMPLEMENTED, CallFailedError
from tests.unit.programs.relay.relayed import (
    HELLO,
    Relayed,
    create,
    created,
    created_as,
    listed,
    sandbox_config,
    update,
    updated,
)

LIMITS = RelaySection(limits=True)
SECOND_NS = 1_000_000_000
CALLS = {"CreateContainer": (create(), created), "UpdateContainerResources": (update("c1"), updated)}


def asks(node: Relayed, name: str, call: Call | None = None) -> Awaitable[Verdict]:
    found = node.decider.decide(call or node.begin(name), CALLS[name][0], SECOND_NS)
    assert isinstance(found, Awaitable)
    return found


@pytest.fixture
def node() -> Relayed:
    return Relayed()


@pytest.mark.parametrize("version", ["v1", "v1alpha2"])
def test_a_pods_annotation_becomes_the_containers_limit_from_birth(version: str) -> None:
    assert created(Relayed().create(create(), version=version)) == "sgx_epc 8192"


def test_an_update_carries_the_whole_limit_again_beside_the_clients_values(node: Relayed) -> None:
    node.create(create())
    verdict = node.update()
    assert updated(verdict) == "sgx_epc 8192"
    assert isinstance(verdict, Replace)
    assert cri.UpdateContainerResourcesRequest.FromString(verdict.message).linux.cpu_shares == 512


def test_what_nobody_limits_passes_as_it_came(node: Relayed) -> None:
    assert node.create(create({}, "other"), "c2") == Pass()
    assert node.update("c2") == Pass()


def test_no_other_call_is_held(node: Relayed) -> None:
    held = [name for name in ("CreateContainer", "StartContainer", "ListContainers") if node.begin(name).held]
    assert held == ["CreateContainer", "StartContainer"]
    assert node.decide(node.begin("StartContainer"), b"") == Pass(), "no policy gives CPUs"


def test_bytes_that_are_no_request_are_not_decided(node: Relayed) -> None:
    with pytest.raises(WireError):
        node.decide(node.begin("CreateContainer"), b"\xff\xff")


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_calls_of_one_pod_are_asked_about_in_the_order_they_came(node: Relayed) -> None:
    told = asyncio.Event()

    async def fetch(key: str) -> str:
        await told.wait()
        return "nobody knows"

    facts_from(node, fetch)
    first, gone, second = (node.begin("CreateContainer") for _ in range(3))
    waits = [asyncio.ensure_future(asks(node, "CreateContainer", call)) for call in (first, gone, second)]
    await turns()
    assert node.containers == [f"create-{first.number}"]
    other = node.begin("UpdateContainerResources")
    assert node.decide(other, update("stranger")) == Pass()
    waits[1].cancel()
    told.set()
    verdicts = await asyncio.gather(*waits, return_exceptions=True)
    assert isinstance(verdicts[1], asyncio.CancelledError)
    assert [created(one) for one in (verdicts[0], verdicts[2]) if not isinstance(one, BaseException)] == [
        "sgx_epc 8192"
    ] * 2
    assert node.containers == [f"create-{one.number}" for one in (first, second)]


def test_neither_environment_nor_other_annotations_enter_the_state(node: Relayed) -> None:
    node.create(create())
    assert "hidden" not in repr(node.core.state)


def test_a_client_that_describes_no_pod_is_known_by_its_sandbox(node: Relayed) -> None:
    ordinary = cri.RunPodSandboxRequest(config=sandbox_config()).SerializeToString()
    node.passes("RunPodSandbox", ordinary, RAN)
    bare = cri.CreateContainerRequest(pod_sandbox_id="s1")
    bare.config.metadata.name = "app"
    assert created(node.create(bare.SerializeToString())) == "sgx_epc 8192"


DECLARED = ContainerSpec("first", declared={"sgx_epc": 1}), ContainerSpec("app", declared={"sgx_epc": 4096})
SPEC = PodSpec(PodUid("uid-1"), "default", "pod", DECLARED)


def facts_from(node: Relayed, fetch: Callable[[str], Awaitable[str]]) -> None:
    node.facts.offer("pod", fetch)
    node.core.tell(ApiBack())


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_waits_for_its_pods_spec_within_its_deadline(name: str) -> None:
    node, told = Relayed(), asyncio.Event()
    node.lists = listed(c1=True)
    await node.listing()

    async def fetch(key: str) -> str:
        assert key == "default/pod/uid-1"
        await told.wait()
        node.core.tell(PodSeen(SPEC))
        return ""

    facts_from(node, fetch)
    verdict = asks(node, name)
    told.set()
    assert CALLS[name][1](await verdict) == "sgx_epc 4096"
    assert node.core.asks == {"after-a-fact": 1}


async def test_a_call_that_is_cancelled_before_anything_of_it_ran_leaves_no_open_ask(node: Relayed) -> None:
    async def fetch(key: str) -> str:
        await asyncio.Event().wait()
        return ""

    facts_from(node, fetch)
    verdict = asyncio.ensure_future(asks(node, "CreateContainer"))
    assert node.core.state.asks
    verdict.cancel()
    await turns()
    assert not node.core.state.asks
    assert (node.containers, node.core.asks) == ([], {"abandoned": 1})


STRICT = Settings(
    relay=LIMITS, limits=LimitsSettings(on_error=OnError.REFUSE), pods=PodsSettings(on_error=OnError.REFUSE)
)
APP = "default/pod, container app"
BY_ANNOTATION = f"{APP}, which declares annotation epc-limit.nri.io/container.app '8192'"


LACKING, UNKNOWN = LimitsSettings(unsupported=Unsupported.REFUSE), LimitsSettings(unknown_pod=UnknownPod.REFUSE)
BAD = {"epc-limit.nri.io/container.app": "1Mi"}


@pytest.mark.parametrize(
    ("limits", "notes", "why", "status", "says"),
    [
        (LACKING, None, Refused.NO_CAPACITY, 8, "declares 8192 of sgx_epc"),
        (UNKNOWN, {}, Refused.FOR_NOW, 14, ""),
        (UNKNOWN, BAD, Refused.BAD_VALUE, 3, "annotation epc-limit.nri.io/container.app: '1Mi' is"),
    ],
    ids=["the kernel lacks it", "nobody knows the pod", "an annotation is no amount"],
)
def test_each_refusal_that_settings_ask_for_has_its_status_and_leaves_nothing_of_the_container(
    limits: LimitsSettings, notes: dict[str, str] | None, why: Refused, status: int, says: str
) -> None:
    node = Relayed(Settings(relay=LIMITS, limits=limits), capacity=0 if limits is LACKING else 1 << 20)
    verdict = node.create(create(notes))
    assert isinstance(verdict, Refuse)
    assert verdict.status == STATUSES[why] == status
    assert verdict.text.startswith(f"{APP}: {says}")
    assert f"limits.{'unsupported' if limits is LACKING else 'unknown_pod'} is refuse" in verdict.text
    assert node.containers == []
    assert Relayed(capacity=0 if limits is LACKING else 1 << 20).create(create(notes)) == Pass()


def broken(*_: object) -> None:
    raise RuntimeError("broken")


PLACES = {
    "limits": "nodeward.features.limits.answer.container_promise",
    "pods": "nodeward.features.pods.step._creating",
}


@pytest.mark.parametrize("spec", [False, True], ids=["annotation", "spec"])
@pytest.mark.parametrize("feature", PLACES)
def test_a_feature_that_fails_refuses_with_what_was_declared_and_what_failed(
    monkeypatch: pytest.MonkeyPatch, feature: str, spec: bool
) -> None:
    node = Relayed(STRICT)
    if spec:
        node.core.tell(PodSeen(SPEC))
    monkeypatch.setattr(PLACES[feature], broken)
    verdict = node.create(create())
    who = f"{APP}, which declares sgx_epc 4096" if spec else BY_ANNOTATION
    what = f"Nodeward's feature {feature} failed (RuntimeError: broken) and {feature}.on_error is refuse"
    assert verdict == Refuse(STATUSES[Refused.FAULT], f"{who}: {what}; see nodeward status")


@pytest.mark.parametrize("feature", PLACES)
def test_where_limits_are_observed_no_fault_refuses_a_container(monkeypatch: pytest.MonkeyPatch, feature: str) -> None:
    node = Relayed(replace(STRICT, limits=replace(STRICT.limits, mode=Mode.OBSERVE)))
    monkeypatch.setattr(PLACES[feature], broken)
    assert node.create(create()) == Pass()
    assert node.core.faults == {feature: 1}


RUN = cri.RunPodSandboxRequest(config=sandbox_config(), runtime_handler="kata").SerializeToString()
RAN = cri.RunPodSandboxResponse(pod_sandbox_id="s1").SerializeToString()


def test_a_create_that_fails_leaves_nothing(node: Relayed) -> None:
    call = node.begin("CreateContainer")
    node.decide(call, create())
    assert len(node.containers) == 1
    node.ended(call, create(), ok=False)
    assert node.containers == []


def test_containers_and_sandboxes_end_with_their_calls(node: Relayed) -> None:
    for number in range(3):
        node.create(create(), f"c{number}")
    node.passes("StopContainer", cri.StopContainerRequest(container_id="c0", timeout=30).SerializeToString())
    node.passes("RemoveContainer", cri.RemoveContainerRequest(container_id="c1").SerializeToString())
    node.passes("RemoveContainer", cri.RemoveContainerRequest(container_id="c2").SerializeToString(), ok=False)
    assert node.containers == ["c2"]
    node.passes("StopPodSandbox", cri.StopPodSandboxRequest(pod_sandbox_id="s1").SerializeToString())
    assert (node.containers, node.sandboxes) == ([], [])


def test_a_create_that_nobody_decided_is_known_all_the_same(node: Relayed) -> None:
    """By its request; what it was to have is a goal, and is in its next update."""
    node.passes("CreateContainer", create(), created_as("c1"), decided=False)
    assert node.containers == ["c1"]
    assert updated(node.update()) == "sgx_epc 8192"


def test_an_update_that_nobody_decided_tells_what_its_client_asked_for(node: Relayed) -> None:
    node.create(create())
    node.passes("UpdateContainerResources", update("c1"), decided=False)
    assert node.core.state.pods.containers[ContainerId("c1")].container.cpu.shares == 512


def test_a_container_keeps_its_sandboxs_handler_which_a_create_does_not_name(node: Relayed) -> None:
    node.passes("RunPodSandbox", RUN, RAN)
    node.create(create())
    assert node.core.state.pods.sandboxes[SandboxId("s1")].sandbox.handler == "kata"


@pytest.mark.parametrize("what", ["cut", "no-CRI"])
def test_what_cannot_be_read_is_counted_and_listed_soon(node: Relayed, what: str) -> None:
    node.runtime._due.clear()
    node.ended(node.begin("RunPodSandbox"), b"" if what == "cut" else b"\xff", cut=what == "cut")
    assert (node.sandboxes, node.decider.unread, node.runtime._due.is_set()) == ([], 1, True)


async def test_a_relay_that_connects_has_the_runtime_listed_before_anything_is_decided() -> None:
    node = Relayed(listed=False)
    node.lists = listed(c1=True, c2=False)
    node.runtime.begins(HELLO)
    assert not node.runtime.listed
    await node.listing()
    assert node.runtime.listed
    assert (node.containers, node.sandboxes) == (["c1"], ["s1"])
    assert updated(node.update()) == "sgx_epc 8192"
    node.runtime.ends("it went")
    assert (node.runtime.listed, node.core.state.pods.runtime) == (False, "")


async def test_an_older_runtime_is_listed_by_its_own_version(node: Relayed, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = node._call

    async def older(path: str, request: bytes, within_s: float) -> bytes:
        if ".v1." in path:
            raise CallFailedError(path, UNIMPLEMENTED, "unknown service runtime.v1.RuntimeService")
        return await whole(path, request, within_s)

    monkeypatch.setattr(node.runtime, "_call", older)
    node.lists = listed(c1=True)
    await node.listing()
    assert node.containers == ["c1"]


async def test_a_list_which_cannot_tell_them_leaves_the_pods_cgroup_and_what_a_create_and_an_update_told(
    node: Relayed,
) -> None:
    request = cri.CreateContainerRequest.FromString(create())
    request.sandbox_config.linux.cgroup_parent = "/kubepods/burstable/poduid-1"
    resources = request.config.linux.resources
    resources.cpu_shares, resources.cpu_quota, resources.cpu_period = 2048, 200_000, 100_000
    resources.memory_limit_in_bytes = 64 << 20
    node.create(request.SerializeToString())
    node.update()
    node.lists = listed(c1=True)
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


def test_a_restored_pod_is_known_by_its_own_uid_and_cgroup_beside_the_pod_that_was_checkpointed(node: Relayed) -> None:
    node.passes("RunPodSandbox", RUN, RAN)
    node.create(create())
    asked = cri.RestorePodRequest(checkpoint_path="/checkpoints/1", runtime_handler="runc")
    asked.config.metadata.CopyFrom(cri.PodSandboxMetadata(name="twin", uid="uid-2", namespace="default"))
    asked.config.linux.cgroup_parent = "/kubepods/poduid-2"
    asked.config.annotations["epc-limit.nri.io/container.app"] = "4096"
    resources = asked.container_configs.add(metadata=cri.ContainerMetadata(name="app")).linux.resources
    resources.cpu_shares, resources.memory_limit_in_bytes = 512, 64 << 20
    node.passes("RestorePod", asked.SerializeToString(), restored("c2", sandbox="s2"))
    assert updated(node.update("c2")) == "sgx_epc 4096"
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
def test_a_restore_that_names_nobody_tells_nothing(node: Relayed, answer: bytes, ok: bool, unread: int) -> None:
    node.passes("RestorePod", b"", answer, ok=ok)
    assert (node.containers, node.decider.unread) == ([], unread)
