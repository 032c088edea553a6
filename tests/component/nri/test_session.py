"""Given a container runtime and the plugin session on a real socket, when things happen at either end, then ..."""

import asyncio
import functools
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nodeward.contracts import nri_pb2
from nodeward.core.decision import Final
from nodeward.core.events import Creating, Listed, Question, RuntimeConnected, RuntimeLost, SandboxRemoved, Updating
from nodeward.core.workload import ContainerId, Phase
from nodeward.neighbours.nri.session import PLUGIN, NriSettings, NriSettingsError, RuntimeGoneError, run
from nodeward.neighbours.nri.ttrpc import Code, Request
from nodeward.neighbours.nri.ttrpc_unix import CallFailedError
from nodeward_sim.doubles.runtime import TOLERATE, SimContainer, SimPod, SimRuntime
from nodeward_sim.doubles.runtime_plugins import NRI_0_8, NRI_0_11, NRI_0_12, NriGeneration, RuntimeRefusalError
from tests.component.nri.harness import EPC, WITHIN_S, World, beside, joined, plugged, settings_for, tale
from tests.rigs.stories import told_in
from tests.unit.programs.relay.relayed import Relayed

WEB = SimPod("u-1", "web", annotations={"epc-limit.nri.io": "1048576", "other": "CANARY-annotation"})
MAIN = SimContainer("main", args=("/bin/x", "CANARY-arg"), env=("PASSWORD=CANARY-env",))
GENERATIONS = [
    pytest.param(NRI_0_8, id="NRI 0.8"),
    pytest.param(NRI_0_11, id="NRI 0.11"),
    pytest.param(NRI_0_12, id="NRI 0.12"),
]


@asynccontextmanager
async def speaking(tmp_path: Path, generation: NriGeneration) -> AsyncIterator[tuple[World, NriSettings]]:
    async with beside(tmp_path, functools.partial(SimRuntime, settings=settings_for(generation))) as found:
        yield found


@plugged()
async def test_an_update_is_asked_about_with_what_kubelet_asks_for(world: World) -> None:
    """A resize arrives so: the runtime's own record has the new request only afterwards."""
    request = nri_pb2.UpdateContainerRequest()
    request.container.linux.resources.cpu.shares.value = 1024
    request.linux_resources.cpu.shares.value = 2048
    (plugin,) = world.runtime.nri.plugins
    await world.runtime.nri.ask(plugin, "UpdateContainer", request.SerializeToString())
    (question,) = world.asked
    assert isinstance(question, Updating)
    assert question.container.cpu.shares == 2048


@pytest.mark.parametrize("generation", GENERATIONS)
@told_in(speaking, gives=2)
async def test_a_whole_life_is_told_in_the_same_words_by_every_nri(
    world: World, settings: NriSettings, generation: NriGeneration
) -> None:
    world.answer = lambda question: EPC
    async with joined(world, settings):
        await world.plugin()
        pod = await world.runtime.run_pod(WEB)
        container = await world.runtime.create_container(pod, MAIN)
        await world.runtime.start(container)
        await world.runtime.update_container(container)
        assert world.runtime.unified(container) == {"misc.max": "sgx_epc 1048576"}
        await world.runtime.stop(container)
        await world.runtime.remove_container(container)
        await world.runtime.stop_pod(pod)
        await world.runtime.remove_pod(pod)
        calls = world.runtime.nri.plugins[0].calls
        assert ("StateChange" in calls) is (not generation.dedicated)
    assert world.kinds() == [
        *("RuntimeConnected", "Listed", "SandboxStarted", "Created", "Started", "Updated", "Stopped", "Removed"),
        *("SandboxStopped", "SandboxRemoved"),
    ]
    assert [type(question) for question in world.asked] == [Creating, Updating]
    assert world.within_ns == [1_000_000_000, 1_000_000_000]
    assert "CANARY" not in repr(world.told) + repr(world.asked)
    connected = world.told[0]
    assert isinstance(connected, RuntimeConnected)
    assert (connected.version, connected.nri_version) == (generation.runtime_version, generation.said)


