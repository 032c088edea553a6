"""The daemon on a real hybrid node: misc mounted as cgroup v1, containerd 2.4 with runc, limits written directly."""

from tests.vm.chains import chain
from tests.vm.v1_cases import CASES

test_chain = chain(CASES, "v1")
