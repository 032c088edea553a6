"""What no event of the runtime tells: a container that it has lost, and a charge that the kernel refuses."""

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.model.settings import CgroupsSection
from tests.component.daemon.rig import EPC, LOST, ROOT, WITHIN_S, Rig, play, rig


def test_a_container_that_the_runtime_has_lost_gets_its_limit(tmp_path: Path) -> None:
    pod, lost, pause = "/kubepods/podc", f"/kubepods/podc/{LOST}", f"/kubepods/podc/{'e' * 64}"

    async def tale(node: Rig) -> None:
        with node.files.lock:
            for path in (lost, pause):
                node.kernel.make_cgroup(ROOT + path)

        await node.until_state(lost, "enforced")
        assert (node.limit(lost), node.limit(pod)) == (f"{EPC} 4096", f"{EPC} 4096")
        row = await node.row(lost)
        assert row["stale_since"] == "2023-11-14T22:13:20Z", "known from the disk"
        assert (row["namespace"], row["pod"], row["container"], row["id"]) == ("default", "pod-c", "app", LOST)
        await node.until_state(pause, "unmanaged")
        assert node.limit(pause) == f"{EPC} max"

        with node.files.lock:
            for path in (lost, pause, pod):
                node.kernel.remove_cgroup(ROOT + path)

        async with asyncio.timeout(WITHIN_S):
            while await node.row(pod) or await node.row(lost):
                await asyncio.sleep(0.02)

    play(rig(tmp_path), tale)


@pytest.mark.parametrize("level", ["pod", "container"])
def test_a_refusal_is_shown_before_the_next_pass(tmp_path: Path, level: str) -> None:
    async def tale(node: Rig) -> None:
        pod = await node.pod("a")
        container = f"{pod}/{node.made['a'][1]}"
        place = pod if level == "pod" else container
        async with asyncio.timeout(WITHIN_S):
            while not await node.row(container):
                await asyncio.sleep(0.02)

        async def shown() -> object:
            resources = (await node.row(place)).get("resources")
            return resources[0]["refusals"] if isinstance(resources, list) and resources else None

        async with asyncio.timeout(WITHIN_S):
            while not await shown():  # each time, since a cgroup is watched within a second of being known
                with node.files.lock, contextlib.suppress(OSError):
                    node.kernel.charge(ROOT + container, EPC, 4097)
                await asyncio.sleep(0.05)

    play(rig(tmp_path, change=lambda settings: replace(settings, cgroups=CgroupsSection(period_s=3600.0))), tale)
