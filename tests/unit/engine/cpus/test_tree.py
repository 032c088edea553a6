"""The tree allocator: places as in the examples of nri-plugins' rules, on two packages of two NUMA nodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.engine.cpus.tree import Wish, grow, shrink
from nodeward.model.cpuset import parse, text
from nodeward.model.topology import Machine
from tests.unit.engine.cpus.machines import W, shapes

BALANCED, PACKED, SPREAD = Wish(balanced=True), Wish(), Wish(spread=True)


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        pytest.param(BALANCED, ["10", "4,20", "12-13,28", "1-2,17-18", "8-9,24-26"], id="balanced"),
        pytest.param(PACKED, ["16", "1,17", "2-3,18", "4-5,20-21", "8-10,24-25"], id="packed"),
    ],
)
def test_balloons_of_one_to_five_cpus(wish: Wish, expected: list[str]) -> None:
    free, found = W.online & ~1, list[str]()
    for n in range(1, 6):
        got = grow(W, 0, free, n, wish)
        free &= ~got
        found.append(text(got))
    assert found == expected


def test_packed_ones_grow_beside_what_they_have_and_give_the_last_back() -> None:
    first, fifth = parse("16"), parse("8-10,24-25")
    free = W.online & ~parse("0-5,8-10,16-18,20-21,24-25")
    more = grow(W, first, free, 3, PACKED)
    assert text(more) == "6-7,22"
    free &= ~more
    fifth |= grow(W, fifth, free, 4, PACKED)
    assert text(fifth) == "8-10,12-13,24-25,28-29"
    gone = shrink(W, fifth, free & ~fifth, 3, PACKED)
    assert text(gone) == "13,28-29"


def test_first_threads_come_before_second_ones_where_that_is_wished() -> None:
    assert text(grow(W, 0, W.online, 4, SPREAD)) == "0-3"
    assert text(grow(W, 0, W.online & ~3, 4, SPREAD)) == "2-3,16-17"


def test_hints_hold_where_they_suffice_and_are_given_back_last() -> None:
    wish = Wish(hints=(parse("5,9"), ~parse("0-4")))
    assert text(grow(W, 0, W.online, 2, wish)) == "5,9"
    assert grow(W, 0, W.online, 3, wish) & parse("0-4") == 0
    assert text(shrink(W, parse("1,5,9,21"), 0, 2, wish)) == "1,21"


@given(
    machine=shapes,
    wish=st.builds(Wish, st.booleans(), st.booleans(), hints=st.tuples(st.integers(0, 2**72))),
    held=st.integers(0, 2**72),
    part=st.floats(0, 1),
)
def test_exactly_as_many_of_what_there_is(machine: Machine, wish: Wish, held: int, part: float) -> None:
    held &= machine.online
    free = machine.online & ~held
    more = grow(machine, held, free, int(part * free.bit_count()), wish)
    assert more & ~free == 0
    assert more.bit_count() == int(part * free.bit_count())
    less = shrink(machine, held, free, int(part * held.bit_count()), wish)
    assert less & ~held == 0
    assert less.bit_count() == int(part * held.bit_count())
