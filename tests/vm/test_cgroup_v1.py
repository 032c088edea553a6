"""The daemon on a real hybrid node: misc mounted as cgroup v1, containerd 2.4 with runc, limits written directly."""

from collections.abc import Mapping

import pytest

from tests.peers.find import require
from tests.vm import guest
from tests.vm.chains import outcomes
from tests.vm.v1_cases import CASES


@pytest.fixture(scope="module")
def held() -> Mapping[str, str]:
    """Case -> empty if it held, else what went wrong."""
    machine = guest.needed()
    require("containerd")
    return outcomes(machine, ("v1",))


@pytest.mark.parametrize("case", CASES)
def test_chain(case: str, held: Mapping[str, str]) -> None:
    assert case in held, "the guest reported nothing for this case"
    assert held[case] == "", held[case]
