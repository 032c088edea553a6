"""What is kept of a walk over a table: it holds for that very table, and for no other."""

from collections.abc import Mapping

from nodeward.engine.tables import KEPT, kept


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
