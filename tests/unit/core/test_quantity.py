"""Quantities as apimachinery 0.36 reads them."""

from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.core.quantity import (
    MAX_VALUE,
    QuantityError,
    binary_text,
    exact_units,
    milli_units,
    plain_decimal,
    whole_units,
)

WHOLE = (
    *(("1024Ki", 1 << 20), ("1Mi", 1 << 20), ("1048576", 1 << 20), ("0.5Gi", 512 << 20), ("1.5Ki", 1536)),
    *(("3000m", 3), ("+5", 5), ("010", 10), ("1e6", 10**6), ("1E6", 10**6), ("1E", 10**18), ("1.1", 2)),
    *(("0.5", 1), ("100u", 1), ("1n", 1), ("0", 0), ("0Mi", 0), (".5", 1), ("5.", 5), ("8Ei", MAX_VALUE)),
    *(("9999E", MAX_VALUE), ("1e999", MAX_VALUE), ("1e-999", 1), ("7Ei", 7 << 60), (str(2**64 - 1), MAX_VALUE)),
)
PLAIN = (("0", 0), ("010", 10), ("18446744073709551615", 2**64 - 1))
MILLI = (
    *(("500m", 500), ("2", 2000), ("1.5", 1500), ("0.1", 100), ("1e3", 10**6), ("1k", 10**6), ("0", 0)),
    *(("1u", 1), ("1500u", 2), ("0.0001", 1), ("007m", 7), ("9999E", MAX_VALUE), ("1e999", MAX_VALUE)),
)


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (read, *row)
        for read, rows in ((whole_units, WHOLE), (plain_decimal, PLAIN), (milli_units, MILLI))
        for row in rows
    ],
)
def test_a_quantity_is_in_units_or_thousandths_rounded_up(read: Callable[[str], int], text: str, value: int) -> None:
    assert read(text) == value


NOT_WHOLE = (
    *("1mi", "1MI", "1K", "1MiB", "0x10", " 1", "1 ", "1 Mi", "", "1e3Ki", "Mi", "-1", "-0.5Gi", "1\n", "1e"),
    *("1_000", "١", "nan", "inf", ".", "+", "--1", "1" * 65, "1e1000"),
)
NOT_PLAIN = ("", "+1", "-1", " 1", "1Mi", "0x1", "1.0", "²", "١", "18446744073709551616", "9" * 5000)
NOT_EXACT = ("1500m", "0.5", "8Ei", "9223372036854775808", "9" * 70, "-1", "", "Mi", "\u0661")
NOT_MILLI = ("", "m", "1e3m", "-1", "2 ", "two", "\u0661", "1" * 65)


@pytest.mark.parametrize(
    ("read", "text", "remedy"),
    [
        *((whole_units, text, "") for text in NOT_WHOLE),
        *((plain_decimal, text, "; write for example 1048576") for text in NOT_PLAIN),
        *((exact_units, text, "") for text in NOT_EXACT),
        *((milli_units, text, "write for example 500m or 2") for text in NOT_MILLI),
    ],
)
def test_what_is_no_quantity_is_refused(read: Callable[[str], int], text: str, remedy: str) -> None:
    with pytest.raises(QuantityError, match=f"{remedy}$") as caught:
        read(text)
    assert len(str(caught.value)) < 300


@given(
    st.integers(0, 2**62), st.sampled_from([("m", Fraction(1, 1000)), ("k", Fraction(1000)), ("Mi", Fraction(2**20))])
)
def test_suffixes_are_exact_and_round_up(number: int, suffix: tuple[str, Fraction]) -> None:
    text, factor = suffix
    exact = number * factor
    got = whole_units(f"{number}{text}")
    assert got == MAX_VALUE or (got >= exact and got - exact < 1)
    assert got <= MAX_VALUE


@given(st.text(max_size=80))
def test_any_text_gives_a_value_or_a_quantity_error(text: str) -> None:
    try:
        assert 0 <= whole_units(text) <= MAX_VALUE
    except QuantityError as error:
        message = str(error)
    else:
        message = ""
    assert len(message) < 1000


@pytest.mark.parametrize(
    ("units", "text"),
    [(0, "0"), (1, "1"), (1000, "1k"), (1023, "1023"), (1024, "1Ki"), (1536 << 10, "1536Ki"), (10**6, "1000000")],
)
def test_an_amount_is_printed_as_go_prints_it(units: int, text: str) -> None:
    assert binary_text(units) == text


@given(st.integers(0, 2**63 - 1))
def test_what_is_printed_is_read_back(units: int) -> None:
    assert exact_units(binary_text(units)) == units
    assert exact_units(f"{units % 10**12}000m") == units % 10**12
