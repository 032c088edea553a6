"""The shipped systemd units, run from the bundle by a real systemd in the guest: relay and daemon before a kubelet."""

import shutil
from collections.abc import Mapping

import pytest

from tests.peers.bundle import require_bundle
from tests.peers.find import absent, require
from tests.vm import guest
from tests.vm.chains import outcomes
from tests.vm.units_cases import CASES


@pytest.fixture(scope="module")
def held() -> Mapping[str, str]:
    """Case -> empty if it held, else what went wrong."""
    machine = guest.needed()
    require("containerd")
    if shutil.which("systemctl") is None:
        absent("no systemctl here: run scripts/install-tools")
    bundle = require_bundle()
    return outcomes(machine, ("units", str(bundle)), guest.Machine(memory_mib=2048, systemd=True))


@pytest.mark.parametrize("case", CASES)
def test_units(case: str, held: Mapping[str, str]) -> None:
    assert case in held, "the guest reported nothing for this case"
    assert held[case] == "", held[case]
