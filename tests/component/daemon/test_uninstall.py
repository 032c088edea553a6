"""Uninstall on a node whose runtime had switched the misc controller on itself: our limits go, and nothing else."""

from pathlib import Path

from nodeward.app.host import undo
from nodeward.app.tools.uninstall import uninstall
from tests.component.daemon.rig import EPC, ROOT, STATE, Rig, play, rig


def test_limits_are_taken_back_where_the_runtime_hands_misc_down(tmp_path: Path) -> None:
    async def tale(node: Rig) -> None:
        pod = await node.pod("a")
        container = f"{pod}/{node.made['a'][1]}"
        await node.until_state(pod, "enforced")
        await node.until_state(container, "enforced")
        with node.files.lock:
            assert [change.target for change in undo.read(node.kernel, STATE)] == ["limits:/kubepods"]

            found = uninstall(node.settings, node.kernel)

            assert (found.done, found.failed) == (("/kubepods: limits taken back in 2 cgroup(s)",), ())
            assert [node.limit(path) for path in (pod, container)] == [f"{EPC} max"] * 2
            assert b"misc" in node.kernel.read(f"{ROOT}/kubepods/cgroup.subtree_control", 99), "it was on before us"

    play(rig(tmp_path), tale)