@plugged()
async def test_a_container_to_be_made_is_asked_about_with_its_pod(world: World) -> None:
    pod = await world.runtime.run_pod(WEB)
    await world.runtime.create_container(pod, SimContainer("main", unified={"misc.max": "a 1", "io.x": "y"}))
    (question,) = world.asked
    assert isinstance(question, Creating)
    assert question.sandbox.annotations == {"epc-limit.nri.io": "1048576"}
    assert question.sandbox.pod_uid == "u-1"
    assert question.sandbox.cgroup_parent == "/kubepods/podu-1"
    assert question.container.phase is Phase.CREATING
    assert question.container.cgroups_path == f"/kubepods/podu-1/{question.container.id}"
    assert question.container.recorded == {"a": 1}


@tale(runtime=functools.partial(SimRuntime, settings=settings_for(chunk=3)))
async def test_what_runs_already_is_listed_from_all_chunks(world: World, settings: NriSettings) -> None:
    for number in range(5):
        pod = await world.runtime.run_pod(SimPod(f"u-{number}", f"pod-{number}"))
        for name in ("a", "b"):
            await world.runtime.create_container(pod, SimContainer(name))
    async with joined(world, settings):
        await world.plugin()
        assert world.runtime.nri.plugins[0].calls == ["Configure", *["Synchronize"] * 4]
    listed = world.told[1]
    assert isinstance(listed, Listed)
    assert (len(listed.sandboxes), len(listed.containers)) == (5, 10)
    assert listed.as_of == 1000  # as of the registration, before RuntimeConnected was told


@plugged(runtime=functools.partial(SimRuntime, settings=settings_for(configure_early=True)))
async def test_configure_may_come_before_the_reply_to_the_registration(world: World) -> None:
    assert world.kinds() == ["RuntimeConnected", "Listed"]


@plugged(runtime=functools.partial(SimRuntime, settings=settings_for(request_timeout_s=6.0)))
async def test_an_answer_that_never_comes_is_no_change_within_the_runtimes_patience(world: World) -> None:
    asked: list[asyncio.Future[Final]] = []

    def answer(question: Question) -> asyncio.Future[Final]:
        asked.append(asyncio.get_running_loop().create_future())
        return asked[-1]

    world.answer = answer
    container = await world.runtime.create_container(await world.runtime.run_pod(WEB), MAIN)
    assert world.runtime.unified(container) == {}
    assert len(world.runtime.nri.plugins) == 1
    assert asked[0].cancelled()  # which abandons the ask
    assert world.within_ns == [1_000_000_000], "at most a second, however patient the runtime is"


@plugged(runtime=functools.partial(SimRuntime, settings=settings_for(request_timeout_s=0.6)))
async def test_what_was_decided_is_answered_however_late_its_record_is(world: World) -> None:
    """Given an engine that counts a limit as given, when its record is never written, the runtime is told the limit
    all the same: else the program runs without what the engine believes of it."""
    core = Relayed().core
    core.settles = asyncio.get_running_loop().create_future
    world.answer = lambda question: core.ask(question, world.within_ns[-1])
    container = await world.runtime.create_container(await world.runtime.run_pod(WEB), MAIN)
    assert world.runtime.unified(container) == {"misc.max": "sgx_epc 1048576"}


@plugged(runtime=functools.partial(SimRuntime, settings=settings_for(request_timeout_s=1.6)))
async def test_an_answer_has_half_of_the_runtimes_patience(world: World) -> None:
    await world.runtime.create_container(await world.runtime.run_pod(WEB), MAIN)
    assert world.within_ns == [800_000_000]


@plugged()
async def test_an_answer_nobody_waits_for_any_more_is_abandoned(world: World) -> None:
    asked: list[asyncio.Future[Final]] = []
    begun = asyncio.Event()

    def answer(question: Question) -> asyncio.Future[Final]:
        asked.append(asyncio.get_running_loop().create_future())
        begun.set()
        return asked[-1]

    world.answer = answer
    pod = await world.runtime.run_pod(WEB)
    creating = asyncio.create_task(world.runtime.create_container(pod, MAIN))
    await begun.wait()
    world.runtime.nri.plugins[0].peer.close("the runtime crashes")
    await creating  # the request goes on without the plugin
    await world.until(RuntimeLost)
    assert asked[0].cancelled()


