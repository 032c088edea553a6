"""Faults beside a decision: they are said, and what was decided is done all the same."""

from pathlib import Path

import pytest

from nodeward.aio.clock import SystemClock
from nodeward.app.host.core import Core
from nodeward.app.node.pods import NoFacts
from nodeward.app.settings import load as settings
from nodeward.cli import main
from nodeward.doubles.kernel import SimKernel
from nodeward.edges.cgroups import writer
from nodeward.engine.state.root import State
from nodeward.model.decision import Decision
from nodeward.model.events import CapacityRead, Event, SandboxStarted
from nodeward.model.workload import PodUid, Sandbox, SandboxId
from tests.goals import slots_of
from tests.lanes import InlineLane

ROOT = "/sys/fs/cgroup"


async def no_commit(_: str) -> str:
    return "nothing commits here"


def test_a_recorder_that_fails_stops_no_goal() -> None:
    def broken(event: Event, decision: Decision, state: State) -> None:
        raise ValueError("cannot be encoded")

    kernel, lane, clock = SimKernel({"sgx_epc": 1 << 20}), InlineLane(), SystemClock()
    kernel.make_cgroup(f"{ROOT}/kubepods/pod1")
    slots = slots_of(lane, kernel, clock)
    core = Core(State(), clock, slots, NoFacts(), no_commit, broken)

    core.tell(CapacityRead(controller=True, capacity={"sgx_epc": 1 << 20}))
    core.tell(SandboxStarted(Sandbox(SandboxId("s"), PodUid("1"), "default", "web", cgroup_parent="/kubepods/pod1")))
    lane.drain()

    assert writer.subtree_has_misc(kernel, ROOT, "/kubepods/pod1")
    assert core.faults["record"] >= 2


def test_taking_back_reaches_cgroups_with_a_dot_in_their_name() -> None:
    kernel = SimKernel({"sgx_epc": 1 << 20})
    kernel.make_cgroup(f"{ROOT}/kubepods/pod1.2")
    for path in ("/", "/kubepods", "/kubepods/pod1.2"):
        writer.enable_misc(kernel, ROOT, path)

    assert writer.disable_misc(kernel, ROOT, "/") == 3
    assert not writer.subtree_has_misc(kernel, ROOT, "/")


def test_a_number_where_text_is_wanted_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "nodeward.yaml"
    path.write_text("nri: {plugin_index: 90}\n")

    with pytest.raises(settings.SettingsError, match=r"nri.plugin_index: 90 .* write it in quotes"):
        settings.load(str(path), {})


def test_a_command_without_the_rights_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(**_: str) -> None:
        raise PermissionError(13, "Permission denied", "/run/nodeward")

    monkeypatch.setattr(main, "cli", refused)
    with pytest.raises(SystemExit) as ended:
        main.main()

    assert ended.value.code == 1
    assert "/run/nodeward" in capsys.readouterr().err
