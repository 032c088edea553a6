"""Where a create cannot carry every limit, a container's program waits until the rest is written, within bounds."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from nodeward.app.node.assemble import ensure_folder
from nodeward.doubles.runtime import SimContainer, SimPod
from nodeward.model.settings import LimitsSettings, NriSection, Settings
from nodeward.model.workload import ContainerSpec, PodSpec, PodUid
from tests.component.daemon.rig import EPC, ROOT, Rig, Trouble, rig, until

MISC = f"{ROOT}/misc"
HANDLER = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.old.options]\nBinaryName = '{program}'\n"
NONE_SEEN = "neither runc nor crun was found in the usual folders"
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


def lines(settings: Settings) -> Settings:
    return replace(settings, limits=BOTH, nri=NriSection(socket=settings.nri.socket, multi_line=True))


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


def test_with_one_resource_or_a_runtime_that_takes_two_the_create_carries_all(tmp_path: Path) -> None:
    async def tale(node: Rig) -> None:
        container, _ = await created(node, "two")
        await node.runtime.start(container)
        assert f"{EPC} 4096" in node.runtime.unified(container)["misc.max"].splitlines()
        assert "CreateContainer" in calls(node)

    story(tmp_path / "one", tale, lambda settings: settings)

    async def both_by_the_runtime(node: Rig) -> None:
        await tale(node)
        other, _ = await created(node, "next")
        assert node.runtime.unified(other) == {"misc.max": f"{EPC} 4096\n{KEYS} 2"}
        assert (await node.ask())["lines"] == {"state": "unverified", "why": NONE_SEEN}

    story(tmp_path / "lines", both_by_the_runtime, lines)


def test_where_an_oci_runtime_would_refuse_two_lines_it_is_given_one_and_the_other_is_written(tmp_path: Path) -> None:
    """Given `nri.multi_line: true` and a handler's program that is too old; when it is newer both go by the runtime."""
    program = tmp_path / "runc"
    program.write_text("#!/bin/sh\necho runc version 1.1.5\n")
    program.chmod(0o755)

    async def tale(node: Rig) -> None:
        await node.stop()
        with node.files.lock:
            for path in ("/etc/containerd", str(tmp_path)):
                ensure_folder(node.kernel, path)
            node.kernel.replace("/etc/containerd/config.toml", HANDLER.format(program=program).encode())
            node.kernel.replace(str(program), b"")
        await node.start()
        container, path = await created(node, "two")
        await node.runtime.start(container)
        assert node.runtime.unified(container) == {"misc.max": f"{EPC} 4096"}
        assert node.limit(path) == f"{KEYS} 2\n{EPC} 4096"
        why = "runc 1.1.5 cannot write several resources in one misc.max"
        assert (await node.ask())["lines"] == {"state": "held", "why": why}

        await node.stop()
        program.write_text("#!/bin/sh\necho runc version 1.2.0\n")
        await node.start()
        other, _ = await created(node, "next")
        assert node.runtime.unified(other) == {"misc.max": f"{EPC} 4096\n{KEYS} 2"}
        assert (await node.ask())["lines"] == {"state": "on", "why": "runc 1.2.0"}

    story(tmp_path / "node", tale, lines)
