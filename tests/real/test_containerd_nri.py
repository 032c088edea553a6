"""Nodeward's NRI session against real containerds (2.4, and 1.7 with NRI switched on) with runc: pods that were there,
pods that come and change, restarts.

Containers here get no `misc.max`: on a host with cgroup v1 runc refuses unified resources, and most kernels have no
misc controller. That part is the virtual machine's (tests/vm).
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from nodeward.model.decision import Final
from nodeward.model.events import (
    Created,
    Creating,
    Listed,
    Removed,
    RuntimeConnected,
    RuntimeLost,
    SandboxRemoved,
    SandboxStarted,
    Started,
    Stopped,
    Updated,
    Updating,
)
from nodeward.model.workload import Phase
from tests.patience import scaled
from tests.peers.containerd import IMAGE, NEWEST, OLD, Containerd, Release, running_containerd
from tests.peers.cri import container_config, pod_config, remove_pod, start
from tests.peers.nriside import Record
from tests.peers.plugin import RawPlugin, nodeward_plugin, raw_plugin, refuse

TEST_TIMEOUT_S = scaled(120.0)
RELEASES = (NEWEST, pytest.param(OLD, marks=pytest.mark.matrix))


@pytest.fixture(name="containerd", scope="module", params=RELEASES, ids=lambda release: str(release.peer))
def _containerd(request: pytest.FixtureRequest) -> Iterator[Containerd]:
    """One containerd of each release for all tests of this module; each removes its pods."""
    release: Release = request.param
    with (
        tempfile.TemporaryDirectory(prefix="ctd") as folder,
        running_containerd(Path(folder), release=release) as daemon,
    ):
        yield daemon


def play(story: Callable[[], Awaitable[None]]) -> None:
    """Run one story under a deadline."""

    async def bounded() -> None:
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await story()

    asyncio.run(bounded())


def run_pod(daemon: Containerd, name: str) -> tuple[str, str]:
    """The ids of a new pod and its container."""
    with daemon.cri() as cri:
        pod = pod_config(name, daemon.cgroup_parent, daemon.folder / "logs")
        return start(cri, pod, container_config("app", IMAGE))


def drop_pod(daemon: Containerd, sandbox: str) -> None:
    """Stop and remove the pod."""
    with daemon.cri() as cri:
        remove_pod(cri, sandbox)


def test_pods_from_before_are_listed_and_later_ones_are_told(containerd: Containerd) -> None:
    """Given a running pod, when the session registers and another pod lives and dies, then it knows of both."""

    async def story() -> None:
        before, running = await asyncio.to_thread(run_pod, containerd, "before")
        async with nodeward_plugin(containerd.nri_socket) as ports:
            said = await ports.nth(RuntimeConnected)
            assert (said.name, said.version) == ("containerd", containerd.release.version)
            listed = await ports.nth(Listed)
            assert [(pod.id, pod.name) for pod in listed.sandboxes] == [(before, "before")]
            assert [(each.id, each.phase) for each in listed.containers] == [(running, Phase.RUNNING)]
            during, created = await asyncio.to_thread(run_pod, containerd, "during")
            assert (await ports.nth(SandboxStarted)).sandbox.id == during
            asked = await ports.nth(Creating)
            assert (asked.container.id, asked.sandbox.id) == (created, during)
            assert asked.container.cgroups_path == f"{containerd.cgroup_parent}/podduring/{created}"
            assert (await ports.nth(Created)).container.id == created
            assert asked.container.image == ("" if containerd.release.version.startswith("1.") else IMAGE)
            assert (await ports.nth(Started)).container.id == created
            for pod in (during, before):
                await asyncio.to_thread(drop_pod, containerd, pod)
            await ports.nth(SandboxRemoved, 2)
            assert [each.container.id for each in ports.of(Stopped)] == [created, running]
            assert [each.container_id for each in ports.of(Removed)] == [created, running]

    play(story)


def test_a_change_of_resources_is_asked_and_told(containerd: Containerd) -> None:
    """Given a running container, when CRI changes its CPU, then the session is asked first and told afterwards."""

    async def story() -> None:
        async with nodeward_plugin(containerd.nri_socket) as ports:
            await ports.nth(Listed)
            pod, container = await asyncio.to_thread(run_pod, containerd, "changed")
            with containerd.cri() as cri:
                changed: Record = {"container_id": container, "linux": {"cpu_shares": 512}}
                await asyncio.to_thread(cri.call, "UpdateContainerResources", changed)
            asked, told = await ports.nth(Updating), await ports.nth(Updated)
            assert (asked.container.id, told.container.id) == (container, container)
            assert ports.events.index(asked) < ports.events.index(told)
            await asyncio.to_thread(drop_pod, containerd, pod)
            await ports.nth(SandboxRemoved)

    play(story)


def test_session_comes_back_after_containerd_restarts(containerd: Containerd) -> None:
    """Given a session, when containerd is restarted, then the session registers again and still sees its container.

    The end of a pod that is older than containerd is told only by the end of its containers: after a restart containerd
    2.4 forgets that it owes anybody StopPodSandbox and RemovePodSandbox of it.
    """

    async def story() -> None:
        async with nodeward_plugin(containerd.nri_socket) as ports:
            await ports.nth(Listed)
            old, container = await asyncio.to_thread(run_pod, containerd, "older")
            await asyncio.to_thread(containerd.restart)
            await ports.nth(RuntimeLost)
            listed = await ports.nth(Listed, 2)
            assert [(each.id, each.phase) for each in listed.containers] == [(container, Phase.RUNNING)]
            new, _ = await asyncio.to_thread(run_pod, containerd, "younger")
            for pod in (old, new):
                await asyncio.to_thread(drop_pod, containerd, pod)
            assert (await ports.nth(Removed)).container_id == container
            assert (await ports.nth(SandboxRemoved)).sandbox.id == new

    play(story)


def test_refusal_reaches_whoever_asked_for_the_container(containerd: Containerd) -> None:
    """Given a session that refuses, when a container is to be created, then CRI's error has our sentence."""

    async def story() -> None:
        async with nodeward_plugin(containerd.nri_socket, lambda question: refuse("app: sev 99 is too much")) as ports:
            await ports.nth(Listed)
            with pytest.raises(Exception, match="app: sev 99 is too much"):
                await asyncio.to_thread(run_pod, containerd, "refused")
            pod = (await ports.nth(SandboxStarted)).sandbox.id
            await asyncio.to_thread(drop_pod, containerd, pod)
            await ports.nth(SandboxRemoved)

    play(story)


