"""The chart on a node with a real kubelet: its pod is ready, an upgrade and a rollback while pods run."""

from collections.abc import Mapping

import pytest

from tests.vm.chart_cases import CASES
from tests.vm.joined import played

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def held() -> Mapping[str, str]:
    """Case -> empty if it held, else what went wrong."""
    return played("chart", deployments=True)


@pytest.mark.parametrize("case", CASES)
def test_chart(case: str, held: Mapping[str, str]) -> None:
    assert case in held, "the guest reported nothing for this case"
    assert held[case] == "", held[case]
