"""Limits by the CRI relay on a real kernel: containerd 1.7 without NRI, at first alone, then beside the daemon."""

from collections.abc import Mapping

import pytest

from tests.peers.find import require
from tests.vm import guest
from tests.vm.chains import outcomes
from tests.vm.relayed_cases import CASES


@pytest.fixture(scope="module")
def held() -> Mapping[str, str]:
    """Case -> empty if it held, else what went wrong."""
    machine = guest.needed()
    require("containerd")
    require("containerd-1.7")
    return outcomes(machine, ("relayed",))


@pytest.mark.parametrize("case", CASES)
def test_relayed(case: str, held: Mapping[str, str]) -> None:
    assert case in held, "the guest reported nothing for this case"
    assert held[case] == "", held[case]
