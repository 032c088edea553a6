"""The misc controller's files: what the kernel prints is read, what is no such file is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.wire import misc_files
from nodeward.wire.errors import WireError

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,15}", fullmatch=True)


@given(st.dictionaries(NAMES, st.integers(0, 2**63 - 1)))
def test_what_the_kernel_prints_is_read_back(values: dict[str, int]) -> None:
    text = "".join(f"{name} {value}\n" for name, value in values.items())
    assert misc_files.parse(text.encode()) == values


def test_a_node_without_capacity_has_an_empty_file() -> None:
    assert misc_files.parse(b"") == {}


def test_a_counter_below_zero_is_negative() -> None:
    assert misc_files.parse(b"tdx 18446744073709551615\n") == {"tdx": -1}


def test_no_limit_is_left_out_and_a_huge_one_is_kept() -> None:
    assert misc_files.parse_limits(b"sev max\nsev_es 18446744073709551614\n") == {"sev_es": 2**64 - 2}


def test_events_lose_their_suffix() -> None:
    assert misc_files.parse(b"sev.max 3\nsev_es.max 0\n", suffix=".max") == {"sev": 3, "sev_es": 0}


@pytest.mark.parametrize("data", [b"sev 1Mi\n", b"sev\n", b"sev -1\n", b"sev " + b"9" * 21, b"s" * 20_000])
def test_what_is_no_misc_file_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        misc_files.parse(data)


@pytest.mark.parametrize(("resource", "value"), [("sev\n", "1"), ("", "1"), ("sev", "-1"), ("sev", "1 2"), ("sev", "")])
def test_no_line_is_made_that_the_kernel_reads_otherwise(resource: str, value: str) -> None:
    with pytest.raises(WireError):
        misc_files.limit_line(resource, value)


def test_one_write_is_one_line() -> None:
    assert misc_files.limit_line("sgx_epc", "4096") == b"sgx_epc 4096\n"
