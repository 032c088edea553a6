"""What is a quantity, and how much: our reader and Kubernetes' own code on the same seeded texts.

Where we refuse on purpose what Kubernetes reads is a case of its own, with its reason in tests/contract/exceptions.py.
"""

import json
import random
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import pytest

from nodeward.core.quantity import MAX_VALUE, QuantityError, exact_units, whole_units
from tests.patience import scaled
from tests.peers.find import require

WITHIN_S = scaled(60.0)


@dataclass(frozen=True, slots=True)
class Reading:
    error: str
    value: int
    exact: str
    """The amount as a decimal number."""
    sign: int


def readings(texts: Sequence[str]) -> list[Reading]:
    program = str(require("quantities") / "quantities")
    asked = "".join(f"{json.dumps(text)}\n" for text in texts)
    done = subprocess.run([program], input=asked, capture_output=True, text=True, timeout=WITHIN_S, check=True)
    return [Reading(**json.loads(line)) for line in done.stdout.splitlines()]


TEXTS = 1000
"""Of each case."""
SUFFIXES = ("", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
WRONG = (
    *("Mi ", " Mi", "٣", "K", "ki", "mi", "KI", "MiB", "B", "b", "i", "g", "Zi", "Y", "mm", "e", "E+", "e1.5", "e1e1"),
    "x",
)
"""What looks like a suffix and is none."""
CHOSEN = re.compile(r"-.*|[+]?\.?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?\d+)?|.{65,}", re.DOTALL)
"""What we refuse whatever Kubernetes makes of it."""
Source = random.Random


def digits(source: Source, most: int) -> str:
    return "".join(source.choice("0123456789") for _ in range(source.randint(1, most)))


def decimal(source: Source, most: int = 8) -> str:
    """With a point at any place, or with none."""
    found = digits(source, most)
    at = source.randint(-len(found), len(found))
    return found if at < 0 else f"{found[:at]}.{found[at:]}"


def garbage(source: Source) -> str:
    while True:
        text = "".join(source.choice("0129.+-eEKMGTPEikmun x_\n") for _ in range(source.randint(0, 7)))
        if CHOSEN.fullmatch(text) is None:
            return text


CASES: Mapping[str, Callable[[Source], str]] = {
    "whole_numbers": lambda source: digits(source, 12) + source.choice(SUFFIXES),
    "decimals": lambda source: decimal(source) + source.choice(SUFFIXES),
    "with_a_plus": lambda source: "+" + decimal(source) + source.choice(SUFFIXES),
    "exponents": lambda source: (
        f"{decimal(source)}{source.choice('eE')}{source.choice(('', '+', '-'))}{digits(source, 2)}"
    ),
    "huge": lambda source: decimal(source, 40) + source.choice(SUFFIXES),
    "around_the_largest": lambda source: str(MAX_VALUE + source.randint(-3, 3)) + source.choice(("", ".5", "e0", "k")),
    "tiny": lambda source: f"0.{'0' * source.randint(0, 20)}{digits(source, 4)}{source.choice(SUFFIXES)}",
    "wrong_suffixes": lambda source: decimal(source) + source.choice(WRONG),
    "garbage": garbage,
    "negative": lambda source: "-" + decimal(source) + source.choice(SUFFIXES),
    "suffix_alone": lambda source: source.choice(("", "+", ".", "+.")) + source.choice((*SUFFIXES[1:], "e3")),
    "over_64_characters": lambda source: "0" * 64 + decimal(source),
    "value_of_more_than_fits": lambda source: str(MAX_VALUE + source.randint(1, 9)) + source.choice(("k", "M", "e3")),
}
WRAPS = "value_of_more_than_fits"


def ours(read: Callable[[str], int], text: str) -> int | None:
    """None for what is refused."""
    try:
        return read(text)
    except QuantityError:
        return None


def whole(said: Reading, as_it_wraps: bool) -> int | None:
    """What it is in whole units; of more than fits the most that fits, unless one wants Go's `Value()` as it is."""
    if said.error:
        return None
    return MAX_VALUE if Fraction(said.exact) > MAX_VALUE and not as_it_wraps else said.value


def exactly(said: Reading) -> tuple[int | None, ...]:
    """What it may be where only whole numbers that fit are taken. Kubernetes cuts some of those that are larger to the
    largest, which then do not fit for us."""
    amount = None if said.error else Fraction(said.exact)
    if amount is None or amount.denominator != 1 or amount > MAX_VALUE:
        return (None,)
    return (int(amount),) if amount < MAX_VALUE else (MAX_VALUE, None)


@pytest.mark.parametrize("side", ["apimachinery"])
@pytest.mark.parametrize("case", CASES)
def test_quantity(case: str, side: str) -> None:
    source = random.Random(case)
    texts = list(dict.fromkeys(CASES[case](source) for _ in range(TEXTS)))
    said = readings(texts)

    assert [
        one for one in zip(texts, said, strict=True) if ours(whole_units, one[0]) != whole(one[1], case == WRAPS)
    ] == []
    assert [one for one in zip(texts, said, strict=True) if ours(exact_units, one[0]) not in exactly(one[1])] == []
