"""Where a create cannot carry every limit, a container's program waits until the rest is written, within bounds."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from nodeward.model.settings import LimitsSettings, NriSection, Settings
from nodeward.model.workload import ContainerSpec, PodSpec, PodUid
from nodeward.sim.runtime import SimContainer, SimPod
from tests.component.daemon.rig import EPC, ROOT, Rig, Trouble, rig, until

MISC = f"{ROOT}/misc"
KEYS = "sev_es"
BOTH = LimitsSettings(resources={"sgx.intel.com/epc": EPC, "example.com/keys": KEYS})
PODS = tuple(
    PodSpec(PodUid(uid), "default", f"pod-{uid}", (ContainerSpec("app", declared={EPC: 4096, KEYS: 2}),))
    for uid in ("two", "next")
)


def story(
    folder: Path,
    tale: Callable[[Rig], Awaitable[None]],
    change: Callable[[Settings], Settings] = lambda settings: replace(settings, limits=BOTH),
    *,
    hands_down: bool = True,
) -> None:
    folder.mkdir(exist_ok=True)

    async def told() -> None:
        capacity = {EPC: 1 << 30, KEYS: 9}
        async with rig(folder, runtime_hands_down=hands_down, change=change, capacity=capacity) as node:
            await node.stop()
            node.remember(*PODS)
            if not hands_down:
                with node.files.lock:
                    node.kernel.mount_misc_v1()
            await node.start()
            await tale(node)

    asyncio.run(told())


async def created(node: Rig, uid: str, *roots: str) -> tuple[str, str]:
    """A container that is about to start, with its cgroup below these roots; its id, and its path."""
    sandbox = await node.runtime.run_pod(SimPod(uid, f"pod-{uid}"))
    container = await node.runtime.create_container(sandbox, SimContainer("app"))
    path = f"/kubepods/pod{uid}/{container}"
    for root in roots:
        with node.files.lock:
            node.kernel.make_cgroup(f"{root}{path}")
    return container, path


def calls(node: Rig) -> list[str]:
    return node.runtime.nri.plugins[0].calls


def test_the_second_limit_is_there_before_the_program_runs(tmp_path: Path) -> None:
    async def tale(node: Rig) -> None:
        container, path = await created(node, "two")
        held = node.files.trouble(Trouble(("read",), f"{path}/misc.max"))
        starting = asyncio.create_task(node.runtime.start(container))
        await until(lambda: held.met > 0, "the daemon looks at the file before it writes")
        assert node.limit(path) == f"{KEYS} max\n{EPC} 4096"
        assert not starting.done()
        held.end()
        await starting
        assert node.limit(path) == f"{KEYS} 2\n{EPC} 4096"
        assert node.runtime.unified(container) == {"misc.max": f"{EPC} 4096"}
        assert calls(node).count("StartContainer") == 1

    story(tmp_path, tale)


def test_on_cgroup_v1_the_limit_is_there_before_the_program_runs(tmp_path: Path) -> None:
    async def tale(node: Rig) -> None:
        container, path = await created(node, "two", ROOT, MISC)
        held = node.files.trouble(Trouble(("read",), f"{MISC}{path}/misc.max"))
        starting = asyncio.create_task(node.runtime.start(container))
        await until(lambda: held.met > 0, "the daemon looks at the file before it writes")
        assert not starting.done()
        held.end()
        await starting
        with node.files.lock:
            assert node.kernel.read(f"{MISC}{path}/misc.max", 99).decode() == f"{KEYS} max\n{EPC} 4096\n"

    story(tmp_path, tale, lambda settings: settings, hands_down=False)


def test_a_file_that_hangs_holds_up_a_start_in_bounds_and_is_written_later(tmp_path: Path) -> None:
    async def tale(node: Rig) -> None:
        container, path = await created(node, "two")
        held = node.files.trouble(Trouble(("read",), f"{path}/misc.max"))
        await node.runtime.start(container)
        assert held.met > 0
        assert node.limit(path) == f"{KEYS} max\n{EPC} 4096"
        assert len(node.runtime.nri.plugins) == 1
        held.end()
        await until(lambda: node.limit(path) == f"{KEYS} 2\n{EPC} 4096", "the limit is written later")

        other, where = await created(node, "next")
        await node.runtime.start(other)
        await until(lambda: node.limit(where) == f"{KEYS} 2\n{EPC} 4096", "the next one has both")

    story(tmp_path, tale)


def test_with_one_resource_or_a_runtime_that_takes_two_nobody_waits(tmp_path: Path) -> None:
    async def tale(node: Rig) -> None:
        container, _ = await created(node, "two")
        await node.runtime.start(container)
        assert "CreateContainer" in calls(node)
        assert "StartContainer" not in calls(node)

    story(tmp_path / "one", tale, lambda settings: settings)

    def lines(settings: Settings) -> Settings:
        return replace(settings, limits=BOTH, nri=NriSection(socket=settings.nri.socket, multi_line=True))

    story(tmp_path / "lines", tale, lines)
