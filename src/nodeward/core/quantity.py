"""Kubernetes quantities, read exactly as the API server reads them and rounded up to whole units.

Source: k8s.io/apimachinery/pkg/api/resource/quantity.go. Arithmetic is exact (`Fraction`), so nothing wraps: where Go's
`Value()` saturates or wraps at 2**63, this refuses or saturates as documented below.
"""

from collections.abc import Sequence
from re import compile as _compile
from typing import TYPE_CHECKING

from nodeward.core.errors import NodewardError

if TYPE_CHECKING:
    from fractions import Fraction


_EXACT = 6
"""An amount that is exact in so many characters is shown exactly."""
_MI = 1024 * 1024


def at_most(counts: Sequence[int], bounds_bits: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Pairs of nanoseconds and how many took no longer, from `counts` by the bits of their nanoseconds."""
    return tuple((1 << bits, sum(counts[: bits + 1])) for bits in bounds_bits)


MAX_VALUE = 2**63 - 1
_MAX_TEXT = 64
_PATTERN = _compile(r"([+-]?)(\d+\.?\d*|\.\d+)?(?:([eE][+-]?\d{1,3})|(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E))?")
_SUFFIX = {
    "Ki": (2**10, 1), "Mi": (2**20, 1), "Gi": (2**30, 1),
    "Ti": (2**40, 1), "Pi": (2**50, 1), "Ei": (2**60, 1),
    "n": (1, 10**9), "u": (1, 10**6), "m": (1, 10**3),
    "k": (10**3, 1), "M": (10**6, 1), "G": (10**9, 1),
    "T": (10**12, 1), "P": (10**15, 1), "E": (10**18, 1),
}  # fmt: skip
"""Each suffix as numerator and denominator."""
EXAMPLE = "write for example 1048576 or 1Mi"
"""The remedy where an amount is one of bytes."""
_PLAIN = _compile(r"([0-9]{1,19})(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E|)")
_PLAIN_MILLI = _compile(r"([0-9]{1,9})(m?)")
CPU_EXAMPLE = "write for example 500m or 2"
"""The remedy where an amount is one of CPUs."""
_WHOLE = {"": 1, **{suffix: above for suffix, (above, below) in _SUFFIX.items() if below == 1}}


class QuantityError(NodewardError):
    """The text is not a quantity, or not one that a limit can be."""


def whole_units(text: str) -> int:
    """The quantity in whole units (bytes for EPC), fractions rounded up, at most 2**63 - 1 as in Go's `Value()`.

    `1Mi` is 1048576, `0.5` is 1, `8Ei` saturates. Refuses what apimachinery refuses (`1mi`, `1MiB`, `0x10`, ` 1`,
    empty) and also the bare suffix (`Mi`, which apimachinery reads as 0) and negative values, which no limit can be.
    """
    number = _number(text, EXAMPLE)
    rounded_up: int = -(-number.numerator // number.denominator)
    return min(rounded_up, MAX_VALUE)


def milli_units(text: str, remedy: str = CPU_EXAMPLE) -> int:
    """The quantity in thousandths, fractions rounded up, at most 2**63 - 1 as in Go's `MilliValue()`: `500m` is 500,
    `1.5` is 1500. Refuses what `whole_units` refuses."""
    plain = _PLAIN_MILLI.fullmatch(text)
    if plain is not None:
        return int(plain[1]) * (1 if plain[2] else 1000)
    number = _number(text, remedy)
    rounded_up: int = -(-number.numerator * 1000 // number.denominator)
    return min(rounded_up, MAX_VALUE)


def exact_units(text: str, remedy: str = EXAMPLE) -> int:
    """The quantity in whole units, for what a person wrote: a fraction, or more than 2**63 - 1, is refused.

    `remedy` is what a refusal tells that person to write; an amount that is not one of bytes has another.
    """
    plain = _PLAIN.fullmatch(text)
    if plain is not None and (units := int(plain[1]) * _WHOLE[plain[2]]) <= MAX_VALUE:
        return units  # nearly every one; exact fractions cost ten times as much
    number = _number(text, remedy)
    if number.denominator != 1:
        raise QuantityError(f"{text!r} is not a whole number; {remedy}")
    if number > MAX_VALUE:
        raise QuantityError(f"{text!r} is more than {MAX_VALUE}, the largest amount there is; {remedy}")
    return number.numerator


def binary_text(units: int) -> str:
    """The amount as Go prints a quantity of the format BinarySI: `1536Ki`, `1000000`, and below 1024 also `1k`."""
    if units == 1000:
        return "1k"
    suffixes = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
    step = 0
    while units and units % 1024 == 0 and step < len(suffixes) - 1:
        units //= 1024
        step += 1
    return f"{units}{suffixes[step]}"


def size_text(value: int) -> str:
    """Bytes in binary units: exact where that is short, else with one place after the point, cut."""
    if value < 0:
        return f"-{size_text(-value)}"
    exact = binary_text(value)
    if (len(exact) <= _EXACT and not exact.isdigit()) or value < 1024:
        return exact
    unit, size = ("Mi", _MI) if value >= _MI else ("Ki", 1024)
    return f"{value * 10 // size / 10:.1f}{unit}"


def _number(text: str, remedy: str) -> "Fraction":
    from fractions import Fraction  # a tenth of what the OCI hook may take to start, and it needs plain decimals only

    if len(text) > _MAX_TEXT:
        raise QuantityError(f"quantity of {len(text)} characters: at most {_MAX_TEXT} are read; {remedy}")
    match = _PATTERN.fullmatch(text)
    if match is None or match[2] is None or not text.isascii():
        raise QuantityError(f"{text!r} is not a Kubernetes quantity; {remedy}")
    if match[1] == "-":
        raise QuantityError(f"{text!r} is negative, and a limit is 0 or more; {remedy}")
    exponent = int(match[3][1:]) if match[3] else 0
    number: Fraction = Fraction(match[2]) * Fraction(*_SUFFIX.get(match[4], (1, 1)))
    scaled: Fraction = number * 10**exponent if exponent >= 0 else number / 10**-exponent
    return scaled


def plain_decimal(text: str) -> int:
    """An unsigned 64-bit decimal number without sign, suffix or space: Go's `ParseUint(text, 10, 64)`.

    This is how upstream's sgx-epc plugin reads `epc-limit.nri.io/*`: `010` is ten, not the kernel's eight.
    """
    if not text or len(text) > _MAX_TEXT or not (text.isascii() and text.isdigit()) or int(text) >= 2**64:
        shown = text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "..."
        raise QuantityError(
            f"{shown!r} is not a whole number of bytes in decimal digits below 2**64; write for example 1048576"
        )
    return int(text)
