"""A pod of 500 containers that is there before the daemon: every part of the daemon has to take it whole."""

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path

from nodeward.doubles.apiserver import ApiServer
from nodeward.doubles.kube_refusals import Json
from nodeward.doubles.runtime import SimContainer, SimPod
from nodeward.doubles.runtime_plugins import AdaptationSettings
from nodeward.model.settings import KubeSection, Settings
from tests.component.daemon.rig import EPC, ROOT, WITHIN_S, Rig, rig

MANY = 500
PAGE = 4096
PATH = "/kubepods/podcrowd"
SPLIT = AdaptationSettings(request_timeout_s=WITHIN_S, chunk=MANY // 2 - 1)
"""The runtime tells of so many containers in three messages."""


def declared(number: int) -> int:
    """Every other container declares, and each another amount."""
    return number * PAGE if number % 2 else 0


def crowd() -> Json:
    """The pod as the API server has it."""
    containers = [
        {"name": f"c{n}", "resources": {"limits": {"sgx.intel.com/epc": str(declared(n))}} if declared(n) else {}}
        for n in range(MANY)
    ]
    return {
        "metadata": {"name": "pod-crowd", "namespace": "default", "uid": "crowd"},
        "spec": {"nodeName": "n1", "containers": containers},
    }


async def enforced(node: Rig) -> set[str]:
    """The pod's cgroups that are shown as enforced."""
    rows = (await node.ask()).get("rows")
    return {str(row["cgroup"]) for row in rows if row["state"] == "enforced"} if isinstance(rows, list) else set()


def test_a_pod_of_500_containers_is_adopted_whole(tmp_path: Path) -> None:
    """Given a pod of 500 containers that started while there was no daemon, when the daemon comes, then the kernel has
    each declared limit, 0 for all others, and the pod's budget; and what one of them does is shown as its own."""

    async def story(node: Rig) -> None:
        await node.stop()
        await node.runtime.restart(SPLIT)
        sandbox = await node.runtime.run_pod(SimPod("crowd", "pod-crowd"))
        paths = [f"{PATH}/{await node.runtime.create_container(sandbox, SimContainer(f'c{n}'))}" for n in range(MANY)]
        for path in paths:
            await node.runtime.start(path.rpartition("/")[2])
        assert {node.limit(path) for path in (PATH, *paths)} == {f"{EPC} max"}

        await node.start()
        async with asyncio.timeout(WITHIN_S):
            while not {PATH, *paths} <= await enforced(node):
                await asyncio.sleep(0.1)
        assert {n: node.limit(path) for n, path in enumerate(paths)} == {n: f"{EPC} {declared(n)}" for n in range(MANY)}
        assert node.limit(PATH) == f"{EPC} {sum(map(declared, range(MANY)))}"

        last = declared(MANY - 1)
        with node.files.lock:
            node.kernel.charge(ROOT + paths[-1], EPC, last)
            with contextlib.suppress(OSError):
                node.kernel.charge(ROOT + paths[-1], EPC, 1)
        async with asyncio.timeout(WITHIN_S):
            while counted(await node.row(paths[-1])) != (last, 1):
                await asyncio.sleep(0.1)
        assert counted(await node.row(paths[-3])) == (0, 0)
        assert (await node.ask())["ready"] is True

    async def main() -> None:
        async with ApiServer() as server:
            server.add_pod(crowd())

            def with_api(settings: Settings) -> Settings:
                return replace(settings, kube=KubeSection(url=server.url), node_name="n1")

            async with rig(tmp_path, change=with_api) as node:
                await story(node)

    asyncio.run(main())


def counted(row: dict[str, object]) -> tuple[object, object]:
    """What a row says is in use, and how often the kernel refused."""
    resources = row.get("resources")
    one = resources[0] if isinstance(resources, list) and resources else {}
    return one.get("usage"), one.get("refusals")
