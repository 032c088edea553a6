"""A denial that was taken back stays taken back: over updates of the container, and over a restart of the daemon."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.model.settings import LimitsSettings, Settings, UnknownPod
from nodeward.model.workload import ContainerSpec, PodSpec, PodUid
from tests.component.daemon.rig import EPC, ROOT, WITHIN_S, Rig, rig, until

NOTHING = PodSpec(PodUid("none"), "default", "pod-none", (ContainerSpec("app"),))
"""A pod that declares nothing."""
EARLIER = "unmanaged (last written by us in an earlier life of the daemon, or by another)"


def story(folder: Path, tale: Callable[[Rig], Awaitable[None]], limits: LimitsSettings, *known: PodSpec) -> None:
    def change(settings: Settings) -> Settings:
        return replace(settings, limits=limits)

    async def told() -> None:
        async with rig(folder, change=change) as node:
            await node.stop()
            node.remember(*known)
            await node.start()
            await tale(node)

    asyncio.run(told())


async def denied(node: Rig) -> tuple[str, str]:
    """A container that gets 0 from its birth on: its id and its cgroup."""
    await node.pod("none")
    container = node.made["none"][1]
    cgroup = node.runtime.cgroup(container)
    await until(lambda: node.limit(cgroup) == f"{EPC} 0", "the denial")
    assert node.runtime.unified(container) == {"misc.max": f"{EPC} 0"}
    return container, cgroup


def test_a_denial_that_was_taken_back_does_not_return_with_an_update(tmp_path: Path) -> None:
    async def tale(node: Rig) -> None:
        container, cgroup = await denied(node)

        node.change_limits(LimitsSettings())
        await until(lambda: node.limit(cgroup) == f"{EPC} max", "it is taken back")
        await node.runtime.update_container(container)
        assert node.limit(cgroup) == f"{EPC} max"
        assert node.runtime.unified(container) == {"misc.max": f"{EPC} max"}

    story(tmp_path, tale, LimitsSettings(strict=True), NOTHING)


def test_a_denial_that_comes_back_behind_the_daemons_back_is_repaired(tmp_path: Path) -> None:
    async def tale(node: Rig) -> None:
        _, cgroup = await denied(node)
        node.change_limits(LimitsSettings())
        await until(lambda: node.limit(cgroup) == f"{EPC} max", "it is taken back")
        await node.until_state(cgroup, "unmanaged")

        node.files.write(f"{ROOT}{cgroup}/misc.max", f"{EPC} 0".encode())
        await until(lambda: node.limit(cgroup) == f"{EPC} max", "it is taken back again")

    story(tmp_path, tale, LimitsSettings(strict=True), NOTHING)


@pytest.mark.parametrize("updated", ["never", "while no daemon lives", "under the next one"])
def test_a_denial_of_an_unknown_pod_does_not_outlive_the_daemon_that_gave_it(updated: str, tmp_path: Path) -> None:
    async def tale(node: Rig) -> None:
        container, cgroup = await denied(node)

        await node.stop()
        if updated == "while no daemon lives":
            await node.runtime.update_container(container)
        assert node.limit(cgroup) == f"{EPC} 0"
        node.remember(NOTHING)
        await node.start()
        await until(lambda: node.limit(cgroup) == f"{EPC} max", "it is taken back")
        if updated == "under the next one":
            await node.runtime.update_container(container)
            assert node.limit(cgroup) == f"{EPC} max"

    story(tmp_path, tale, LimitsSettings(unknown_pod=UnknownPod.ZERO))


def test_a_limit_whose_rule_ended_while_no_daemon_lived_stays_and_is_explained(tmp_path: Path) -> None:
    """Given limits written by the daemon itself, of which the runtime knows nothing, when the next one finds the pod
    to declare none: it cannot prove them its own."""

    async def told() -> None:
        async with rig(tmp_path, runtime_hands_down=False) as node:
            home = await node.pod("a")
            container = f"{home}/{node.made['a'][1]}"
            for path in (home, container):
                await node.until_state(path, "enforced")
            await node.stop()
            node.remember(PodSpec(PodUid("a"), "default", "pod-a", (ContainerSpec("app"),)))
            await node.start()

            for path in (home, container):
                await node.until_state(path, "unmanaged")
            async with asyncio.timeout(WITHIN_S):
                while EARLIER not in str(await node.ask("/v1/explain?what=default/pod-a/app")):
                    await asyncio.sleep(0.02)  # until it has been read
            assert [node.limit(path) for path in (home, container)] == [f"{EPC} 4096"] * 2

    asyncio.run(told())
