"""The whole chain on a real kernel: containerd 2.4 with runc, the daemon, the misc controller; one guest, seven cases.

The guest's fake driver gives capacity to the resources that a stock kernel knows, `sev` and `sev_es`; no mainline
kernel has `sgx_epc`. So the daemon is set to `limits.resources: {sgx.intel.com/epc: sev}`: pods declare EPC as
everywhere, and the kernel holds them to it as sev. Upstream's annotations always mean `sgx_epc`, which is thus
unsupported here.

The API server is the double (its contract is tests/contract/apiserver), and this test plays the kubelet by CRI.
"""

import json
import sys
from collections.abc import Mapping

import pytest

from tests.peers.find import require
from tests.peers.recipes import cache_folder
from tests.vm import guest
from tests.vm.chain_cases import CASES
from tests.vm.chain_runner import END, RESULT, SAYS

CAPACITY = {"sev": 10, "sev_es": 5}
BOOT_TIMEOUT_S = 300.0


@pytest.fixture(scope="module")
def outcomes() -> Mapping[str, str]:
    """Case -> empty if it held, else what went wrong."""
    machine = guest.needed()
    require("containerd")
    program = (sys.executable, "-m", "tests.vm.chain_runner", str(cache_folder().parent.parent))
    run = guest.boot(machine, program, CAPACITY, timeout_s=BOOT_TIMEOUT_S / guest.patience())
    lines = run.output.splitlines()
    print(f"\nkernel {machine.release}, {run.duration_s:.1f} s with the boot")
    for line in lines:
        if line.startswith(SAYS):
            print(json.loads(line.removeprefix(SAYS)))
    if run.status != 0 or END not in lines:
        pytest.fail(f"the guest did not finish its cases (status {run.status}):\n{run.output[-6000:]}", pytrace=False)
    found: list[tuple[str, str]] = [json.loads(line.removeprefix(RESULT)) for line in lines if line.startswith(RESULT)]
    return dict(found)


@pytest.mark.parametrize("case", CASES)
def test_chain(case: str, outcomes: Mapping[str, str]) -> None:
    assert case in outcomes, "the guest reported nothing for this case"
    assert outcomes[case] == "", outcomes[case]
