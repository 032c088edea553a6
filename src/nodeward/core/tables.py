"""Changes of frozen mappings: one shallow copy a step. 512 entries cost a microsecond, so no cleverer structure. What
is found by a walk over a whole one is kept for as long as nobody changes it."""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import TypeVar, TypeVarTuple

K = TypeVar("K")
V = TypeVar("V")
Ts = TypeVarTuple("Ts")
KEPT = 4
"""Results: one or two kinds of key, and the state that somebody looks at meanwhile."""


def copied(table: Mapping[K, V]) -> dict[K, V]:
    """The table, for a change. `dict(table)` puts each entry in anew where one was taken out before, as it is from the
    first container that ends: ten times the cost of `copy`."""
    return table.copy() if isinstance(table, dict) else dict(table)


def put(table: Mapping[K, V], key: K, value: V) -> dict[K, V]:
    """The table with `key` set."""
    new = copied(table)
    new[key] = value
    return new


def beside(table: Mapping[K, V], more: Mapping[K, V]) -> dict[K, V]:
    """The table with all of `more` set."""
    new = copied(table)
    new.update(more)
    return new


def without(table: Mapping[K, V], keys: Iterable[K]) -> Mapping[K, V]:
    """The table without `keys`; keys that are not there do not matter, and without any it is the same one."""
    gone = [key for key in keys if key in table]
    if not gone:
        return table
    new = copied(table)
    for key in gone:
        new.pop(key, None)
    return new


def as_before(table: Mapping[K, V], new: Mapping[K, V]) -> Mapping[K, V]:
    """The new table; the one from before where it says the same, so that what was found by that is known to hold."""
    return table if table == new else new


def kept(work: Callable[[*Ts], V]) -> Callable[[*Ts], V]:
    """`work`, a pure function over values that nobody changes, with its newest results: for the same objects (not for
    equal ones, which it would take a walk to find out; but for words, numbers, and tuples of these) it says the same
    object again, which nobody may change either."""
    newest: list[tuple[tuple[tuple[*Ts], V], ...]] = [()]

    @wraps(work)
    def found(*given: *Ts) -> V:
        known = newest[0]
        for before, result in known:
            if all(map(_same, before, given)):
                return result
        result = work(*given)
        newest[0] = ((given, result), *known[: KEPT - 1])
        return result

    return found


def _same(one: object, other: object) -> bool:
    return one is other or (isinstance(one, str | int | tuple) and one == other)
