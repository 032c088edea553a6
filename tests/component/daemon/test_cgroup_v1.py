"""The whole daemon on a node whose misc controller is mounted as cgroup v1, and on roots that cannot be used."""

import asyncio
from dataclasses import replace
from pathlib import Path

from nodeward.app.tools.uninstall import uninstall
from nodeward.model.settings import CgroupsSection, Settings
from tests.component.daemon.rig import EPC, ROOT, WITHIN_S, Rig, play, rig, until

MISC = f"{ROOT}/misc"


async def pod_on_v1(node: Rig, uid: str, *, joins: bool) -> str:
    """A pod whose container is in the tree of every runtime, and in the misc hierarchy too where the runtime joins it;
    the path of its container."""
    pod = await node.pod(uid)
    app = f"{pod}/{node.made[uid][1]}"
    with node.files.lock:
        node.kernel.make_cgroup(f"{ROOT}{app}")
        node.kernel.add_process(f"{ROOT}{app}", len(node.made))
        if joins:
            node.kernel.make_cgroup(f"{MISC}{app}")
            node.kernel.write(f"{MISC}{app}/cgroup.procs", str(len(node.made)).encode())
    return app


def limit(node: Rig, path: str) -> str:
    with node.files.lock:
        return node.kernel.read(f"{MISC}{path}/misc.max", 999).decode().strip()


async def until_said(node: Rig, ready: bool, detail: str) -> None:
    """Waits for a word on the cgroups."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            parts = (await node.ask()).get("components")
            part: dict[str, object] = (
                next((one for one in parts if one["name"] == "cgroups"), {}) if isinstance(parts, list) else {}
            )
            if (part.get("ready"), part.get("detail")) == (ready, detail):
                return
            await asyncio.sleep(0.02)


def test_limits_are_written_counted_and_repaired_in_the_v1_hierarchy(tmp_path: Path) -> None:
    """Given misc mounted as v1 while the daemon runs, when pods start, then their limits are written there, drift is
    repaired, a container that is outside is said to be so, and nothing of it is left after `uninstall`."""

    async def tale(node: Rig) -> None:
        with node.files.lock:
            node.kernel.mount_misc_v1()
        joined = await pod_on_v1(node, "a", joins=True)
        await node.until_state(joined, "enforced")
        await node.until_state("/kubepods/poda", "enforced")
        assert limit(node, joined) == limit(node, "/kubepods/poda") == f"{EPC} 4096"

        outside = await pod_on_v1(node, "b", joins=False)
        await node.until_state(outside, "outside")
        assert limit(node, outside) == f"{EPC} 4096"
        assert "does not join it" in str(await node.ask("/v1/explain?what=default/pod-b"))

        with node.files.lock:
            node.kernel.charge(f"{MISC}{joined}", EPC, 4096)
            node.kernel.write(f"{MISC}{joined}/misc.max", f"{EPC} max".encode())
        await until(lambda: limit(node, joined) == f"{EPC} 4096", "drift is repaired")
        view = await node.ask()
        assert view["usage"] == {EPC: 4096}
        assert view["tree"] == {"version": 1, "root": MISC, "members": ROOT, "fault": ""}
        with node.files.lock:
            assert b"misc" not in node.kernel.read(f"{ROOT}/kubepods/cgroup.subtree_control", 99)
            done = uninstall(node.settings, node.kernel)
        assert "/kubepods: limits taken back in 4 cgroup(s), 0 left over one(s) removed" in done.done
        assert done.failed == ()

    play(rig(tmp_path, runtime_hands_down=False), tale)


def test_what_was_made_for_a_container_goes_with_it(tmp_path: Path) -> None:
    async def tale(node: Rig) -> None:
        with node.files.lock:
            node.kernel.mount_misc_v1()
        app = await pod_on_v1(node, "a", joins=False)
        await node.until_state(app, "outside")
        container = node.made["a"][1]
        await node.runtime.stop(container)
        await node.runtime.remove_container(container)
        with node.files.lock:
            node.kernel.end_process(1)
            node.kernel.rmdir(f"{ROOT}{app}")

        def gone() -> bool:
            with node.files.lock:
                return container not in node.kernel.listdir(f"{MISC}/kubepods/poda")

        await until(gone, "what was made is removed")

    play(rig(tmp_path, runtime_hands_down=False), tale)


def test_a_root_that_does_not_exist_is_not_ready_until_it_does(tmp_path: Path) -> None:
    def elsewhere(settings: Settings) -> Settings:
        return replace(settings, cgroups=CgroupsSection(root=f"{ROOT}/later", period_s=0.1))

    async def tale(node: Rig) -> None:
        await until_said(node, False, f"{ROOT}/later does not exist: correct cgroups.root")
        assert (await node.ask())["ready"] is False
        with node.files.lock:
            node.kernel.make_cgroup(f"{ROOT}/later")
        await until_said(node, True, "sampled")

    play(rig(tmp_path, runtime_hands_down=False, change=elsewhere), tale)
