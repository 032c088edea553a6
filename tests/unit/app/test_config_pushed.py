"""A configuration that an agent pushed, over the settings of a process: what holds, and what is told of it."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from nodeward.aio.hostfs import OsFiles
from nodeward.app.settings.load import SettingsError
from nodeward.app.settings.policy_object import translated
from nodeward.app.settings.pushed import Pushed, path_in
from nodeward.app.settings.reload import Reload, SettingsSource
from nodeward.app.tools.cri_resmgr_pushed import over_file
from nodeward.model.settings import Settings
from tests.lanes import InlineLane
from tests.unit.app.test_policy_object import an_object
from tests.unit.app.test_reload import YieldingClock, folders

BALLOONS = {"policy": "Active: balloons\nballoons: {BalloonTypes: [{Name: a}]}\n"}


def test_a_file_is_replaced_and_environment_and_flags_win() -> None:
    variables = {"NODEWARD_POLICY__ACTIVE": "static", "NODEWARD_POLICY__RESERVED": "1"}
    by_variables = over_file(None, variables, {})(BALLOONS).policy
    by_flags = over_file(None, {}, {"policy.active": "static", "policy.reserved": "1"})(BALLOONS).policy
    assert (by_variables.active, by_flags.active) == ("static", "static")
    assert by_variables.balloons.balloon_types[0].name == "a", "what they do not say is as it was pushed"


def test_a_misspelled_section_is_refused_and_that_of_another_policy_has_no_effect() -> None:
    """Else balloons would be in force without any of their types."""
    with pytest.raises(SettingsError, match=r"policy\.ballons is not known; did you mean policy\.balloons\?"):
        over_file(None, {}, {})({"policy": "Active: balloons\nballons: {BalloonTypes: [{Name: a}]}\n"})
    assert over_file(None, {}, {})({"policy": "Active: balloons\ntopology-aware: {}\n"}).policy.active == "balloons"


def test_a_start_with_a_broken_file_goes_on_by_what_was_pushed_once_the_file_is_mended(tmp_path: Path) -> None:
    """Else containers would move to the file's own policy, and back with the agent's next push."""
    file, files = tmp_path / "nodeward.yaml", OsFiles()
    file.write_text(f"state_dir: {tmp_path}\nagent: {{config_socket: {tmp_path}/config.sock}}\n")
    Path(path_in(str(tmp_path))).write_text(json.dumps({"v": 1, "config": BALLOONS}))
    overlaid = over_file(str(file), {}, {})
    last, good = Pushed(overlaid, files).first(), file.read_text()
    file.write_text(f"{good}polcy: none\n")
    pushed = Pushed(overlaid, files)
    with pytest.raises(SettingsError):
        pushed.first()
    pushed.go_on(last)
    assert pushed.is_known(BALLOONS)
    file.write_text(good)
    assert pushed.read().policy.active == "balloons"


def pushes(times: int, unfit: Sequence[str] = (), by_object: bool = False, mode: str = "enforce") -> list[str]:
    """What the daemon answers, where the policy in force does not fit the machine."""
    pushed, lane = Pushed(over_file(None, {}, {"cpus.mode": mode}), folders()), InlineLane()
    chosen = translated(an_object({"reservedResources": {"cpu": 1}})) if by_object else None
    source = SettingsSource(pushed.read, "a test", pushed=pushed)
    reload = Reload(Settings(), source, folders(), lane, YieldingClock(), chosen)

    async def push() -> str:
        asked = asyncio.ensure_future(reload.push("n", BALLOONS, lambda _: 0, lambda: tuple(unfit)))
        while not asked.done():
            lane.drain()
            await asyncio.sleep(0)
        return await asked

    async def story() -> list[str]:
        return [await push() for _ in range(times)]

    return asyncio.run(story())


def test_faults_of_a_policy_object_are_not_held_against_what_is_pushed() -> None:
    assert pushes(2, ["too large"], by_object=True) == ["", ""]
    assert pushes(1, ["too large"], by_object=False) == ["policy balloons: too large"]


def test_a_policy_is_not_said_to_be_in_force_where_none_is() -> None:
    assert pushes(1) == [""]
    assert pushes(1, mode="off") == [
        "policy balloons: cpus.mode is off in the settings of this node: no policy is in force"
    ]
