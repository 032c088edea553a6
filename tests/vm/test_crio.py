"""The shipped unit and bundle with a CRI-O that has its defaults, systemd's driver among them: by `hooks.d`, by NRI."""

import shutil
from collections.abc import Mapping

import pytest

from tests.peers.bundle import require_bundle
from tests.peers.distribution import require_packaged
from tests.peers.find import absent, require
from tests.vm import guest
from tests.vm.chains import outcomes
from tests.vm.crio_shipped import CASES
from tests.vm.podman import require_podman

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def held() -> Mapping[str, str]:
    """Case -> empty if it held, else what went wrong."""
    machine = guest.needed()
    for peer in ("crio", "containerd"):  # runc and the sandbox's program come with containerd
        require(peer)
    if shutil.which("systemctl") is None:
        absent("no systemctl here: run scripts/install-tools")
    wanted = (require_bundle(), require_podman(), require_packaged("crun"), require_packaged("runc"))
    kind = guest.Machine(memory_mib=2048, systemd=True, numa=True)
    return outcomes(machine, ("crio", *map(str, wanted)), kind)


@pytest.mark.parametrize("case", CASES)
def test_crio(case: str, held: Mapping[str, str]) -> None:
    assert case in held, "the guest reported nothing for this case"
    assert held[case] == "", held[case]
