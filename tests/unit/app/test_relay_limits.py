"""CRI's calls in the words of the model and back: what is asked, what goes on instead and what is refused; and how the
relay comes to that where a kernel's module comes late, or another process drives limits.

What is heard of other calls: test_relay_heard.py.
"""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.aio.clock import SystemClock
from nodeward.app.process import own_domain
from nodeward.app.relay.limits import OWNER_AGAIN_S, OWNER_GONE, RelayLimits
from nodeward.doubles.kernel import SimKernel
from nodeward.model.events import ApiBack
from nodeward.model.relayed import Call, Interest, Pass, Refuse, Replace, Verdict
from nodeward.model.settings import LimitsSettings, Mode, NriSection, RelaySection, Settings
from nodeward.proto import cri_pb2 as cri
from nodeward.wire.errors import WireError
from tests.unit.app.relayed import Relayed, create, created, sandbox_config, update, updated
from tests.unit.engine.build import ManualClock

# ---- held calls


@pytest.mark.parametrize("version", ["v1", "v1alpha2"])
def test_a_pods_annotation_becomes_the_containers_limit_from_birth(version: str) -> None:
    assert created(Relayed().create(create(), version=version)) == "sgx_epc 8192"


def test_an_update_carries_the_whole_limit_again_beside_the_clients_values() -> None:
    """Given a container that was created here, when its CPU is changed, then the runtime hears of both."""
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
    """Given a first create that waits for its pod's spec, then a second of that pod waits behind it, one of another pod
    does not, and a second whose caller has gone is never asked about."""
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
    """Given a loop that has not had its next turn, as when both come in one of its rounds, then the container is
    known all the same."""
    node = Relayed(soon=lambda do, after_s: None)
    node.create(create())
    assert updated(node.update()) == "sgx_epc 8192"


# ---- a module that comes late, and another process


async def test_a_resource_whose_module_comes_later_is_limited_from_then_on() -> None:
    """Given a kernel without the resource, when it is there, then the relay finds it and tells it to the runtime."""
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
    """Given another process that drives limits, is restarted, and ends after the kernel's module has come: then it has
    its limits again, calls that begin before its end pass unheard, and those that begin after are decided by what the
    kernel has by then."""
    before = own_domain(str(tmp_path), "limits")
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
    again = own_domain(str(tmp_path), "limits", 0.0)
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
    before, kernel = own_domain(str(tmp_path), "limits"), SimKernel({"sgx_epc": 1})
    settings = Settings(run_dir=str(tmp_path), relay=RelaySection(limits=True, record="/record"))
    limits = RelayLimits(settings, kernel, SystemClock(), lambda do, _: do(), drives=False)
    running = asyncio.create_task(limits.run("/nonexistent", SystemClock()))
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait((running,))
    assert running.cancelled()
    limits.close()
    os.close(before)
    os.close(own_domain(str(tmp_path), "limits", 0.0))
    assert not limits.drives
    with pytest.raises(FileNotFoundError):
        kernel.stat("/record")
