"""The shipped systemd units, run from the bundle by a real systemd in the guest: relay and daemon before a kubelet."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.peers.find import absent, require
from tests.vm import guest
from tests.vm.chains import outcomes
from tests.vm.units_cases import CASES

BOOT_TIMEOUT_S = 300.0
BUILD_S = 600.0


@pytest.fixture(scope="module")
def held() -> Mapping[str, str]:
    """Case -> empty if it held, else what went wrong."""
    machine = guest.needed()
    require("containerd")
    if missing := [tool for tool in ("objdump", "systemctl") if shutil.which(tool) is None]:
        absent(f"no {', '.join(missing)} here: run scripts/install-tools")
    build = [sys.executable, "scripts/build-bundle"]
    built = subprocess.run(build, cwd=guest.REPOSITORY, capture_output=True, text=True, timeout=BUILD_S, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    bundle = Path(built.stdout.partition(": ")[0])
    return outcomes(machine, ("units", str(bundle)), BOOT_TIMEOUT_S, guest.Machine(memory_mib=2048, systemd=True))


@pytest.mark.parametrize("case", CASES)
def test_units(case: str, held: Mapping[str, str]) -> None:
    assert case in held, "the guest reported nothing for this case"
    assert held[case] == "", held[case]
