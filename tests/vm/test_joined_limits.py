"""Limits on a node with a real kubelet: pods by the API, from a Deployment to misc.max, and a daemon that is killed."""

from collections.abc import Mapping

import pytest

from tests.vm.joined import played
from tests.vm.joined_limits import CASES


@pytest.fixture(scope="module")
def held() -> Mapping[str, str]:
    """Case -> empty if it held, else what went wrong."""
    return played("limits", deployments=True)


@pytest.mark.parametrize("case", CASES)
def test_joined(case: str, held: Mapping[str, str]) -> None:
    assert case in held, "the guest reported nothing for this case"
    assert held[case] == "", held[case]
