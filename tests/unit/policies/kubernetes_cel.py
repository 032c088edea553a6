"""The functions that Kubernetes adds to CEL, as far as deploy/policies uses them, for an engine that lacks them.

Written from what Kubernetes documents of its CEL libraries. It proves nothing about an API server: a real one is asked
about the same pods in tests/real/test_policies.py, and the words that it must say are those that must be said here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import celpy
from celpy import celtypes

_FORM = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DIGITS = 18
"""More make no integer: Kubernetes keeps such a quantity as a decimal of any length."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """An amount, and whether it is written in powers of 1024."""

    amount: Fraction
    binary: bool = False

    def __str__(self) -> str:
        """The one way in which the API server writes it."""
        if self.binary and abs(self.amount) >= 1024 and self.amount.denominator == 1:
            steps = max(step for step in range(7) if self.amount % 1024**step == 0)
            return f"{self.amount / 1024**steps}{['', *_BINARY][steps]}"
        if not self.amount:
            return "0"
        suffix, power = max(
            ((name, power) for name, power in _DECIMAL.items() if self.amount % Fraction(10) ** power == 0),
            key=lambda one: one[1],
        )
        return f"{self.amount / Fraction(10) ** power}{suffix}"

    def is_integer(self) -> bool:
        """Whether CEL reads it as an integer."""
        return self.amount.denominator == 1 and abs(self.amount) < 10**_DIGITS


def quantity(text: str) -> Quantity:
    """The quantity of a text; ValueError for any other text."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no quantity")
    number, suffix = Fraction(found[1]), found[2] or ""
    if suffix in _BINARY:
        return Quantity(number * 1024 ** _BINARY[suffix], binary=True)
    power = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    return Quantity(number * Fraction(10) ** power)


def is_quantity(text: str) -> bool:
    """Whether a text is a quantity."""
    return _FORM.fullmatch(text) is not None


def _integer(of: Quantity) -> int:
    if not of.is_integer():
        raise ValueError(f"{of} is no integer")
    return int(of.amount)


def _part(text: str, start: int, end: int) -> str:
    if not 0 <= start <= end <= len(text):
        raise ValueError(f"{text!r} has no characters {start} to {end}")
    return text[start:end]


def _functions() -> Mapping[str, Callable[..., Any]]:
    """By name, as the engine calls them: the value before the dot comes first."""
    integer, string, true = celtypes.IntType, celtypes.StringType, celtypes.BoolType
    return {
        "quantity": quantity,
        "isQuantity": lambda text: true(is_quantity(text)),
        "isInteger": lambda of: true(of.is_integer()),
        "asInteger": lambda of: integer(_integer(of)),
        "isGreaterThan": lambda one, other: true(one.amount > other.amount),
        "compareTo": lambda one, other: integer((one.amount > other.amount) - (one.amount < other.amount)),
        "sum": lambda numbers: integer(sum(numbers)),
        "max": max,
        "indexOf": lambda members, one: integer(members.index(one) if one in members else -1),
        "find": lambda text, pattern: string(found[0] if (found := re.search(pattern, text)) else ""),
        "findAll": lambda text, pattern: celtypes.ListType([string(one[0]) for one in re.finditer(pattern, text)]),
        "join": lambda parts, between: string(between.join(parts)),
        "split": lambda text, at: celtypes.ListType([string(part) for part in text.split(at)]),
        "replace": lambda text, old, new: string(text.replace(old, new)),
        "substring": lambda text, start, end: string(_part(text, start, end)),
    }


_ENGINE = celpy.Environment()


@cache
def _program(expression: str) -> celpy.Runner:
    return _ENGINE.program(_ENGINE.compile(expression), functions=dict(_functions()))


def evaluate(expression: str, names: Mapping[str, Any]) -> Any:
    """The value of an expression where these names stand for these values; CELEvalError where it has none."""
    return _program(expression).evaluate(dict(names))


class Variables(celtypes.MapType):
    """`variables` of a policy: each is evaluated when it is first asked for, as in the API server."""

    def __init__(self, expressions: Mapping[str, str], names: Mapping[str, Any]) -> None:
        super().__init__()
        self._expressions, self._names = expressions, {**names, "variables": self}

    def __contains__(self, name: object) -> bool:
        return name in self._expressions

    def __getitem__(self, name: Any) -> Any:
        if not dict.__contains__(self, name):
            dict.__setitem__(self, name, evaluate(self._expressions[name], self._names))
        return dict.__getitem__(self, name)

    def get(self, key: Any, default: Any = None) -> Any:
        """The value; the engine asks for a field in this way."""
        return self[key]
