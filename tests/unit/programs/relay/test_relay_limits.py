"""CRI's calls in the words of the model and back: what is asked, waited for, sent on instead, or refused and how."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.contracts import cri_pb2 as cri
from nodeward.core.annotations import OWN_LIMITS
from nodeward.core.errors import WireError
from nodeward.core.events import ApiBack, PodSeen
from nodeward.core.modes import Mode, OnError
from nodeward.core.refusal import Refused
from nodeward.core.workload import ContainerSpec, PodSpec, PodUid
from nodeward.features.limits.settings import LimitsSettings, UnknownPod, Unsupported
from nodeward.features.pods.settings import PodsSettings
from nodeward.features.settings import NriSection, RelaySection, Settings
from nodeward.host.clock import SystemClock
from nodeward.host.process import own_feature
from nodeward.neighbours.cri.calls import Call, Interest, Pass, Refuse, Replace, Verdict
from nodeward.neighbours.cri.decider import STATUSES
from nodeward.programs.node.relay_door import SOCKET
from nodeward.programs.relay.limits import OWNER_AGAIN_S, OWNER_GONE, RelayLimits
from nodeward.programs.relay.run import Chain, ImagesElsewhere
from nodeward_sim.doubles.kernel import SimKernel
from tests.unit.features.build import ManualClock
from tests.unit.programs.relay.relayed import Relayed, create, created, listed, sandbox_config, update, updated

# ---- held calls


@pytest.mark.parametrize("version", ["v1", "v1alpha2"])
def test_a_pods_annotation_becomes_the_containers_limit_from_birth(version: str) -> None:
    assert created(Relayed().create(create(), version=version)) == "sgx_epc 8192"


def test_an_update_carries_the_whole_limit_again_beside_the_clients_values() -> None:
    node = Relayed()
    node.create(create())
    verdict = node.update()
    assert updated(verdict) == "sgx_epc 8192"
    assert isinstance(verdict, Replace)
    assert cri.UpdateContainerResourcesRequest.FromString(verdict.message).linux.cpu_shares == 512


def test_what_nobody_limits_passes_as_it_came() -> None:
    node = Relayed()
    assert node.create(create({}, "other"), "c2") == Pass()
    assert node.update("c2") == Pass()


def test_an_update_of_a_container_that_nobody_told_of_passes_and_is_counted() -> None:
    node = Relayed()
    assert node.update("stranger") == Pass()
    assert node.decider.unknown == 1


def test_observe_changes_nothing() -> None:
    assert Relayed(Settings(limits=LimitsSettings(mode=Mode.OBSERVE))).create(create()) == Pass()


def test_no_other_call_is_held() -> None:
    node = Relayed()
    held = [name for name in ("CreateContainer", "StartContainer", "ListContainers") if node.begin(name).held]
    assert held == ["CreateContainer"]


def test_a_kernel_without_the_resource_is_never_told_of_it() -> None:
    assert Relayed(capacity=0).create(create()) == Pass()


def test_bytes_that_are_no_request_are_not_decided_and_pass_by_on_error() -> None:
    node = Relayed()
    with pytest.raises(WireError):
        node.decide(node.begin("CreateContainer"), b"\xff\xff")
    call = node.begin("CreateContainer")
    assert node.decider.undecided(call, create(), "odd", ending=False) == Pass()


async def test_calls_of_one_pod_are_asked_about_in_the_order_they_came(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Relayed()
    core = node.limits.core
    told = asyncio.Event()

    async def fetch(fact: str, key: str) -> str:
        await told.wait()
        return "nobody knows"

    monkeypatch.setattr(node.limits.facts, "fetch", fetch)
    core.tell(ApiBack())
    first, gone, second = (node.begin("CreateContainer") for _ in range(3))
    waits = [asyncio.ensure_future(_awaited(node, call, create())) for call in (first, gone, second)]
    for _ in range(5):
        await asyncio.sleep(0)
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


async def _awaited(node: Relayed, call: Call, request: bytes) -> Verdict:
    found = node.decider.decide(call, request, 1_000_000_000)
    assert not isinstance(found, Pass | Replace | Refuse)
    return await found


def test_neither_environment_nor_other_annotations_enter_the_state() -> None:
    node = Relayed()
    node.create(create())
    assert "hidden" not in repr(node.limits.core.state)


def test_a_client_that_describes_no_pod_is_known_by_its_sandbox() -> None:
    node = Relayed()
    ran = cri.RunPodSandboxRequest(config=sandbox_config()).SerializeToString()
    node.passes("RunPodSandbox", ran, cri.RunPodSandboxResponse(pod_sandbox_id="s1").SerializeToString())
    bare = cri.CreateContainerRequest(pod_sandbox_id="s1")
    bare.config.metadata.name = "app"
    assert created(node.create(bare.SerializeToString())) == "sgx_epc 8192"


def test_an_update_that_follows_its_create_at_once_is_decided() -> None:
    node = Relayed(soon=lambda do, after_s: None)
    node.create(create())
    assert updated(node.update()) == "sgx_epc 8192"


# ---- a module that comes late, and another process


async def test_a_resource_whose_module_comes_later_is_limited_from_then_on() -> None:
    node = Relayed(capacity=0)
    assert node.create(create()) == Pass()
    node.kernel.set_capacity("sgx_epc", 1 << 20)
    looking = asyncio.ensure_future(node.limits.look(node.clock))
    async with asyncio.timeout(30):
        while not node.limits.core.state.limits.capacity.get("sgx_epc"):
            await asyncio.sleep(0.001)
    looking.cancel()
    assert created(node.create(create(), "c2")) == "sgx_epc 8192"


@pytest.mark.parametrize("wanted", [True, False])
def test_lines_are_joined_from_when_it_is_known_that_they_may_be(wanted: bool) -> None:
    """Given a host on which no OCI runtime is seen, so that the operator's word holds; and nobody looks without it."""
    both = LimitsSettings(resources={"sgx.intel.com/epc": "sgx_epc", "example.com/keys": "sev_es"})
    node = Relayed(replace(Settings(), limits=both, nri=NriSection(enabled=False, multi_line=wanted)))
    node.kernel.set_capacity("sev_es", 5)
    two = {"nodeward.io/limits": '{"app":{"sgx_epc":"8192","sev_es":"2"}}'}

    async def looks() -> None:
        looking = asyncio.ensure_future(node.limits.look(node.clock))
        async with asyncio.timeout(30):
            while not node.limits.core.state.limits.capacity.get("sev_es"):
                await asyncio.sleep(0.001)
        looking.cancel()

    asyncio.run(looks())
    assert created(node.create(create(two))) == "sgx_epc 8192"
    asyncio.run(node.limits.join_lines())
    assert created(node.create(create(two), "c2")) == ("sgx_epc 8192\nsev_es 2" if wanted else "sgx_epc 8192")


