"""The OCI hook on a real kernel: runc alone, containerd without NRI, podman, CRI-O; on cgroup v2 and, for runc, on v1.

It is the program of the sources, and with podman and CRI-O the one of `make bundle`.
"""

from collections.abc import Mapping

import pytest

from tests.peers.bundle import require_bundle
from tests.peers.distribution import require_packaged
from tests.peers.find import require
from tests.vm import guest
from tests.vm.chains import outcomes
from tests.vm.hook_cases import CASES, OF_CRIO
from tests.vm.podman import require_podman


@pytest.fixture(scope="module")
def held() -> Mapping[str, str]:
    """Case -> empty if it held, else what went wrong."""
    machine = guest.needed()
    require("containerd")  # runc comes with it
    require("containerd-1.7")
    wanted = (require_bundle(), require_podman(), require_packaged("crun"), require_packaged("runc"))
    return outcomes(machine, ("hook", *map(str, wanted)))


@pytest.mark.parametrize("case", CASES)
def test_hook(case: str, held: Mapping[str, str]) -> None:
    if CASES[case] in OF_CRIO:
        require("crio")
    assert case in held, "the guest reported nothing for this case"
    assert held[case] == "", held[case]
