"""VM sandboxes on a real kernel with cgroup v2 and systemd: containerd, Kata's Go host side, QEMU, and the daemon."""

import pytest

from tests.vm.chains import chain
from tests.vm.guest import Machine
from tests.vm.sandboxes_cases import CASES

pytestmark = pytest.mark.nightly
test_sandboxes = chain(
    CASES, "sandboxes", ("containerd", "katahost"), kind=Machine(memory_mib=2048, systemd=True), stock=True
)