def at_once(question: Question) -> Final:
    raise ZeroDivisionError


async def later(question: Question) -> Final:
    raise ZeroDivisionError


@pytest.mark.parametrize("broken", [at_once, later])
@plugged()
async def test_a_fault_of_ours_changes_nothing_and_stops_nobody(
    world: World, broken: Callable[[Question], Final | Awaitable[Final]]
) -> None:
    world.answer = broken
    container = await world.runtime.create_container(await world.runtime.run_pod(WEB), MAIN)
    assert world.runtime.unified(container) == {}
    assert len(world.runtime.nri.plugins) == 1


@pytest.mark.parametrize(
    ("service", "method"),
    [
        pytest.param(PLUGIN, "Levitate", id="a method that NRI may get one day"),
        pytest.param("nri.pkg.api.v9.Plugin", "CreateContainer", id="a service of another version"),
    ],
)
@plugged()
async def test_what_is_not_served_is_said_to_be_unimplemented(world: World, service: str, method: str) -> None:
    plugin = world.runtime.nri.plugins[0]
    with pytest.raises(CallFailedError) as failed:
        await plugin.peer.call(Request(service, method), WITHIN_S)
    assert failed.value.status.code == Code.UNIMPLEMENTED
    await world.runtime.run_pod(WEB)  # and the connection stays
    assert len(world.runtime.nri.plugins) == 1
    assert world.asked == []


@plugged()
async def test_a_pod_sandbox_starts_even_if_we_break(world: World) -> None:
    world.broken = True
    await world.runtime.run_pod(WEB)
    assert len(world.runtime.nri.plugins) == 1


@tale()
async def test_an_absent_runtime_is_tried_less_and_less_often_and_then_found(
    world: World, settings: NriSettings
) -> None:
    await world.runtime.close()
    async with joined(world, settings):
        for _ in range(4):
            await world.clock.wake()
        await world.clock.until_asleep()
        await world.runtime.serve()
        await world.clock.wake()
        await world.plugin()
    assert world.clock.waits == [0.25, 0.5, 1.0, 2.0, 4.0]  # the lower halves: the random source says 0
    assert world.kinds() == ["RuntimeConnected", "Listed"]


@tale(runtime=functools.partial(SimRuntime, required_plugins=("nodeward",)))
async def test_a_required_plugin_that_is_away_stops_creation_unless_the_pod_tolerates_it(
    world: World, settings: NriSettings
) -> None:
    strict = await world.runtime.run_pod(WEB)
    lenient = await world.runtime.run_pod(SimPod("u-2", "db", annotations={TOLERATE: "true"}))
    with pytest.raises(RuntimeRefusalError, match="required plugin"):
        await world.runtime.create_container(strict, MAIN)
    await world.runtime.create_container(lenient, MAIN)
    async with joined(world, settings):
        await world.plugin()
        await world.runtime.create_container(strict, MAIN)


@tale()
async def test_a_connection_that_the_runtime_gave_is_used_and_its_end_is_the_end(
    world: World, settings: NriSettings
) -> None:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(settings.socket_path)
    async with joined(world, NriSettings(fd=sock.detach())) as task:
        await world.plugin()
        pod = await world.runtime.run_pod(WEB)
        await world.runtime.remove_pod(pod)
        await world.until(SandboxRemoved)
        await world.runtime.close()
        with pytest.raises(RuntimeGoneError, match="closed the connection it gave"):
            await task


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(NriSettings(plugin_index="1"), id="one digit"),
        pytest.param(NriSettings(plugin_index="a1"), id="a letter"),
        pytest.param(NriSettings(plugin_index="१०"), id="digits of another script"),
        pytest.param(NriSettings(plugin_name="my plugin"), id="a space in the name"),
        pytest.param(NriSettings(plugin_name=""), id="no name"),
    ],
)
@tale()
async def test_settings_no_runtime_would_take_are_refused_before_connecting(
    world: World, there: NriSettings, settings: NriSettings
) -> None:
    with pytest.raises(NriSettingsError):
        await run(settings, world.ask, world.tell, world.sequence, world.clock, lambda: 0.0)