class Passing(ManualClock):
    """A clock by which time passes when somebody sleeps, and others have their turn."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
        await super().sleep(seconds)


async def test_what_another_process_drives_is_not_heard_of_until_it_has_ended(tmp_path: Path) -> None:
    before = own_feature(str(tmp_path), "limits")
    settings = Settings(run_dir=str(tmp_path), relay=RelaySection(limits=True))
    node = Relayed(capacity=0)
    clock = Passing()
    node.limits = RelayLimits(settings, node.kernel, clock, lambda do, _: do(), drives=False)
    node.decider = node.limits.decider
    paths = [f"/runtime.v1.RuntimeService/{name}" for name in ("CreateContainer", "RunPodSandbox", "ListContainers")]
    assert not any(map(node.decider.holds, paths))
    assert {node.decider.interest(path) for path in paths} == {Interest.NONE}
    running = asyncio.create_task(node.limits.run("/nonexistent", clock))

    async def looks(count: int) -> None:
        end_ns = clock.ns + int(count * OWNER_AGAIN_S * 1e9)
        while clock.ns < end_ns:
            await asyncio.sleep(0)

    await looks(2 * OWNER_GONE)
    os.close(before)
    await looks(OWNER_GONE // 2)
    again = own_feature(str(tmp_path), "limits", 0.0)
    await looks(2 * OWNER_GONE)
    assert not node.limits.drives
    node.kernel.set_capacity("sgx_epc", 1 << 20)
    os.close(again)
    while not node.limits.drives:
        await asyncio.sleep(0)
    running.cancel()
    assert created(node.create(create())) == "sgx_epc 8192"


async def test_a_relay_that_waits_for_limits_ends_at_once(tmp_path: Path) -> None:
    """And writes nothing to its record, which may be that of the relay which drives them."""
    before, kernel = own_feature(str(tmp_path), "limits"), SimKernel({"sgx_epc": 1})
    settings = Settings(run_dir=str(tmp_path), relay=RelaySection(limits=True, record="/record"))
    limits = RelayLimits(settings, kernel, SystemClock(), lambda do, _: do(), drives=False)
    running = asyncio.create_task(limits.run("/nonexistent", SystemClock()))
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait((running,))
    assert running.cancelled()
    limits.close()
    os.close(before)
    os.close(own_feature(str(tmp_path), "limits", 0.0))
    assert not limits.drives
    with pytest.raises(FileNotFoundError):
        kernel.stat("/record")


SPEC = PodSpec(PodUid("uid-1"), "default", "pod", (ContainerSpec("app", declared={"sgx_epc": 4096}),))
SECOND_NS = 1_000_000_000
CALLS = {"CreateContainer": (create(), created), "UpdateContainerResources": (update("c1"), updated)}


def asks(node: Relayed, name: str) -> Awaitable[Verdict]:
    found = node.decider.decide(node.begin(name), CALLS[name][0], SECOND_NS)
    assert isinstance(found, Awaitable)
    return found


def facts_from(
    node: Relayed, monkeypatch: pytest.MonkeyPatch, fetch: Callable[[str, str], Awaitable[str]]
) -> Callable[[], bool]:
    monkeypatch.setattr(node.limits.facts, "fetch", fetch)
    node.limits.core.tell(ApiBack())
    return lambda: bool(node.limits.core.state.asks)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_waits_for_its_pods_spec_within_its_deadline(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    node, told = Relayed(), asyncio.Event()
    node.decider.asked(*listed(c1=True), 0)

    async def fetch(fact: str, key: str) -> str:
        assert key == "default/pod/uid-1"
        await told.wait()
        node.limits.core.tell(PodSeen(SPEC))
        return ""

    facts_from(node, monkeypatch, fetch)
    verdict = asks(node, name)
    told.set()
    assert CALLS[name][1](await verdict) == "sgx_epc 4096"
    assert node.limits.core.asks == {"after-a-fact": 1}


async def test_before_it_is_known_whether_a_daemon_is_there_a_call_waits_for_that(tmp_path: Path) -> None:
    node, goes = Relayed(), asyncio.Event()
    node.limits = RelayLimits(Settings(run_dir=str(tmp_path)), node.kernel, SystemClock(), lambda do, _: do())
    node.decider = node.limits.decider

    async def hesitates(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await goes.wait()
        writer.close()

    async with await asyncio.start_unix_server(hesitates, tmp_path / SOCKET):
        keeps = asyncio.ensure_future(node.limits.facts.keep())
        await turns()
        verdict = asks(node, "CreateContainer")
        goes.set()
        assert created(await verdict) == "sgx_epc 8192"
        assert node.limits.facts.source == "annotations"
        keeps.cancel()


async def test_a_call_that_is_cancelled_before_anything_of_it_ran_leaves_no_open_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Relayed()

    async def fetch(fact: str, key: str) -> str:
        await asyncio.Event().wait()
        return ""

    waits = facts_from(node, monkeypatch, fetch)
    verdict = asyncio.ensure_future(asks(node, "CreateContainer"))
    assert waits()
    verdict.cancel()
    await turns()
    assert not waits()
    assert (node.containers, node.limits.core.asks) == ([], {"abandoned": 1})


STRICT = Settings(limits=LimitsSettings(on_error=OnError.REFUSE), pods=PodsSettings(on_error=OnError.REFUSE))
APP = "default/pod, container app"
BY_ANNOTATION = f"{APP}, which declares annotation epc-limit.nri.io/container.app '8192'"


def knows_spec(node: Relayed) -> None:
    declared = (ContainerSpec("first", declared={"sgx_epc": 1}), ContainerSpec("app", declared={"sgx_epc": 4096}))
    node.limits.core.tell(PodSeen(PodSpec(PodUid("uid-1"), "default", "pod", declared)))


def test_a_resource_that_the_kernel_lacks_is_refused_as_exhausted_where_settings_say_so() -> None:
    """Nothing of the container is kept."""
    node = Relayed(Settings(limits=LimitsSettings(unsupported=Unsupported.REFUSE)), capacity=0)
    verdict = node.create(create())
    assert isinstance(verdict, Refuse)
    assert verdict.status == STATUSES[Refused.NO_CAPACITY] == 8
    assert verdict.text.startswith(f"{APP}: declares 8192 of sgx_epc")
    assert "limits.unsupported is refuse" in verdict.text
    assert node.containers == []


def test_a_pod_of_which_nothing_is_known_is_refused_for_now_where_settings_say_so() -> None:
    node = Relayed(Settings(limits=LimitsSettings(unknown_pod=UnknownPod.REFUSE)))
    verdict = node.create(create({}))
    assert isinstance(verdict, Refuse)
    assert verdict.status == STATUSES[Refused.FOR_NOW] == 14
    assert verdict.text.startswith(f"{APP}: ")
    assert "limits.unknown_pod is refuse" in verdict.text


@pytest.mark.parametrize("value", ["1Mi", "-5", "18446744073709551616", "", "8192.0"])
def test_an_annotation_that_is_no_amount_is_a_bad_value_where_unknown_pods_are_refused(value: str) -> None:
    """Without that setting the annotation says nothing."""
    noted = {"epc-limit.nri.io/container.app": value}
    verdict = Relayed(Settings(limits=LimitsSettings(unknown_pod=UnknownPod.REFUSE))).create(create(noted))
    assert isinstance(verdict, Refuse)
    assert verdict.status == STATUSES[Refused.BAD_VALUE] == 3
    assert verdict.text.startswith(f"{APP}: annotation epc-limit.nri.io/container.app: {value!r} is")
    assert "limits.unknown_pod is refuse" in verdict.text
    assert Relayed().create(create(noted)) == Pass()


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ('{"app": 8192', "is no JSON (JSONDecodeError): '{\"app\": 8192'; "),
        ("[8192]", "is no JSON object of containers: '[8192]'; "),
        ('{"app": 8192}', "'app' has no object of resources: '{\"app\": 8192}'; "),
        ('{"app": {"sgx epc": "1"}}', "'app', 'sgx epc': is no misc resource name; "),
    ],
)
def test_an_annotation_of_ours_that_is_no_table_is_shown_where_it_is_refused(value: str, fault: str) -> None:
    node = Relayed(Settings(limits=LimitsSettings(unknown_pod=UnknownPod.REFUSE)))
    verdict = node.create(create({OWN_LIMITS: value}))
    assert isinstance(verdict, Refuse)
    assert verdict.status == STATUSES[Refused.BAD_VALUE]
    assert verdict.text.startswith(f"{APP}: annotation {OWN_LIMITS}: {fault}")


def test_what_could_not_be_decided_is_refused_with_what_was_declared_and_what_failed() -> None:
    node = Relayed(STRICT)
    call = node.begin("CreateContainer")
    said = "Nodeward's relay could not decide this request (odd), and limits.on_error is refuse"
    for message, who in (
        (create(), BY_ANNOTATION),
        (create({}), f"{APP}, which declares nothing"),
        (create({OWN_LIMITS: "x" * 200}), f"{APP}, which declares annotation {OWN_LIMITS} {'x' * 128!r}"),
        (b"\xff", "CreateContainer"),
        (None, "CreateContainer"),
    ):
        verdict = node.decider.undecided(call, message, "odd", ending=False)
        assert verdict == Refuse(STATUSES[Refused.FAULT], f"{who}: {said}")
    knows_spec(node)
    verdict = node.decider.undecided(call, create(), "odd", ending=False)
    assert verdict == Refuse(STATUSES[Refused.FAULT], f"{APP}, which declares sgx_epc 4096: {said}")


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
        knows_spec(node)
    monkeypatch.setattr(PLACES[feature], broken)
    verdict = node.create(create())
    who = f"{APP}, which declares sgx_epc 4096" if spec else BY_ANNOTATION
    what = f"Nodeward's feature {feature} failed (RuntimeError: broken) and {feature}.on_error is refuse"
    assert verdict == Refuse(STATUSES[Refused.FAULT], f"{who}: {what}; see nodeward status")


@pytest.mark.parametrize("feature", PLACES)
def test_where_limits_are_only_observed_no_fault_refuses_a_container(
    monkeypatch: pytest.MonkeyPatch, feature: str
) -> None:
    node = Relayed(replace(STRICT, limits=replace(STRICT.limits, mode=Mode.OBSERVE)))
    assert node.decider.undecided(node.begin("CreateContainer"), create(), "odd", ending=False) == Pass()
    monkeypatch.setattr(PLACES[feature], broken)
    assert node.create(create()) == Pass()
    assert node.limits.core.faults == {feature: 1}


def test_a_relay_that_ends_refuses_for_now_whatever_on_error_says() -> None:
    node = Relayed()
    node.create(create())
    call = node.begin("UpdateContainerResources")
    for message, who in ((update("c1"), BY_ANNOTATION), (update("c9"), "container c9")):
        verdict = node.decider.undecided(call, message, "the relay ends", ending=True)
        assert isinstance(verdict, Refuse)
        assert verdict.status == STATUSES[Refused.FOR_NOW]
        assert verdict.text.startswith(f"{who}: Nodeward's relay ends")


def test_image_calls_are_answered_with_their_own_place_whatever_limits_say() -> None:
    both = Chain((ImagesElsewhere("/run/images.sock"), Relayed(STRICT).decider), lambda: 0)
    call = Call(1, 1, "/runtime.v1.ImageService/PullImage", 0, held=True)
    verdict = both.undecided(call, None, "the request is larger than what can be held", ending=False)
    assert isinstance(verdict, Refuse)
    assert (verdict.status, "unix:///run/images.sock" in verdict.text) == (12, True)
