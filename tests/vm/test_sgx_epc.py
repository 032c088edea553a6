"""The plugin that stands for sgx-epc reads annotations as the reference says of the real one."""

from collections.abc import Mapping

import pytest

from tests.vm.sgx_epc import limit_bytes

KEY = "epc-limit.nri.io"


@pytest.mark.parametrize(
    ("annotations", "wanted"),
    [
        ({}, 0),
        ({f"{KEY}/container.app": "4096", f"{KEY}/pod": "1", KEY: "2"}, 4096),
        ({f"{KEY}/container.other": "4096", f"{KEY}/pod": "1", KEY: "2"}, 1),
        ({KEY: "2"}, 2),
        ({KEY: "010"}, 10),
        ({KEY: "0"}, 0),
    ],
    ids=["none", "container first", "another container", "bare", "decimal", "zero"],
)
def test_the_first_key_counts_in_decimal_bytes(annotations: Mapping[str, str], wanted: int) -> None:
    assert limit_bytes(annotations, "app") == wanted


@pytest.mark.parametrize("value", ["", "+1", "1Mi", " 1", "0x10", "1_0"])
def test_what_is_no_number_fails_the_create(value: str) -> None:
    with pytest.raises(ValueError, match="no number"):
        limit_bytes({f"{KEY}/pod": value}, "app")
