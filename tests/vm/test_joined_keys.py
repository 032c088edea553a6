"""Keys offered to a real kubelet while a real kernel counts them, and then a kubelet whose runtime is the relay."""

from collections.abc import Mapping

import pytest

from tests.vm.joined import played
from tests.vm.joined_keys import CASES


@pytest.fixture(scope="module")
def held() -> Mapping[str, str]:
    """Case -> empty if it held, else what went wrong."""
    return played("keys")


@pytest.mark.parametrize("case", CASES)
def test_joined(case: str, held: Mapping[str, str]) -> None:
    assert case in held, "the guest reported nothing for this case"
    assert held[case] == "", held[case]
