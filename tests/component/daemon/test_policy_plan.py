"""`nodeward policies plan`: who would have other CPUs by a BalloonsPolicy, on a running daemon and on its record."""

import asyncio
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.app.node.answers import answers
from nodeward.doubles.cpus import Plan
from nodeward.engine.state.root import State
from nodeward.model.settings import CpusSettings, Driver, EngineSettings, RecordSection, Settings
from tests.component.daemon.rig import ROOT, STATE, Rig, play, rig
from tests.component.daemon.test_balloons import by_balloons, runs
from tests.patience import scaled
from tests.peers.daemon import NODEWARD

RECORD = f"{STATE}/node.record"
OBJECT = """apiVersion: config.nri/v1alpha1
kind: BalloonsPolicy
metadata: {{name: default}}
spec:
  reservedResources: {{cpu: "cpuset:{reserved}"}}
  balloonTypes: [{{name: batch, namespaces: [batch], minCPUs: 3}}]
"""


def test_a_plan_names_who_moves_and_changes_nothing(tmp_path: Path) -> None:
    def recorded(settings: Settings) -> Settings:
        return replace(by_balloons(settings), record=RecordSection(RECORD))

    async def nodeward(node: Rig, reserved: str, *more: str) -> tuple[int, str]:
        (tmp_path / "p.yaml").write_text(OBJECT.format(reserved=reserved))
        line = [NODEWARD, "policies", "plan", str(tmp_path / "p.yaml"), *more]
        run = subprocess.run
        done = await asyncio.to_thread(run, line, capture_output=True, text=True, timeout=scaled(60), check=False)
        return done.returncode, done.stdout + done.stderr

    async def tale(node: Rig) -> None:
        batch, web = await runs(node, "a", "batch", 1000), await runs(node, "b", "web", 2000)
        held = [node.kernel.read(f"{ROOT}{one}/cpuset.cpus", 999) for one in (batch, web)]
        socket = ("--socket", str(tmp_path / "run" / "nodeward.sock"))

        code, told = await nodeward(node, "0", *socket)
        assert code == 0
        assert told.splitlines()[0] == "1 container(s) would have other CPUs, 1 the same:"
        assert told.splitlines()[1].startswith("  batch/a/app: ")

        code, told = await nodeward(node, "0,99", *socket)
        assert (code, told.startswith("this node would refuse it, and keep what is in force:")) == (1, True)
        assert [node.kernel.read(f"{ROOT}{one}/cpuset.cpus", 999) for one in (batch, web)] == held

        await node.stop()
        (tmp_path / "node.record").write_bytes(node.files.read(RECORD, 1 << 24))
        code, told = await nodeward(node, "0", "--record", str(tmp_path / "node.record"))
        assert code == 1
        assert "batch/a/app: " in told.partition("would have other CPUs")[2]
        await node.start()

    play(rig(tmp_path, change=recorded, machine=Plan(sockets=1, nodes=1)), tale)


def test_where_the_relay_gives_cpus_the_daemon_names_its_record_and_does_not_show_an_empty_plan() -> None:
    state = State(settings=EngineSettings(cpus=CpusSettings(driver=Driver.RELAY)))
    daemon = answers(lambda: pytest.fail("no view is wanted"), lambda: state)

    async def ask() -> bytes:
        return await daemon.plan(b"{}")

    with pytest.raises(ValueError, match="give that FILE as --record"):
        asyncio.run(ask())
