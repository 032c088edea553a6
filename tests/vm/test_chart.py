"""The chart on a node with a real kubelet: its pod is ready, an upgrade and a rollback while pods run."""

import pytest

from tests.vm.chart_cases import CASES
from tests.vm.joined import joined

pytestmark = pytest.mark.nightly
test_chart = joined(CASES, "chart", deployments=True)
