"""Settings: strict, every fault at once, each with its path."""

from pathlib import Path

import pytest

from nodeward.app.settings import SettingsError, load
from nodeward.model.settings import Mode


def test_all_faults_at_once_with_their_paths(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("limits: {mode: maybe, strict: 3}\nstate_dir: here\npods: {wait_ms: 5000}\nnope: 1\n")
    with pytest.raises(SettingsError) as caught:
        load(str(file), {"NODEWARD_NRI__PLUGIN_INDEX": "abc"})
    paths = [fault.split(":")[0] for fault in caught.value.faults]
    assert sorted(paths) == sorted(
        ["nope", "limits.mode", "limits.strict", "state_dir", "pods.wait_ms", "nri.plugin_index"]
    )


def test_environment_wins_over_the_file_and_flags_over_both(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("limits: {mode: off}\n")
    assert load(str(file), {}).limits.mode is Mode.OFF
    env = {"NODEWARD_LIMITS__MODE": "observe"}
    assert load(str(file), env).limits.mode is Mode.OBSERVE
    assert load(str(file), env, {"limits.mode": "enforce"}).limits.mode is Mode.ENFORCE


@pytest.mark.parametrize("text", ["a: &x 1\nb: *x\n", "[]", "a: [", "2"])
def test_aliases_and_what_is_no_mapping_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError):
        load(str(file), {})


def test_text_that_looks_like_an_impossible_date_is_text() -> None:
    assert load(None, {"NODEWARD_NODE_NAME": "2024-13-45"}).node_name == "2024-13-45"
