"""CRI's calls in the words of the model and back: what is asked, what goes on instead, what is refused, what is heard.

The engine behind is the real one, by the relay's own wiring, on the simulation's kernel with `sgx_epc`.
"""

import asyncio
import os
import tracemalloc
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from nodeward.aio.clock import SystemClock
from nodeward.app.process import own_domain
from nodeward.app.relay_limits import OWNER_AGAIN_S, OWNER_GONE, RelayLimits
from nodeward.edges.cri import decider
from nodeward.edges.cri.decider import LIST_LATER_S, LIST_READ_NS, LISTS_NS, MOST_KEPT, LimitsDecider, Soon
from nodeward.model.events import ApiBack
from nodeward.model.relayed import Call, Ended, Interest, Message, Pass, Refuse, Replace, Verdict
from nodeward.model.settings import LimitsSettings, Mode, NriSection, RelaySection, Settings
from nodeward.proto import cri_pb2 as cri
from nodeward.sim.kernel import SimKernel
from nodeward.wire.errors import WireError
from tests.unit.engine.build import ManualClock

LIMIT: Final = {"epc-limit.nri.io/container.app": "8192", "secret.example.com/token": "hidden"}


class Relayed:
    """A relay's decider as calls of one client see it, and the runtime's answers to them."""

    def __init__(
        self, settings: Settings | None = None, capacity: int = 1 << 20, soon: Soon = lambda do, _: do()
    ) -> None:
        self.clock = ManualClock()
        self.kernel = SimKernel({"sgx_epc": capacity} if capacity else {"sev_es": 5})
        self.limits = RelayLimits(settings or Settings(), self.kernel, self.clock, soon)
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
        """A call that is not held, from its beginning to its end."""
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
    """The limit that goes on to the runtime."""
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


def test_calls_of_one_pod_are_asked_about_in_the_order_they_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a first create that waits for its pod's spec, then a second of that pod waits behind it, one of another pod
    does not, and a second whose caller has gone is never asked about."""

    async def tale() -> None:
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

    asyncio.run(tale())


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


# ---- what is heard


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
    """Given a relay that has just begun, when kubelet lists everything, then updates are known from then on; lists are
    read again a minute later and not before."""
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
    """Given a client that asks for no whole list any more, then two minutes after the last one they are overdue."""
    node = Relayed()
    assert node.decider.overdue
    node.decider.asked(*listed(c1=True), 0)
    assert not node.decider.overdue
    node.clock.ns += 2 * LISTS_NS
    assert node.decider.overdue


def test_a_resource_whose_module_comes_later_is_limited_from_then_on() -> None:
    """Given a kernel without the resource, when it is there, then the relay finds it and tells it to the runtime."""
    node = Relayed(capacity=0)
    assert node.create(create()) == Pass()
    node.kernel.set_capacity("sgx_epc", 1 << 20)

    async def looks() -> None:
        looking = asyncio.ensure_future(node.limits.look(node.clock))
        async with asyncio.timeout(30):
            while not node.limits.core.state.limits.capacity.get("sgx_epc"):
                await asyncio.sleep(0.001)
        looking.cancel()

    asyncio.run(looks())
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


def test_what_another_process_drives_is_not_heard_of_until_it_has_ended(tmp_path: Path) -> None:
    """Given another process that drives limits, is restarted, and ends after the kernel's module has come: then it has
    its limits again, calls that begin before its end pass unheard, and those that begin after are decided by what the
    kernel has by then."""
    before, settings = own_domain(str(tmp_path), "limits"), Settings(run_dir=str(tmp_path))
    node = Relayed(capacity=0)
    clock = Passing()
    node.limits = RelayLimits(settings, node.kernel, clock, lambda do, _: do(), drives=False)
    node.decider = node.limits.decider
    paths = [f"/runtime.v1.RuntimeService/{name}" for name in ("CreateContainer", "RunPodSandbox", "ListContainers")]
    assert not any(map(node.decider.holds, paths))
    assert {node.decider.interest(path) for path in paths} == {Interest.NONE}

    async def story() -> None:
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

    asyncio.run(asyncio.wait_for(story(), 60))
    assert created(node.create(create())) == "sgx_epc 8192"


def test_a_relay_that_waits_for_limits_ends_at_once(tmp_path: Path) -> None:
    """And writes nothing to its record, which may be that of the relay which drives them."""
    before, kernel = own_domain(str(tmp_path), "limits"), SimKernel({"sgx_epc": 1})
    settings = Settings(run_dir=str(tmp_path), relay=RelaySection(limits=True, record="/record"))
    limits = RelayLimits(settings, kernel, SystemClock(), lambda do, _: do(), drives=False)

    async def story() -> None:
        running = asyncio.create_task(limits.run("/nonexistent", SystemClock()))
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait((running,))
        assert running.cancelled()
        limits.close()

    asyncio.run(story())
    os.close(before)
    os.close(own_domain(str(tmp_path), "limits", 0.0))
    assert not limits.drives
    with pytest.raises(FileNotFoundError):
        kernel.stat("/record")