class Writing:
    def __init__(self, needed: bool = True, fault: Exception | None = None, why: str = "") -> None:
        self.is_needed, self.fault, self.why = needed, fault, why
        self.asked: list[ContainerId] = []
        self.begun, self.done = asyncio.Event(), asyncio.Event()

    def needed(self) -> bool:
        return self.is_needed

    async def written(self, container_id: ContainerId, within_s: float) -> str:
        self.asked.append(container_id)
        self.begun.set()
        if self.fault is not None:
            raise self.fault
        await self.done.wait()
        return self.why


@pytest.mark.parametrize("generation", GENERATIONS)
@told_in(speaking, gives=2)
async def test_a_program_waits_for_limits_that_its_create_could_not_carry(world: World, settings: NriSettings) -> None:
    world.at_start = writing = Writing()
    async with joined(world, settings):
        await world.plugin()
        container = await world.runtime.create_container(await world.runtime.run_pod(WEB), MAIN)
        starting = asyncio.create_task(world.runtime.start(container))
        async with asyncio.timeout(WITHIN_S):
            await writing.begun.wait()
        assert (writing.asked, starting.done()) == ([container], False)
        writing.done.set()
        await starting
    assert world.kinds()[-2:] == ["Started", "Started"]
    assert writing.asked == [container]


@tale()
async def test_starts_are_told_from_the_first_connection_on_and_wait_once_programs_have_to(
    world: World, settings: NriSettings
) -> None:
    world.at_start = writing = Writing(needed=False)
    writing.done.set()
    async with joined(world, settings):
        await world.plugin()
        await world.runtime.start(await world.runtime.create_container(await world.runtime.run_pod(WEB), MAIN))
        assert writing.asked == [], "where nothing waits the start is answered at once"
        writing.is_needed = True
        later = await world.runtime.create_container(await world.runtime.run_pod(WEB), MAIN)
        await world.runtime.start(later)
        assert writing.asked == [later]
        assert len(world.runtime.nri.plugins) == 1
        assert world.kinds().count("RuntimeLost") == 0


@pytest.mark.parametrize("fault", [None, ZeroDivisionError()], ids=["never", "a fault"])
@tale(runtime=functools.partial(SimRuntime, settings=settings_for(request_timeout_s=0.4)))
async def test_limits_that_are_not_written_in_time_stop_no_start_and_the_plugin_stays(
    world: World, settings: NriSettings, fault: Exception | None
) -> None:
    world.at_start = writing = Writing(fault=fault)
    async with joined(world, settings):
        await world.plugin()
        await world.runtime.start(await world.runtime.create_container(await world.runtime.run_pod(WEB), MAIN))
        assert len(writing.asked) == 1
        assert len(world.runtime.nri.plugins) == 1


@tale()
async def test_a_program_that_must_not_begin_is_refused(world: World, settings: NriSettings) -> None:
    world.at_start = writing = Writing(why="others are on its CPUs")
    writing.done.set()
    async with joined(world, settings):
        await world.plugin()
        container = await world.runtime.create_container(await world.runtime.run_pod(WEB), MAIN)
        with pytest.raises(RuntimeRefusalError, match="others are on its CPUs"):
            await world.runtime.start(container)


@tale()
async def test_a_label_that_the_settings_name_later_is_asked_of_all_pods(world: World, settings: NriSettings) -> None:
    named = list[str]()
    world.labels = lambda: named[:]
    async with joined(world, settings):
        await world.plugin()
        named.append("pod/labels/app")
        await world.clock.wake()
        await world.until(RuntimeLost)
        await world.clock.wake()
        await world.until(Listed, 2)
    assert "other labels" in next(event.why for event in world.told if isinstance(event, RuntimeLost))
