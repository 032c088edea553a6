"""Tables that nobody changes: another one with a change; and what is kept of a walk over one, which holds for that very
table and for no other."""

from collections.abc import Mapping
from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as st

from nodeward.engine.tables import KEPT, beside, kept, put, without

TABLES = st.dictionaries(st.integers(0, 50), st.integers())


@given(TABLES, st.lists(st.integers(0, 50), max_size=40), TABLES, st.integers(0, 50), st.booleans())
def test_a_change_makes_another_table_and_leaves_the_first(
    table: dict[int, int], taken_out: list[int], more: dict[int, int], key: int, as_view: bool
) -> None:
    for one in taken_out:
        table.pop(one, None)
    rows = list(table.items())
    given_table: Mapping[int, int] = MappingProxyType(table) if as_view else table
    assert list(put(given_table, key, -1).items()) == list((dict(rows) | {key: -1}).items())
    assert list(beside(given_table, more).items()) == list((dict(rows) | more).items())
    assert list(without(given_table, [key, *more]).items()) == [row for row in rows if row[0] not in (key, *more)]
    assert list(table.items()) == rows


def test_what_was_found_in_a_table_is_said_again_for_the_same_table_and_found_anew_for_an_equal_one() -> None:
    walks: list[Mapping[str, int]] = []

    @kept
    def total(table: Mapping[str, int], names: tuple[str, ...]) -> int:
        walks.append(table)
        return sum(table[name] for name in names)

    one, equal, other = {"a": 1, "b": 2}, {"a": 1, "b": 2}, {"a": 5, "b": 6}

    assert [total(one, ("a", "b")), total(one, (*"ab",)), total(one, ("a",))] == [3, 3, 1]
    assert [table is one for table in walks] == [True, True]
    assert [total(equal, ("a",)), total(other, ("a",))] == [1, 5]
    assert [table is known for table, known in zip(walks[2:], (equal, other), strict=True)] == [True, True]


def test_only_the_newest_are_kept() -> None:
    walks: list[int] = []

    @kept
    def same(number: int) -> int:
        walks.append(number)
        return number

    for number in range(KEPT + 1):
        same(number)
    same(KEPT)
    same(1)
    same(0)
    assert walks == [*range(KEPT + 1), 0]
