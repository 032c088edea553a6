"""What a metric is: its family's declaration, and its series."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Family:
    """One family. `kind` is gauge, counter or histogram."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


class Durations(Protocol):
    """A histogram's series. `at_most` has pairs: nanoseconds, and how many took no longer."""

    @property
    def at_most(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def count(self) -> int: ...
    @property
    def sum_ns(self) -> int: ...


Labels = dict[str, str]
Values = Sequence[tuple[Labels, float | Durations]]
"""Series of one family: a number each, or for a histogram its durations."""
Series = tuple[Family, Values]
Clean = Callable[[str], str]
"""Makes a label's value of a text that others wrote."""


def gauge(name: str, labels: tuple[str, ...], text: str) -> Family:
    """A value that rises and falls."""
    return Family(name, "gauge", labels, text)


def counter(name: str, labels: tuple[str, ...], text: str) -> Family:
    """A value that only rises; the name ends with `_total`."""
    return Family(name, "counter", labels, text)
