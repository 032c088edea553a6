"""The OCI hook on a real kernel: runc alone, containerd without NRI, podman; on cgroup v2 and, for runc, on v1.

It is the program of the sources, and with podman the one of `make bundle`.
"""

from tests.vm.chains import chain
from tests.vm.hook_cases import CASES
from tests.vm.podman import required

test_hook = chain(CASES, "hook", ("containerd", "containerd-1.7"), required)
