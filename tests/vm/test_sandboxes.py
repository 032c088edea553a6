"""VM sandboxes on a real kernel with cgroup v2 and systemd: containerd, Kata's Go host side, QEMU, and the daemon."""

import shutil
from collections.abc import Mapping

import pytest

from tests.peers.find import absent, require
from tests.vm import guest
from tests.vm.chains import outcomes
from tests.vm.sandboxes_cases import CASES

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def held() -> Mapping[str, str]:
    """Case -> empty if it held, else what went wrong."""
    machine = guest.needed(stock=True)
    for peer in ("containerd", "katahost", "cgroupsrs"):
        require(peer)
    for tool in ("systemctl", "dbus-daemon"):
        if shutil.which(tool) is None:
            absent(f"no {tool} here: run scripts/install-tools")
    return outcomes(machine, ("sandboxes",), guest.Machine(memory_mib=2048, systemd=True))


@pytest.mark.parametrize("case", CASES)
def test_sandboxes(case: str, held: Mapping[str, str]) -> None:
    assert case in held, "the guest reported nothing for this case"
    assert held[case] == "", held[case]
