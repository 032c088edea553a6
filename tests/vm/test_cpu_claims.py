"""CPUs by claim on a node with a real kubelet and eight CPUs."""

from tests.vm.cpu_claim_cases import CASES
from tests.vm.joined import joined

test_joined = joined(CASES, "cpu-claims", scheduled=True, cpus=8)
