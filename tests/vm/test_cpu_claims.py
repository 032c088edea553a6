"""CPUs by claim on a node with a real kubelet and eight CPUs."""

import pytest

from tests.vm.cpu_claim_cases import CASES, MORE
from tests.vm.joined import joined

test_joined = joined(CASES, "cpu-claims", scheduled=True, cpus=8)
test_more = pytest.mark.nightly(joined(MORE, "cpu-claims-more", scheduled=True, cpus=8))
