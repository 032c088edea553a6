"""Several runtimes on a real kernel: containerd 2.4 and 1.7, runc 1.5, and the distribution's older runc and crun.

A container's two limits are to be in the kernel with each of them. What differs is the path: an old runtime takes one
line of `misc.max`, and the daemon writes the rest (docs/limits.md has the table).
"""

import pytest

from tests.peers.distribution import require_old
from tests.vm.chains import chain
from tests.vm.runtime_cases import CASES

pytestmark = pytest.mark.nightly
test_runtimes = chain(
    CASES,
    "runtimes",
    ("containerd", "containerd-1.7"),
    lambda: [str(require_old(program)) for program in ("runc", "crun")],
)
