"""The shipped unit and bundle with a CRI-O that has its defaults, systemd's driver among them: by `hooks.d`, by NRI."""

import pytest

from tests.vm.chains import chain
from tests.vm.crio_shipped import CASES
from tests.vm.guest import Machine
from tests.vm.podman import required

pytestmark = pytest.mark.nightly
test_crio = chain(
    CASES,
    "crio",
    ("crio", "containerd"),
    required,
    Machine(memory_mib=2048, systemd=True, cpus=8, numa=True),
    stock=True,
)
