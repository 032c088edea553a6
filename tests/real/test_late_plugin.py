"""Plugins that come late or answer slowly, on a real containerd: which containers it tells them of, and which it loses.

containerd 2.4.2 holds containers back while a plugin synchronizes, so none is lost as long as the plugin answers in
time. A plugin that does not is dropped, and hears nothing of what was created meanwhile or comes later: that is the
whole of what others have reported as containers lost during Synchronize. The cure is to connect again.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nodeward.model.events import Listed
from nodeward.proto import nri_pb2
from nodeward.transport.ttrpc_unix import Answer
from nodeward.wire.ttrpc import Request
from tests.peers.churn import churning
from tests.peers.containerd import IMAGE, Containerd, NriOptions, running_containerd
from tests.peers.cri import Cri, container_config, containers, pod_config, remove_pod, start
from tests.peers.daemon import WITHIN_S, daemon, until
from tests.peers.nriside import Record, text
from tests.peers.plugin import RawPlugin, nodeward_plugin, raw_plugin

PATIENCE_S = 2.0
"""How long this containerd waits for a plugin: the default."""
EVENTS = sum(
    1 << (event - 1)
    for event in (
        nri_pb2.CREATE_CONTAINER,
        nri_pb2.POST_CREATE_CONTAINER,
        nri_pb2.START_CONTAINER,
        nri_pb2.POST_START_CONTAINER,
    )
)


@pytest.fixture(name="containerd", scope="module")
def _containerd() -> Iterator[Containerd]:
    """One containerd for all tests of this module; each removes its pods."""
    options = NriOptions(request_timeout_s=PATIENCE_S)
    with tempfile.TemporaryDirectory(prefix="ctd") as folder, running_containerd(Path(folder), options) as runtime:
        yield runtime


DAEMON = "90-nodeward"


def until_called(containerd: Containerd, plugin: str, times: int) -> None:
    """Waits until containerd has said so many times that it calls this plugin from now on."""
    until(lambda: containerd.synchronized(plugin) == times, f"{plugin} is synchronized for time {times}")


def play(story: Callable[[], Awaitable[None]]) -> None:
    """Run one story under a deadline."""

    async def bounded() -> None:
        async with asyncio.timeout(2 * WITHIN_S):
            await story()

    asyncio.run(bounded())


@dataclass(slots=True)
class Sandbox:
    """A pod in which containers are created and not started."""

    cri: Cri
    config: Record
    id: str
    prefix: str

    def create(self, number: int) -> str:
        """The id of a new container."""
        container = container_config(f"{self.prefix}-{number}", IMAGE)
        request: Record = {"pod_sandbox_id": self.id, "config": container, "sandbox_config": self.config}
        return text(self.cri.call("CreateContainer", request), "container_id")


@contextmanager
def sandbox(containerd: Containerd, name: str) -> Iterator[Sandbox]:
    """A pod for as long as the block."""
    config = pod_config(name, containerd.cgroup_parent, containerd.folder / "logs")
    with containerd.cri() as cri:
        pod = text(cri.call("RunPodSandbox", {"config": config}), "pod_sandbox_id")
        try:
            yield Sandbox(cri, config, pod, name)
        finally:
            remove_pod(cri, pod)


@dataclass(slots=True)
class Slow:
    """A plugin that takes its time for Synchronize, and notes every container it ever hears of."""

    hold_s: float
    known: set[str] = field(default_factory=set)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    begun_at: float = 0.0
    ended_at: float = 0.0

    def plugin(self) -> RawPlugin:
        """The plugin to register."""
        told = ("CreateContainer", "PostCreateContainer", "StartContainer", "PostStartContainer")
        return RawPlugin({"Synchronize": self._synchronize, **dict.fromkeys(told, self._hear)}, EVENTS)

    def _hear(self, request: Request) -> Answer:
        self.known.add(nri_pb2.PostCreateContainerRequest.FromString(request.payload).container.id)
        return b""

    async def _synchronize(self, request: Request) -> Answer:
        listed = nri_pb2.SynchronizeRequest.FromString(request.payload)
        self.known.update(each.id for each in listed.containers)
        self.begun_at = time.monotonic()
        self.begun.set()
        await asyncio.sleep(self.hold_s)
        self.ended_at = time.monotonic()
        return nri_pb2.SynchronizeResponse(more=listed.more).SerializeToString()


def test_no_container_is_lost_while_a_late_plugin_synchronizes_in_time(containerd: Containerd) -> None:
    """Given containers made all the time, when plugins come late and hold Synchronize, then they hear of each one."""

    async def one_round(number: int, hold_s: float) -> int:
        with sandbox(containerd, f"held{number}") as pod, churning(pod.create) as churn:
            await asyncio.to_thread(churn.wait_for, 4)
            slow = Slow(hold_s)
            async with raw_plugin(containerd.nri_socket, slow.plugin(), f"slow{number}"):
                await asyncio.to_thread(until_called, containerd, f"20-slow{number}", 1)
                await asyncio.to_thread(churn.wait_for, 8)
                churn.stop()
                await asyncio.to_thread(
                    until, lambda: set(containers(pod.cri, pod.id)) <= slow.known, "it hears of each container"
                )
            return sum(made.begun < slow.ended_at and made.done > slow.begun_at for made in churn.made)

    async def story() -> None:
        overlapping = [await one_round(number, hold_s) for number, hold_s in enumerate((0.0, 0.3, 0.6))]
        assert sum(overlapping) >= 4, "calls were under way while a plugin synchronized"

    play(story)


def test_a_plugin_that_synchronizes_too_slowly_loses_containers_until_it_connects_again(containerd: Containerd) -> None:
    """Given a plugin that holds Synchronize for too long, then containers made since are told to nobody, but listed
    to whoever connects next."""

    async def story() -> None:
        with sandbox(containerd, "lost") as pod:
            before = await asyncio.to_thread(pod.create, 0)
            slow = Slow(PATIENCE_S + 0.5)
            async with raw_plugin(containerd.nri_socket, slow.plugin(), "tooslow") as plugin:
                async with asyncio.timeout(WITHIN_S):
                    await slow.begun.wait()
                during = await asyncio.to_thread(pod.create, 1)
                assert "closed" in await plugin.ended()
                after = await asyncio.to_thread(pod.create, 2)
            assert slow.known == {before}
            async with nodeward_plugin(containerd.nri_socket) as ports:
                listed = await ports.nth(Listed)
            assert {each.id for each in listed.containers} == {before, during, after}

    play(story)


def run_pod(containerd: Containerd, cri: Cri, name: str) -> tuple[str, str]:
    """The ids of a new pod and its container."""
    pod = pod_config(name, containerd.cgroup_parent, containerd.folder / "logs")
    return start(cri, pod, container_config("app", IMAGE))


def test_the_daemon_knows_every_pod_that_was_made_while_it_registered(containerd: Containerd) -> None:
    """Given pods that are made all the time, when the daemon starts, is killed and starts, then it shows all."""
    pods: dict[str, str] = {}
    called = containerd.synchronized(DAEMON)
    with containerd.cri() as cri, tempfile.TemporaryDirectory(prefix="nwd") as own:

        def make(number: int) -> str:
            pod, container = run_pod(containerd, cri, f"stream-{number}")
            pods[container] = pod
            return container

        with daemon(containerd.nri_socket, Path(own)) as node:
            with churning(make) as churn:
                until_called(containerd, DAEMON, called + 1)
                assert node.process is not None
                node.process.kill()
                node.process.wait(timeout=WITHIN_S)
                churn.wait_for(2)
                node.start()
                until_called(containerd, DAEMON, called + 2)
                churn.wait_for(2)
            until(lambda: node.containers() == set(pods), "it shows every pod")
            for pod in pods.values():
                remove_pod(cri, pod)
            until(lambda: node.rows() == [], "it has forgotten every pod")


def test_a_daemon_that_stalls_once_costs_one_wait_and_mends_what_it_missed(containerd: Containerd) -> None:
    """Given a daemon that stands still, when a pod is started, then it starts late, and is shown when the daemon goes
    on."""
    called = containerd.synchronized(DAEMON)
    with (
        containerd.cri() as cri,
        tempfile.TemporaryDirectory(prefix="nwd") as own,
        daemon(containerd.nri_socket, Path(own)) as node,
    ):
        until_called(containerd, DAEMON, called + 1)
        assert node.process is not None
        node.process.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        pod, container = run_pod(containerd, cri, "patient")
        first_s = time.monotonic() - begun
        assert first_s > PATIENCE_S * 0.9
        other, beside = run_pod(containerd, cri, "unhindered")

        node.process.send_signal(signal.SIGCONT)
        until(lambda: node.containers() == {container, beside}, "the daemon shows what it missed")
        assert containerd.synchronized(DAEMON) == called + 2, "it connected again, once"
        for each in (pod, other):
            remove_pod(cri, each)
        until(lambda: node.rows() == [], "it has forgotten both")


def test_a_daemon_that_stalls_in_synchronize_finds_what_was_made_meanwhile(containerd: Containerd) -> None:
    """Given a container that takes its time to stop, when the daemon registers meanwhile and then stands still, then
    nobody's pod is started until containerd has given the daemon up, and the daemon finds that pod when it goes on."""
    called, failed = containerd.synchronized(DAEMON), containerd.said("failed to synchronize plugin")
    with (
        containerd.cri() as cri,
        ThreadPoolExecutor(2) as threads,
        tempfile.TemporaryDirectory(prefix="nwd") as own,
    ):
        config = pod_config("stubborn", containerd.cgroup_parent, containerd.folder / "logs")
        deaf = {**container_config("app", IMAGE), "stop_signal": "SIGNAL_SIGWINCH"}
        pod, stubborn = start(cri, config, deaf)
        stopping = threads.submit(cri.call, "StopContainer", {"container_id": stubborn, "timeout": 50})
        until(lambda: containerd.said(f'StopContainer for \\"{stubborn}\\" with timeout') == 1, "it is being stopped")
        with daemon(containerd.nri_socket, Path(own)) as node:
            until(node.registered, "the daemon has answered Configure")
            ready = node.command("status", "--ready")
            assert ready.returncode == 1
            assert "not ready nri" in ready.stdout
            starting = threads.submit(run_pod, containerd, cri, "meanwhile")
            assert node.process is not None
            node.process.send_signal(signal.SIGSTOP)
            with pytest.raises(TimeoutError):
                starting.result(timeout=PATIENCE_S)
            assert not stopping.done(), "nothing is started as long as it is being stopped"

            containerd.ctr("task", "kill", "--signal", "SIGKILL", stubborn)
            stopping.result(timeout=WITHIN_S)
            other, container = starting.result(timeout=WITHIN_S)
            assert containerd.said("failed to synchronize plugin") == failed + 1, "Synchronize took too long"
            assert containerd.synchronized(DAEMON) == called, "the pod was started without the daemon"

            node.process.send_signal(signal.SIGCONT)
            until(lambda: node.containers() == {container}, "the daemon finds the pod")
            assert containerd.synchronized(DAEMON) == called + 1
            for each in (pod, other):
                remove_pod(cri, each)
            until(lambda: node.rows() == [], "it has forgotten both")