def test_container_starts_although_nobody_decides(containerd: Containerd) -> None:
    """Given a port that never answers, when a container is created, then the session says "no change" in time."""

    async def story() -> None:
        never: asyncio.Future[Final] = asyncio.get_running_loop().create_future()
        async with nodeward_plugin(containerd.nri_socket, lambda question: never) as ports:
            await ports.nth(Listed)
            pod, _ = await asyncio.to_thread(run_pod, containerd, "slow")
            await ports.nth(Started)
            await asyncio.to_thread(drop_pod, containerd, pod)
            await ports.nth(SandboxRemoved)
            assert not ports.of(RuntimeLost)

    play(story)


def test_hung_plugin_costs_two_seconds_and_its_place(containerd: Containerd) -> None:
    """Given a plugin that never answers, when a container is created, then containerd drops it and goes on."""

    async def story() -> None:
        silent: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        hung = RawPlugin({"CreateContainer": lambda request: silent}, events=1 << 3)
        async with nodeward_plugin(containerd.nri_socket) as ports, raw_plugin(containerd.nri_socket, hung):
            await ports.nth(Listed)
            begin = time.monotonic()
            pod, _ = await asyncio.to_thread(run_pod, containerd, "hung")
            assert time.monotonic() - begin > 1.9
            await hung.ended()
            await asyncio.to_thread(drop_pod, containerd, pod)
            await ports.nth(SandboxRemoved)

    play(story)
