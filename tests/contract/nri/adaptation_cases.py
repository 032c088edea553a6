"""What a plugin and a container runtime may expect of each other over NRI. Each case runs on the double, on NRI's own
code in each release and on containerd; a case that differs by release says so itself.

A case is a coroutine that is given the runtime's end, not listening yet. Its id is its name without `case_`.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from nodeward.contracts import nri_pb2
from nodeward.core.decision import Final
from nodeward.core.events import (
    Created,
    Creating,
    Event,
    Listed,
    Question,
    Removed,
    RuntimeConnected,
    RuntimeLost,
    SandboxRemoved,
    SandboxStarted,
    SandboxStopped,
    Started,
    Stopped,
    Updated,
    Updating,
)
from nodeward.core.workload import Phase
from nodeward.neighbours.nri.mux import FIRST_FRAME_BYTES
from nodeward.neighbours.nri.ttrpc_unix import ConnectionEndedError
from nodeward_sim.doubles.runtime import SimContainer, SimPod
from nodeward_sim.doubles.runtime_plugins import RuntimeRefusalError
from tests.contract.nri.adaptation_sides import RuntimeSide, environment_of
from tests.peers.plugin import Decide, Ports, RawPlugin, adjust, no_change, nodeward_plugin, raw_plugin, refuse

Case = Callable[[RuntimeSide], Awaitable[None]]

NODEWARD = "10-nodeward"
POD = SimPod(uid="11111111-0000-4000-8000-000000000001", name="web-0", annotations={"example.com/any": "x"})
CREATE_MASK = 1 << (nri_pb2.CREATE_CONTAINER - 1)


def silent(request: object) -> asyncio.Future[bytes]:
    return asyncio.get_running_loop().create_future()


@asynccontextmanager
async def plugged(runtime: RuntimeSide, decide: Decide = no_change) -> AsyncIterator[Ports]:
    await runtime.listen()
    async with nodeward_plugin(runtime.socket, decide) as ports:
        await runtime.connected(NODEWARD)
        yield ports


@asynccontextmanager
async def listed_to(runtime: RuntimeSide) -> AsyncIterator[Listed]:
    """What a plugin that comes now is told of what was there before."""
    async with plugged(runtime) as ports:
        yield await ports.nth(Listed)
        assert len(ports.all(Listed)) == 1


@asynccontextmanager
async def by_hand(runtime: RuntimeSide, events: int, *methods: str) -> AsyncIterator[RawPlugin]:
    """A plugin that agrees to these methods and has no others."""
    await runtime.listen()
    plugin = RawPlugin(dict.fromkeys(methods, lambda _: b""), events=events)
    async with raw_plugin(runtime.socket, plugin):
        await runtime.connected("20-raw")
        yield plugin


# ---- registration


async def case_plugin_is_called_by_index_and_name(runtime: RuntimeSide) -> None:
    await runtime.listen()
    async with nodeward_plugin(runtime.socket, name="ward", index="07") as ports:
        await runtime.connected("07-ward")
        await ports.nth(Listed)
        assert await runtime.plugins() == ["07-ward"]


async def case_configure_names_the_runtime(runtime: RuntimeSide) -> None:
    await runtime.listen()
    async with nodeward_plugin(runtime.socket) as ports:
        said = await ports.nth(RuntimeConnected)
    versions = {"0.8": ("2.1.9", "1.7.29"), "0.11": ("2.2.1",), "0.12": ("2.4.2",)}[runtime.release]
    assert said.name == "containerd"
    assert said.version.removeprefix("v") in versions
    assert said.nri_version.startswith("v0.12.") if runtime.release == "0.12" else said.nri_version == ""


async def case_two_plugins_are_called_in_the_order_of_their_index(runtime: RuntimeSide) -> None:
    await runtime.listen()
    order: list[str] = []

    def note(name: str) -> Callable[[Question], Final]:
        def decide(question: Question) -> Final:
            order.append(name)
            return adjust()

        return decide

    async with nodeward_plugin(runtime.socket, note("second"), "second", "20") as second:
        await runtime.connected("20-second")
        async with nodeward_plugin(runtime.socket, note("first"), "first", "10") as first:
            await runtime.connected("10-first")
            await runtime.create_container(await runtime.run_pod(POD), SimContainer("app"))
            await first.nth(Creating)
            await second.nth(Creating)
    assert order == ["first", "second"]


async def case_unknown_event_bit_ends_the_registration(runtime: RuntimeSide) -> None:
    await runtime.listen()
    unknown = nri_pb2.UPDATE_POD_SANDBOX if runtime.release == "0.8" else 25
    with suppress(ConnectionEndedError):  # the end may overtake the answer to the registration
        async with raw_plugin(runtime.socket, RawPlugin({}, events=1 << (unknown - 1))) as plugin:
            await plugin.ended()
    assert await runtime.plugins() == []


async def case_subscription_to_nothing_is_to_everything(runtime: RuntimeSide) -> None:
    # Everything includes, since 0.10, a vote on what other plugins want: who subscribes to all must have that method.
    methods = ("CreateContainer", "StateChange", "ValidateContainerAdjustment")
    async with by_hand(runtime, 0, *methods) as plugin:
        await runtime.create_container(await runtime.run_pod(POD), SimContainer("app"))
        assert "CreateContainer" in plugin.calls


async def case_only_what_was_subscribed_to_arrives(runtime: RuntimeSide) -> None:
    async with by_hand(runtime, CREATE_MASK, "CreateContainer") as plugin:
        container = await runtime.create_container(await runtime.run_pod(POD), SimContainer("app"))
        await runtime.start(container)
        assert plugin.calls == ["Configure", "Synchronize", "CreateContainer"]


# ---- what was there before


async def case_node_without_pods_synchronizes(runtime: RuntimeSide) -> None:
    async with listed_to(runtime) as listed:
        assert (listed.sandboxes, listed.containers, listed.complete) == ((), (), True)


async def _fill(runtime: RuntimeSide, pods: int, environment: tuple[str, ...] = ()) -> set[str]:
    """The ids of the running containers of that many pods, two in each."""
    made = set()
    for number in range(pods):
        pod = await runtime.run_pod(SimPod(uid=f"{number:08d}-0000-4000-8000-000000000000", name=f"pod-{number}"))
        for name in ("app", "helper"):
            container = await runtime.create_container(pod, SimContainer(name, env=environment))
            await runtime.start(container)
            made.add(container)
    return made


async def case_300_pods_arrive_whole(runtime: RuntimeSide) -> None:
    made = await _fill(runtime, 300)
    async with listed_to(runtime) as listed:
        assert len({sandbox.id for sandbox in listed.sandboxes}) == 300
        assert {container.id for container in listed.containers} == made
        assert {container.phase for container in listed.containers} == {Phase.RUNNING}


async def case_list_larger_than_a_message_arrives_whole(runtime: RuntimeSide) -> None:
    made = await _fill(runtime, 120, environment_of(24_000))
    async with listed_to(runtime) as listed:
        assert {container.id for container in listed.containers} == made


async def case_stopped_container_is_not_listed(runtime: RuntimeSide) -> None:
    pod = await runtime.run_pod(POD)
    gone, kept = [await runtime.create_container(pod, SimContainer(name)) for name in ("gone", "kept")]
    await runtime.start(gone)
    await runtime.stop(gone)
    async with listed_to(runtime) as listed:
        assert [container.id for container in listed.containers] == [kept]


# ---- questions and answers


async def case_adjustment_of_misc_max_arrives(runtime: RuntimeSide) -> None:
    wanted = "sgx_epc 65536\nsev 3"
    async with plugged(runtime, lambda question: adjust(misc_max=wanted)) as ports:
        container = await runtime.create_container(await runtime.run_pod(POD), SimContainer("app"))
        asked = await ports.nth(Creating)
    assert runtime.unified(container) == {"misc.max": wanted}
    assert (asked.container.id, asked.container.name, asked.container.phase) == (container, "app", Phase.CREATING)
    assert (asked.sandbox.name, asked.sandbox.pod_uid) == (POD.name, POD.uid)
    assert asked.container.cgroups_path == f"{runtime.cgroup_root}/kubepods/pod{POD.uid}/{container}"


async def case_container_below_a_slice_is_a_scope(runtime: RuntimeSide) -> None:
    slice_name = f"kubepods-burstable-pod{POD.uid.replace('-', '_')}.slice"
    parent = f"/kubepods.slice/kubepods-burstable.slice/{slice_name}"
    async with plugged(runtime) as ports:
        pod = await runtime.run_pod(SimPod(uid=POD.uid, name="web-0", cgroup_parent=parent))
        container = await runtime.create_container(pod, SimContainer("app"))
        asked = await ports.nth(Creating)
    assert asked.container.cgroups_path == f"{parent}/cri-containerd-{container}.scope"


async def case_answer_given_a_moment_later_arrives(runtime: RuntimeSide) -> None:

    async def later() -> Final:
        await asyncio.sleep(0)
        return adjust(misc_max="sev 1")

    async with plugged(runtime, lambda question: later()):
        container = await runtime.create_container(await runtime.run_pod(POD), SimContainer("app"))
    assert runtime.unified(container) == {"misc.max": "sev 1"}


async def case_no_change_leaves_the_container_as_it_is(runtime: RuntimeSide) -> None:
    async with plugged(runtime):
        wanted = SimContainer("app", unified={"memory.high": "1048576"})
        container = await runtime.create_container(await runtime.run_pod(POD), wanted)
    assert runtime.unified(container) == {"memory.high": "1048576"}


async def case_update_is_answered_with_the_whole_value(runtime: RuntimeSide) -> None:
    async with plugged(runtime, lambda question: adjust(misc_max="sev 2")) as ports:
        container = await runtime.create_container(await runtime.run_pod(POD), SimContainer("app"))
        ports.decide = lambda question: adjust(misc_max="sev 5")
        await runtime.update_container(container)
        await ports.nth(Updating)
        await ports.nth(Updated)
    assert runtime.unified(container) == {"misc.max": "sev 5"}


async def case_refusal_fails_the_request_with_its_message(runtime: RuntimeSide) -> None:
    async with plugged(runtime, lambda question: refuse("sev: 99 is more than the node has")):
        pod = await runtime.run_pod(POD)
        with pytest.raises(RuntimeRefusalError, match="sev: 99 is more than the node has"):
            await runtime.create_container(pod, SimContainer("app"))
        assert await runtime.plugins() == [NODEWARD]


def _many_limits(size: int) -> str:
    lines = "".join(f"resource_{number:06d} {number}\n" for number in range(size // 17 + 1))
    return lines[: size - 1] + "1"


async def case_adjustment_larger_than_a_first_frame_arrives(runtime: RuntimeSide) -> None:
    """Go's end reads the frame that begins a message into 4,096 bytes, and drops who sends more: each size around that
    is tried, since the value is some bytes of the message only."""
    sizes = (*range(3990, 4110, 3), 5000, 8192, 70_000)
    async with plugged(runtime) as ports:
        pod = await runtime.run_pod(POD)
        for number, size in enumerate(sizes):
            ports.decide = functools.partial(_adjusted, _many_limits(size))
            container = await runtime.create_container(pod, SimContainer(f"app-{number}"))
            assert runtime.unified(container) == {"misc.max": _many_limits(size)}
        assert await runtime.plugins() == [NODEWARD]


def _adjusted(misc_max: str, question: Question) -> Final:
    return adjust(misc_max=misc_max)


async def case_many_updates_in_the_answer_to_synchronize_arrive(runtime: RuntimeSide) -> None:
    pod = await runtime.run_pod(POD)
    made = [await runtime.create_container(pod, SimContainer(f"app-{number}")) for number in range(60)]
    wanted = {container: {"misc.max": f"sev {number}"} for number, container in enumerate(made)}
    answer = nri_pb2.SynchronizeResponse()
    for container, unified in wanted.items():
        answer.update.add(container_id=container).linux.resources.unified.update(unified)
    assert answer.ByteSize() > FIRST_FRAME_BYTES
    await runtime.listen()
    eager = RawPlugin({"Synchronize": lambda _: answer.SerializeToString()}, events=CREATE_MASK)
    async with raw_plugin(runtime.socket, eager):
        await runtime.connected("20-raw")
        assert {container: runtime.unified(container) for container in made} == wanted
        assert await runtime.plugins() == ["20-raw"]


async def case_two_plugins_with_one_key_fail_the_request(runtime: RuntimeSide) -> None:
    await runtime.listen()
    async with (
        nodeward_plugin(runtime.socket, lambda question: adjust(misc_max="sev 1"), "first", "10"),
        nodeward_plugin(runtime.socket, lambda question: adjust(misc_max="sev 2"), "second", "20"),
    ):
        await runtime.connected("10-first")
        await runtime.connected("20-second")
        pod = await runtime.run_pod(POD)
        with pytest.raises(RuntimeRefusalError, match="both tried to set"):
            await runtime.create_container(pod, SimContainer("app"))


# ---- slow and absent plugins


async def case_session_answers_in_time_when_nobody_decides(runtime: RuntimeSide) -> None:
    await runtime.listen(request_timeout_s=0.8)
    never: asyncio.Future[Final] = asyncio.get_running_loop().create_future()
    async with nodeward_plugin(runtime.socket, lambda question: never):
        await runtime.connected(NODEWARD)
        container = await runtime.create_container(await runtime.run_pod(POD), SimContainer("app"))
        assert runtime.unified(container) == {}
        assert await runtime.plugins() == [NODEWARD]


async def case_silent_plugin_is_dropped_and_the_request_goes_on(runtime: RuntimeSide) -> None:
    await runtime.listen(request_timeout_s=0.3)
    hung = RawPlugin({"CreateContainer": silent}, events=CREATE_MASK)
    async with (
        raw_plugin(runtime.socket, hung, index="05"),
        nodeward_plugin(runtime.socket, lambda question: adjust(misc_max="sev 1")),
    ):
        await runtime.connected("05-raw")
        await runtime.connected(NODEWARD)
        container = await runtime.create_container(await runtime.run_pod(POD), SimContainer("app"))
        assert runtime.unified(container) == {"misc.max": "sev 1"}
        await hung.ended()
        assert await runtime.plugins() == [NODEWARD]


async def case_plugin_that_leaves_is_forgotten(runtime: RuntimeSide) -> None:
    async with plugged(runtime):
        pass
    container = await runtime.create_container(await runtime.run_pod(POD), SimContainer("app"))
    assert runtime.unified(container) == {}
    assert await runtime.plugins() == []


async def case_session_comes_back_after_a_restart(runtime: RuntimeSide) -> None:
    async with plugged(runtime, lambda question: adjust(misc_max="sev 1")) as ports:
        pod = await runtime.run_pod(POD)
        before = await runtime.create_container(pod, SimContainer("before"))
        await runtime.restart()
        await ports.nth(RuntimeLost)
        listed = await ports.nth(Listed, 2)
        await runtime.connected(NODEWARD)
        after = await runtime.create_container(pod, SimContainer("after"))
        assert [container.id for container in listed.containers] == [before]
        assert runtime.unified(after) == {"misc.max": "sev 1"}
        assert [type(event) for event in ports.heard if isinstance(event, RuntimeConnected | RuntimeLost)] == [
            RuntimeConnected,
            RuntimeLost,
            RuntimeConnected,
        ]


async def case_end_of_what_is_older_than_a_restart_is_told_in_part(runtime: RuntimeSide) -> None:
    """The end of a running container is told; that of a pod and of a container that had ended before is not."""
    async with plugged(runtime) as ports:
        old = await runtime.run_pod(POD)
        running, ended = [await runtime.create_container(old, SimContainer(name)) for name in ("running", "ended")]
        for container in (running, ended):
            await runtime.start(container)
        await runtime.stop(ended)
        await runtime.restart()
        await ports.nth(Listed, 2)
        await runtime.connected(NODEWARD)
        heard = len(ports.heard)
        new = await runtime.run_pod(SimPod(uid="22222222-0000-4000-8000-000000000002", name="web-1"))
        for container in (running, ended):
            await runtime.stop(container)
            await runtime.remove_container(container)
        for pod in (old, new):
            await runtime.stop_pod(pod)
            await runtime.remove_pod(pod)
        await ports.nth(SandboxRemoved)
    told = [type(event) for event in ports.heard[heard:] if not isinstance(event, RuntimeLost)]
    assert told == [SandboxStarted, Stopped, Removed, SandboxStopped, SandboxRemoved]
    assert ports.all(Removed)[-1].container_id == running
    assert [event.sandbox.id for event in ports.all(SandboxRemoved)] == [new]


async def case_removed_pod_is_stopped_first(runtime: RuntimeSide) -> None:
    async with plugged(runtime) as ports:
        pod = await runtime.run_pod(POD)
        container = await runtime.create_container(pod, SimContainer("app"))
        await runtime.start(container)
        await runtime.remove_pod(pod)
        await ports.nth(SandboxRemoved)
        again = await runtime.run_pod(POD)
        await runtime.stop_pod(again)
        await runtime.stop_pod(again)
        await runtime.remove_pod(again)
        await ports.nth(SandboxRemoved, 2)
    told = [type(event) for event in ports.heard if isinstance(event, Stopped | Removed | SandboxStopped)]
    assert told == [Stopped, SandboxStopped, Removed, SandboxStopped]


# ---- a life


async def case_a_life_is_told_in_order(runtime: RuntimeSide) -> None:
    async with plugged(runtime) as ports:
        pod = await runtime.run_pod(POD)
        container = await runtime.create_container(pod, SimContainer("app"))
        await runtime.start(container)
        await runtime.update_container(container)
        await runtime.stop(container)
        await runtime.remove_container(container)
        await runtime.stop_pod(pod)
        await runtime.remove_pod(pod)
        await ports.nth(SandboxRemoved)
    life: list[type[Event]] = [SandboxStarted, Creating, Created, Started, Updating, Updated, Stopped, Removed]
    told = [type(event) for event in ports.heard if not isinstance(event, RuntimeConnected | RuntimeLost | Listed)]
    assert told == [*life, SandboxStopped, SandboxRemoved]
    assert ports.all(Removed)[0].container_id == container


async def case_plugin_without_own_methods_gets_state_changes(runtime: RuntimeSide) -> None:
    async with by_hand(runtime, 0x3FF, "StateChange", "CreateContainer") as old:
        pod = await runtime.run_pod(POD)
        container = await runtime.create_container(pod, SimContainer("app"))
        await runtime.start(container)
    refused = ["RunPodSandbox"] if runtime.release == "0.12" else []
    changes = ["StateChange", "CreateContainer", "StateChange", "StateChange", "StateChange"]
    assert old.calls == ["Configure", "Synchronize", *refused, *changes]


async def case_plugin_with_own_methods_gets_no_state_change_since_0_12(runtime: RuntimeSide) -> None:
    mask = 1 << (nri_pb2.RUN_POD_SANDBOX - 1)
    async with by_hand(runtime, mask, "RunPodSandbox", "StateChange") as modern:
        await runtime.run_pod(POD)
    expected = "RunPodSandbox" if runtime.release == "0.12" else "StateChange"
    assert modern.calls == ["Configure", "Synchronize", expected]


CASES: dict[str, Case] = {
    name.removeprefix("case_"): value for name, value in list(globals().items()) if name.startswith("case_")
}
