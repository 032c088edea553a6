"""A kubelet whose runtime is the relay, while the relay, and then containerd with kubelet, are killed under load."""

from collections.abc import Mapping

import pytest

from tests.vm.joined import played
from tests.vm.joined_relay import RESTARTS

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def held() -> Mapping[str, str]:
    """Case -> empty if it held, else what went wrong."""
    return played("restarts")


@pytest.mark.parametrize("case", RESTARTS)
def test_joined(case: str, held: Mapping[str, str]) -> None:
    assert case in held, "the guest reported nothing for this case"
    assert held[case] == "", held[case]
