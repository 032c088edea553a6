"""Limits of a running daemon: before a program runs, by cgroup v1, in a large pod, and denials that were taken back."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.core.workload import ContainerSpec, PodSpec, PodUid
from nodeward.features.limits.settings import LimitsSettings, UnknownPod
from nodeward.features.settings import CgroupsSection, NriSection, Settings
from nodeward.host.hostfs import ensure_folder
from nodeward.programs.once.uninstall import uninstall
from nodeward_sim.doubles.runtime import SimContainer, SimPod
from tests.component.daemon.rig import EPC, ROOT, Rig, Trouble, changed, rig
from tests.component.kubernetes.support import until

MISC = f"{ROOT}/misc"
HANDLER = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.old.options]\nBinaryName = '{program}'\n"
KEYS = "sev_es"
BOTH = LimitsSettings(resources={"sgx.intel.com/epc": EPC, "example.com/keys": KEYS})
PODS = tuple(
    PodSpec(PodUid(uid), "default", f"pod-{uid}", (ContainerSpec("app", declared={EPC: 4096, KEYS: 2}),))
    for uid in ("two", "next")
)


both = changed(limits=BOTH)


def knowing(
    folder: Path, change: Callable[[Settings], Settings] = both, *, hands_down: bool = True
) -> AbstractAsyncContextManager[Rig]:
    """A node that knows PODS; cgroup v1 where the runtime hands nothing down."""
    folder.mkdir(exist_ok=True)
    capacity = {EPC: 1 << 30, KEYS: 9}
    return rig(
        folder, runtime_hands_down=hands_down, change=change, capacity=capacity, pods=PODS, misc_v1=not hands_down
    )


async def created(node: Rig, uid: str, *roots: str) -> tuple[str, str]:
    sandbox = await node.runtime.run_pod(SimPod(uid, f"pod-{uid}"))
    container = await node.runtime.create_container(sandbox, SimContainer("app"))
    path = f"/kubepods/pod{uid}/{container}"
    for root in roots:
        node.kernel.make_cgroup(f"{root}{path}")
    return container, path


def lines(settings: Settings) -> Settings:
    return replace(settings, limits=BOTH, nri=NriSection(socket=settings.nri.socket, multi_line=True))


def calls(node: Rig) -> list[str]:
    return node.runtime.nri.plugins[0].calls


async def test_the_second_limit_is_there_before_the_program_runs(tmp_path: Path) -> None:
    async with knowing(tmp_path) as node:
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


async def test_on_cgroup_v1_the_limit_is_there_before_the_program_runs(tmp_path: Path) -> None:
    async with knowing(tmp_path, lambda settings: settings, hands_down=False) as node:
        container, path = await created(node, "two", ROOT, MISC)
        held = node.files.trouble(Trouble(("read",), f"{MISC}{path}/misc.max"))
        starting = asyncio.create_task(node.runtime.start(container))
        await until(lambda: held.met > 0, "the daemon looks at the file before it writes")
        assert not starting.done()
        held.end()
        await starting
        assert node.kernel.read(f"{MISC}{path}/misc.max", 99).decode() == f"{KEYS} max\n{EPC} 4096\n"


async def test_a_file_that_hangs_holds_up_a_start_in_bounds_and_is_written_later(tmp_path: Path) -> None:
    async with knowing(tmp_path) as node:
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


async def test_where_an_oci_runtime_would_refuse_two_lines_it_is_given_one_and_the_other_is_written(
    tmp_path: Path,
) -> None:
    program = tmp_path / "runc"
    program.write_text("#!/bin/sh\necho runc version 1.1.5\n")
    program.chmod(0o755)

    async with knowing(tmp_path / "node", lines) as node:
        await node.stop()
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
        assert "CreateContainer" in calls(node)
        assert (await node.ask())["lines"] == {"state": "on", "why": "runc 1.2.0"}


NOTHING = PodSpec(PodUid("none"), "default", "pod-none", (ContainerSpec("app"),))
"""A pod that declares nothing."""


EARLIER = "unmanaged (last written by us in an earlier life of the daemon, or by another)"


async def denied(node: Rig) -> tuple[str, str]:
    await node.pod("none")
    container = node.made["none"][1]
    cgroup = node.runtime.cgroup(container)
    await until(lambda: node.limit(cgroup) == f"{EPC} 0", "the denial")
    assert node.runtime.unified(container) == {"misc.max": f"{EPC} 0"}
    return container, cgroup


async def test_a_denial_that_was_taken_back_does_not_return_with_an_update(tmp_path: Path) -> None:
    async with rig(tmp_path, change=changed(limits=LimitsSettings(strict=True)), pods=(NOTHING,)) as node:
        container, cgroup = await denied(node)

        node.change_limits(LimitsSettings())
        await until(lambda: node.limit(cgroup) == f"{EPC} max", "it is taken back")
        await node.runtime.update_container(container)
        assert node.limit(cgroup) == f"{EPC} max"
        assert node.runtime.unified(container) == {"misc.max": f"{EPC} max"}
        await node.until_state(cgroup, "unmanaged")
        node.files.write(f"{ROOT}{cgroup}/misc.max", f"{EPC} 0".encode())
        await until(lambda: node.limit(cgroup) == f"{EPC} max", "where it comes back behind the daemon's back, too")


@pytest.mark.parametrize("updated", [False, True], ids=["left alone", "updated while no daemon lives"])
async def test_a_denial_of_an_unknown_pod_does_not_outlive_the_daemon_that_gave_it(
    updated: bool, tmp_path: Path
) -> None:
    zero = changed(limits=LimitsSettings(unknown_pod=UnknownPod.ZERO))
    async with rig(tmp_path, change=zero) as node:  # which knows other pods
        container, cgroup = await denied(node)

        await node.stop()
        if updated:
            await node.runtime.update_container(container)
        assert node.limit(cgroup) == f"{EPC} 0"
        node.remember(NOTHING)
        await node.start()
        await until(lambda: node.limit(cgroup) == f"{EPC} max", "it is taken back")
        await node.runtime.update_container(container)
        assert node.limit(cgroup) == f"{EPC} max"


async def test_a_limit_whose_rule_ended_while_no_daemon_lived_stays_and_is_explained(tmp_path: Path) -> None:
    """Given limits written by the daemon itself, of which the runtime knows nothing, when the next one finds the pod
    to declare none: it cannot prove them its own."""
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
        while EARLIER not in str(await node.ask("/v1/explain?what=default/pod-a/app")):
            await asyncio.sleep(0.02)  # until it has been read
        assert [node.limit(path) for path in (home, container)] == [f"{EPC} 4096"] * 2


async def pod_on_v1(node: Rig, uid: str, *, joins: bool) -> str:
    """A pod whose container is in the tree of every runtime, and in the misc hierarchy too where the runtime joins it;
    the path of its container."""
    pod = await node.pod(uid)
    app = f"{pod}/{node.made[uid][1]}"
    node.kernel.make_cgroup(f"{ROOT}{app}")
    node.kernel.add_process(f"{ROOT}{app}", len(node.made))
    if joins:
        node.kernel.make_cgroup(f"{MISC}{app}")
        node.kernel.write(f"{MISC}{app}/cgroup.procs", str(len(node.made)).encode())
    return app


def limit(node: Rig, path: str) -> str:
    return node.kernel.read(f"{MISC}{path}/misc.max", 999).decode().strip()


async def test_limits_are_written_counted_and_repaired_in_the_v1_hierarchy(tmp_path: Path) -> None:
    async with rig(tmp_path, runtime_hands_down=False) as node:
        node.kernel.mount_misc_v1()  # after the daemon's start
        joined = await pod_on_v1(node, "a", joins=True)
        await node.until_state(joined, "enforced")
        await node.until_state("/kubepods/poda", "enforced")
        assert limit(node, joined) == limit(node, "/kubepods/poda") == f"{EPC} 4096"

        outside = await pod_on_v1(node, "b", joins=False)
        await node.until_state(outside, "outside")
        assert limit(node, outside) == f"{EPC} 4096"
        assert "does not join it" in str(await node.ask("/v1/explain?what=default/pod-b"))

        node.kernel.charge(f"{MISC}{joined}", EPC, 4096)
        node.kernel.write(f"{MISC}{joined}/misc.max", f"{EPC} max".encode())
        await until(lambda: limit(node, joined) == f"{EPC} 4096", "drift is repaired")
        view = await node.ask()
        assert view["usage"] == {EPC: 4096}
        assert view["tree"] == {"version": 1, "root": MISC, "members": ROOT, "fault": ""}

        container = node.made["b"][1]
        await node.runtime.stop(container)
        await node.runtime.remove_container(container)
        node.kernel.end_process(2)
        node.kernel.rmdir(f"{ROOT}{outside}")

        def gone() -> bool:
            return container not in node.kernel.listdir(f"{MISC}/kubepods/podb")

        await until(gone, "what was made for a container goes with it")
        assert b"misc" not in node.kernel.read(f"{ROOT}/kubepods/cgroup.subtree_control", 99)
        done = uninstall(node.settings, node.kernel)
        assert "/kubepods: limits taken back in 3 cgroup(s), 0 left over one(s) removed" in done.done
        assert done.failed == ()


async def test_a_root_that_does_not_exist_is_not_ready_until_it_does(tmp_path: Path) -> None:
    elsewhere = changed(cgroups=CgroupsSection(root=f"{ROOT}/later", period_s=0.1))
    async with rig(tmp_path, runtime_hands_down=False, change=elsewhere) as node:
        await node.until_source("cgroups", False, f"{ROOT}/later does not exist: correct cgroups.root")
        assert (await node.ask())["ready"] is False
        node.kernel.make_cgroup(f"{ROOT}/later")
        await node.until_source("cgroups", True, "sampled")
