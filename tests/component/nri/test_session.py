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
from nodeward.core.events import Listed, Question, RuntimeLost, SandboxRemoved, Updating
from nodeward.core.workload import ContainerId
from nodeward.neighbours.nri.session import PLUGIN, NriSettings, NriSettingsError, RuntimeGoneError, run
from nodeward.neighbours.nri.ttrpc import Code, Request
from nodeward.neighbours.nri.ttrpc_unix import CallFailedError
from nodeward_sim.doubles.runtime import SimContainer, SimPod, SimRuntime
from nodeward_sim.doubles.runtime_plugins import (
    NRI_0_8,
    NRI_0_11,
    NRI_0_12,
    AdaptationSettings,
    NriGeneration,
    RuntimeRefusalError,
)
from tests.component.nri.harness import WITHIN_S, World, beside, joined, plugged, registered, tale
from tests.rigs.stories import told_in
from tests.unit.programs.relay.relayed import Relayed

WEB = SimPod("u-1", "web", annotations={"epc-limit.nri.io": "1048576"})
MAIN = SimContainer("main")


@asynccontextmanager
async def speaking(tmp_path: Path, generation: NriGeneration) -> AsyncIterator[tuple[World, NriSettings]]:
    async with beside(tmp_path, functools.partial(SimRuntime, settings=AdaptationSettings(generation))) as found:
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


@plugged(runtime=functools.partial(SimRuntime, settings=AdaptationSettings(configure_early=True)))
async def test_configure_may_come_before_the_reply_to_the_registration(world: World) -> None:
    assert world.kinds() == ["RuntimeConnected", "Listed"]
    assert [event.as_of for event in world.told if isinstance(event, Listed)] == [1000], "as of the registration"


@pytest.mark.parametrize(("patience_s", "within_s"), [(1.6, 0.8), (6.0, 1.0)])
async def test_an_answer_has_half_of_the_runtimes_patience_and_a_second_at_most(
    tmp_path: Path, patience_s: float, within_s: float
) -> None:
    never: asyncio.Future[Final] = asyncio.get_running_loop().create_future()
    runtime = functools.partial(SimRuntime, settings=AdaptationSettings(request_timeout_s=patience_s))
    async with registered(tmp_path, runtime) as world:
        world.answer = lambda question: never
        await world.runtime.create_container(await world.runtime.run_pod(WEB), MAIN)
        assert len(world.runtime.nri.plugins) == 1
    assert (world.within_ns, never.cancelled()) == ([within_s * 10**9], True)


@plugged(runtime=functools.partial(SimRuntime, settings=AdaptationSettings(request_timeout_s=0.6)))
async def test_what_was_decided_is_answered_however_late_its_record_is(world: World) -> None:
    """Given an engine that counts a limit as given, when its record is never written, the runtime is told the limit
    all the same: else the program runs without what the engine believes of it."""
    core = Relayed().core
    core.settles = asyncio.get_running_loop().create_future
    world.answer = lambda question: core.ask(question, world.within_ns[-1])
    container = await world.runtime.create_container(await world.runtime.run_pod(WEB), MAIN)
    assert world.runtime.unified(container) == {"misc.max": "sgx_epc 1048576"}


@plugged()
async def test_an_answer_nobody_waits_for_any_more_is_abandoned(world: World) -> None:
    never: asyncio.Future[Final] = asyncio.get_running_loop().create_future()
    begun = asyncio.Event()

    def answer(question: Question) -> asyncio.Future[Final]:
        begun.set()
        return never

    world.answer = answer
    pod = await world.runtime.run_pod(WEB)
    creating = asyncio.create_task(world.runtime.create_container(pod, MAIN))
    await begun.wait()
    world.runtime.nri.plugins[0].peer.close("the runtime crashes")
    await creating  # the request goes on without the plugin
    await world.until(RuntimeLost)
    assert never.cancelled()


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


@pytest.mark.parametrize("generation", [NRI_0_8, NRI_0_11, NRI_0_12], ids=["NRI 0.8", "NRI 0.11", "NRI 0.12"])
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
@tale(runtime=functools.partial(SimRuntime, settings=AdaptationSettings(request_timeout_s=0.4)))
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
