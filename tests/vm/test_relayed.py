"""Limits through the CRI relay on a real kernel: containerd 1.7 without NRI, with the daemon and while it is away."""

from tests.vm.chains import chain
from tests.vm.relayed_cases import CASES

test_relayed = chain(CASES, "relayed", ("containerd", "containerd-1.7"))
