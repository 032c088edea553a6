"""The whole chain on a real kernel: containerd 2.4 with runc, the daemon, the misc controller; pods by bare CRI calls.

No mainline kernel has `sgx_epc`: the guest's fake driver gives capacity to a resource of the stock kernel, and a second
module shows it under that name (tests/vm/kernel_module). Counting, limits and refusals are the kernel's own.

The API server is the double (its contract is tests/contract/apiserver), and this test plays the kubelet by CRI.
`test_joined_limits.py` has the real ones.
"""

from collections.abc import Mapping

import pytest

from tests.peers.find import require
from tests.vm import guest
from tests.vm.chain_cases import CASES
from tests.vm.chains import outcomes


@pytest.fixture(scope="module")
def held() -> Mapping[str, str]:
    """Case -> empty if it held, else what went wrong."""
    machine = guest.needed()
    require("containerd")
    return outcomes(machine, ("cri",))


@pytest.mark.parametrize("case", CASES)
def test_chain(case: str, held: Mapping[str, str]) -> None:
    assert case in held, "the guest reported nothing for this case"
    assert held[case] == "", held[case]
