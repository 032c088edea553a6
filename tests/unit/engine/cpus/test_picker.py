"""The picker: exactly as many, whole cores, the narrowest group, the preferred kind, and always the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.engine.cpus.picker import Kind, drop, pick, spans
from nodeward.model.cpuset import CpuSet, ids, of, parse, text
from nodeward.model.topology import Level, Machine
from tests.unit.engine.cpus.machines import W, machine, shapes

LEVELS = (Level.L3, Level.NUMA, Level.PACKAGE)


@st.composite
def asked(draw: st.DrawFn) -> tuple[Machine, CpuSet, int]:
    shape = draw(shapes)
    cpus = ids(shape.online)
    free = of(draw(st.lists(st.sampled_from(cpus), unique=True))) if draw(st.booleans()) else shape.online
    return shape, free, draw(st.integers(0, free.bit_count()))


def idle(shape: Machine, cpus: CpuSet) -> CpuSet:
    return sum(core.cpus for core in shape.cores if core.cpus & cpus == core.cpus)


@given(asked(), st.sampled_from(Kind))
def test_it_takes_exactly_as_many_of_the_free_ones_and_the_same_again(
    question: tuple[Machine, CpuSet, int], kind: Kind
) -> None:
    shape, free, n = question
    got = pick(shape, free, n, kind)
    assert got & ~free == 0
    assert got.bit_count() == n
    assert pick(shape, free, n, kind) == got


@given(asked())
def test_it_breaks_at_most_one_core_where_one_package_has_enough_whole_ones(
    question: tuple[Machine, CpuSet, int],
) -> None:
    shape, free, n = question
    whole = idle(shape, free)
    threads = shape.cores[0].cpus.bit_count()
    if any((package.cpus & whole).bit_count() >= n for package in shape.packages):
        assert idle(shape, pick(shape, free, n)).bit_count() >= n - n % threads


@pytest.mark.parametrize("level", LEVELS)
@given(asked())
def test_it_stays_in_one_group_where_one_has_enough_whole_cores(
    level: Level, question: tuple[Machine, CpuSet, int]
) -> None:
    shape, free, n = question
    whole = idle(shape, free)
    if any((group.cpus & whole).bit_count() >= n for group in shape.groups(level)):
        assert spans(shape, pick(shape, free, n)) >= level


@given(asked())
def test_it_stays_in_one_package_where_one_has_enough(question: tuple[Machine, CpuSet, int]) -> None:
    shape, free, n = question
    if any((package.cpus & free).bit_count() >= n for package in shape.packages):
        assert spans(shape, pick(shape, free, n)) >= Level.PACKAGE


@given(asked(), st.data())
def test_what_is_dropped_is_exactly_as_many_and_leaves_whole_cores(
    question: tuple[Machine, CpuSet, int], data: st.DataObject
) -> None:
    shape, held, _ = question
    n = data.draw(st.integers(0, held.bit_count()))
    gone = drop(shape, held, n)
    assert gone & ~held == 0
    assert gone.bit_count() == n
    if held == idle(shape, held) and len(shape.packages) == 1:
        keep, threads = held.bit_count() - n, shape.cores[0].cpus.bit_count()
        assert idle(shape, held & ~gone).bit_count() >= keep - keep % threads


@pytest.mark.parametrize(
    ("free", "n", "expected"),
    [
        pytest.param("0-31", 2, "0,16", id="a whole core"),
        pytest.param("0-31", 3, "0-1,16", id="a whole core and one CPU"),
        pytest.param("1-31", 1, "16", id="one CPU of a core that is in use"),
        pytest.param("1-15,17-31", 8, "4-7,20-23", id="a whole node rather than six of another and two more"),
        pytest.param("1-15,17-31", 6, "1-3,17-19", id="the node that has just as many"),
        pytest.param("0-2,4-7,16-18,20-23", 10, "0,4-7,16,20-23", id="a whole node first and the rest in one core"),
        pytest.param("0-3,8-11,24-27", 4, "8-9,24-25", id="whole cores rather than the first CPUs"),
        pytest.param("0-7,24-27", 8, "0-7", id="one package though all its cores are in use"),
        pytest.param("0-31", 16, "0-7,16-23", id="a whole package"),
        pytest.param("0-31", 0, "", id="none"),
    ],
)
def test_on_w(free: str, n: int, expected: str) -> None:
    assert text(pick(W, parse(free), n)) == expected


@pytest.mark.parametrize("free", [pytest.param("1-2", id="too few"), pytest.param("1-2,99", id="one is not online")])
def test_who_asks_for_more_than_are_free_has_a_fault(free: str) -> None:
    with pytest.raises(ValueError, match="3 CPUs of 2"):
        pick(W, parse(free), 3)


@pytest.mark.parametrize(
    ("held", "n", "expected"),
    [
        pytest.param("0-1,16", 1, "1", id="the CPU that leaves a whole core"),
        pytest.param("0-3,8,16-19,24", 2, "8,24", id="the core far from the others"),
        pytest.param("0-3,8,16-19,24", 8, "1-3,8,17-19,24", id="the rest is in the node that has most"),
        pytest.param("0,16", 2, "0,16", id="all"),
    ],
)
def test_dropped_on_w(held: str, n: int, expected: str) -> None:
    assert text(drop(W, parse(held), n)) == expected


@pytest.mark.parametrize(
    ("near", "n", "expected"),
    [
        pytest.param("4", 1, "20", id="the other thread of its core"),
        pytest.param("4,20", 2, "5,21", id="a core of its node"),
        pytest.param("8,24", 8, "9-11,13,25-27,29", id="its node, then its package"),
    ],
)
def test_more_is_taken_close_by(near: str, n: int, expected: str) -> None:
    held = parse(near)
    free = W.online & ~held & ~parse("0,16,12,28")
    assert text(pick(W, free, n, near=held)) == expected


@pytest.mark.parametrize(
    ("kind", "n", "expected"),
    [
        pytest.param(Kind.HIGH, 3, "0-1,8", id="high takes no efficient core"),
        pytest.param(Kind.LOW, 3, "4-6", id="low takes efficient ones"),
        pytest.param(Kind.HIGH, 9, "0-4,8-11", id="one efficient core where the others do not suffice"),
    ],
)
def test_the_preferred_kind_comes_first(kind: Kind, n: int, expected: str) -> None:
    hybrid = machine(packages=1, nodes=1, cores=8, threads=2, efficient=parse("4-7,12-15"))
    assert text(pick(hybrid, parse("0-11"), n, kind)) == expected
