"""What `nodeward setup runtime` writes, as real containerds read it: by `containerd config dump`."""

import subprocess
import tomllib
from pathlib import Path

import pytest

from nodeward.programs.once.runtime_nri import NEW, PLUGIN, enabled
from tests.patience import scaled
from tests.peers.containerd import NEWEST, OLD, Release
from tests.peers.find import require

OFF = f"version = 2\n[plugins.'{PLUGIN}']\n  disable = true\n  plugin_registration_timeout = '7s'\n"


@pytest.mark.parametrize("release", [OLD, NEWEST], ids=lambda release: release.version)
@pytest.mark.parametrize("text", ["", NEW, OFF], ids=["empty", "nothing said", "switched off"])
def test_containerd_reads_that_nri_is_on_and_the_rest_as_before(release: Release, text: str, tmp_path: Path) -> None:
    def dumped(content: str) -> dict[str, object]:
        (tmp_path / "config.toml").write_text(content)
        program = str(require(release.peer) / "bin/containerd")
        command = [program, "--config", str(tmp_path / "config.toml"), "config", "dump"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=scaled(30.0), check=True).stdout
        found: dict[str, object] = tomllib.loads(said)["plugins"][PLUGIN]
        return found

    before, after = dumped(text), dumped(enabled("config.toml", text))
    assert before["disable"] is (text == OFF or release is OLD)
    assert after == {**before, "disable": False}
