"""The whole chain on a real kernel: containerd 2.4 with runc, the daemon, the misc controller; pods by bare CRI calls.

No mainline kernel has `sgx_epc`: the guest's fake driver gives capacity to a resource of the stock kernel, and a second
module shows it under that name (tests/vm/kernel_module). Counting, limits and refusals are the kernel's own.

The API server is the double (its contract is tests/contract/apiserver), and this test plays the kubelet by CRI.
`test_joined_limits.py` has the real ones.
"""

import pytest

from tests.vm.chain_cases import CASES, MORE
from tests.vm.chains import chain

test_chain = chain(CASES, "cri")
test_more = pytest.mark.nightly(chain(MORE, "cri-more"))
