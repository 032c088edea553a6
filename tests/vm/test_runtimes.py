"""Several runtimes on a real kernel: containerd 2.4 and 1.7, runc 1.5, and the distribution's older runc and crun.

A container's two limits are to be in the kernel with each of them. What differs is the path: an old runtime takes one
line of `misc.max`, and the daemon writes the rest (docs/runtimes.md has the table).
"""

from collections.abc import Mapping

import pytest

from tests.peers.distribution import require_old
from tests.peers.find import require
from tests.vm import guest
from tests.vm.chains import outcomes
from tests.vm.runtime_cases import CASES

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def held() -> Mapping[str, str]:
    """Case -> empty if it held, else what went wrong."""
    machine = guest.needed()
    require("containerd")
    require("containerd-1.7")
    return outcomes(machine, ("runtimes", str(require_old("runc")), str(require_old("crun"))))


@pytest.mark.parametrize("case", CASES)
def test_runtimes(case: str, held: Mapping[str, str]) -> None:
    assert case in held, "the guest reported nothing for this case"
    assert held[case] == "", held[case]
