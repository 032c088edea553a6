"""The OCI hook on a real kernel: runc alone, and containerd without NRI; on cgroup v2 and, for runc, on v1."""

from collections.abc import Mapping

import pytest

from tests.peers.find import require
from tests.vm import guest
from tests.vm.chains import outcomes
from tests.vm.hook_cases import CASES

BOOT_TIMEOUT_S = 240.0


@pytest.fixture(scope="module")
def held() -> Mapping[str, str]:
    """Case -> empty if it held, else what went wrong."""
    machine = guest.needed()
    require("containerd")  # runc comes with it
    return outcomes(machine, ("hook",), BOOT_TIMEOUT_S)


@pytest.mark.parametrize("case", CASES)
def test_hook(case: str, held: Mapping[str, str]) -> None:
    assert case in held, "the guest reported nothing for this case"
    assert held[case] == "", held[case]
