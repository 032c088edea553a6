"""What the field of a row is to people who read metrics, said at the field: `used: int = gauge("nodeward_...", "...")`.

`people.metrics` walks the picture of the node and makes every family of these. A value that is None has no series.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Protocol, TypeVar, get_type_hints

F = TypeVar("F", bound=Callable[..., object])


class Durations(Protocol):
    """A histogram's series. `at_most` has pairs: nanoseconds, and how many took no longer."""

    @property
    def at_most(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def count(self) -> int: ...
    @property
    def sum_ns(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Label:
    """The value is a label of every series of its row and of the rows below. `name` is the field's where none is given;
    `named`: of those series only that name it in their `labels`."""

    name: str = ""
    named: bool = False


@dataclass(frozen=True, slots=True)
class Info:
    """A family whose series is 1 and tells by its labels: each field that says it is one of them, by its own name."""

    family: str
    help: str


@dataclass(frozen=True, slots=True)
class Metric:
    """The value is a series of this family: a number or a bool as it is, a collection by its length, a text by what
    `of` makes of it, rows by their durations where it is a histogram."""

    name: str
    help: str
    kind: str = "gauge"
    per: float = 1
    """The value in the family's base unit is divided by it: 1e9 for nanoseconds."""
    by: str = ""
    """A label for the key of a mapping, or for a text: its series is 1."""
    every: Iterable[str] = ()
    """Of such a text all that it can be: the others' series are 0."""
    of: Callable[[Any], object] | None = None
    labels: tuple[str, ...] | None = None
    """Of the labels of its row and those above these, LABEL or LABEL=THAT ONE; None for all."""
    fixed: tuple[tuple[str, str], ...] = ()
    """A label, and what it is here; its place in the family is after the row's own."""
    adds: bool = False
    """Series with the same labels are added up, else the first one counts."""
    absent: object = None
    """The value that stands for one that is not known."""
    given: str = ""
    """A field of the same row without which the value means nothing."""

    def at(self, **fixed: str) -> "Metric":
        """The family's series with these labels."""
        return replace(self, fixed=tuple(fixed.items()))


@dataclass(frozen=True, slots=True)
class Rows:
    """At most so many of the rows are shown, of those `where` it says so; `left_out` counts the others. With `once` one
    row stands for all with the same labels: the first, or the first for which `prefers` is greatest."""

    most: int
    left_out: Metric | None = None
    where: Callable[[Any], bool] = field(default=bool)
    once: bool = False
    prefers: Callable[[Any], int] | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """The value is a mapping of numbers whose keys are the names of several metrics: NAME, or NAME_{LABEL}_NAME where a
    part of the key is a label's value."""

    metrics: Mapping[str, Metric]

    def each(self) -> Iterable[Metric]:
        """A metric of the whole mapping for each."""
        for name, one in self.metrics.items():
            start, label, end = (*re.split("[{}]", name), "", "")[:3]
            yield replace(one, by=label, of=partial(_between, start, end) if label else partial(_of, name))


def _of(name: str, values: Mapping[str, object]) -> object:
    return values.get(name)


def _between(start: str, end: str, values: Mapping[str, object]) -> Mapping[str, object]:
    return {
        name[len(start) : len(name) - len(end)]: value
        for name, value in values.items()
        if name.startswith(start) and name.endswith(end)
    }


Total = partial(Metric, kind="counter")
"""A value that only rises; the name ends with `_total`."""
Histogram = partial(Metric, kind="histogram")
"""Durations; the name ends with `_duration_seconds`."""
Told = Label | Info | Metric | Rows | Named
_TOLD = "told"


def shown(*told: Told) -> dict[str, tuple[Told, ...]]:
    """The metadata of a field that must be given."""
    return {_TOLD: told}


def known(*told: Told, **default: Any) -> Any:
    """A field that says these of itself; None unless a `default` or a `default_factory` is given."""
    return field(**(default or {"default": None}), metadata=shown(*told))


def gauge(name: str, meaning: str, default: object = None, **more: Any) -> Any:
    """A field whose value is a series that rises and falls."""
    return known(Metric(name, meaning, **more), default=default)


def counter(name: str, meaning: str, default: object = None, **more: Any) -> Any:
    """A field whose value is a series that only rises."""
    return known(Total(name, meaning, **more), default=default)


def shows(*told: Told) -> Callable[[F], F]:
    """A property's function that says these of what it gives."""

    def say(function: F) -> F:
        function.__dict__[_TOLD] = told
        return function

    return say


def told_by(kind: type) -> Iterator[tuple[str, object, tuple[Told, ...]]]:
    """Each field of a class of rows, and each property that says something: its name, its type, what it says."""
    hints = get_type_hints(kind)
    for one in fields(kind):
        yield one.name, hints[one.name], one.metadata.get(_TOLD, ())
    for name, member in vars(kind).items():
        if isinstance(member, property) and (told := vars(member.fget).get(_TOLD)):
            yield name, get_type_hints(member.fget)["return"], told


@dataclass(frozen=True, slots=True)
class Family:
    """One family, as the catalogue has it. `kind` is gauge, counter or histogram."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str
