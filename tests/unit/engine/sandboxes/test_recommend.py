"""Measured overheads: what is kept of them, percentiles, and what a RuntimeClass should declare."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.engine.sandboxes.recommend import (
    MOST_COUNTED,
    PERCENTILES,
    bound,
    percentile,
    recommend,
    unaccounted,
    with_margin,
    with_sample,
)
from nodeward.model.sandboxes import Measured, Usage
from nodeward.model.settings import SandboxesSettings
from tests.unit.engine.sandboxes.build import MIB

FEW = SandboxesSettings(samples=100)


def measured(*samples: tuple[int | None, int | None]) -> Measured:
    """Memory and CPU of each."""
    kept = Measured()
    for number, (memory, cpu_m) in enumerate(samples):
        kept = with_sample(kept, Usage(vmm=memory, shim=0, overhead_cpu_m=cpu_m), is_new=not number)
    return kept


@given(st.integers(0, 1 << 50))
def test_a_bound_is_at_most_some_three_per_cent_above(value: int) -> None:
    upper = bound(value)
    assert value <= upper <= value + value // 31
    assert bound(upper) == upper


@given(st.lists(st.integers(0, 1 << 40), min_size=1), st.integers(1, 100), st.integers(1, 100))
def test_percentiles_rise_and_are_right_to_a_bound(values: list[int], one: int, other: int) -> None:
    table = measured(*((value, None) for value in values)).memory
    low, high = percentile(table, min(one, other)), percentile(table, max(one, other))
    assert (low or 0) <= (high or 0)
    exact = sorted(values)[-(-len(values) * one // 100) - 1]
    assert percentile(table, one) == bound(exact)


def test_there_is_no_percentile_of_nothing() -> None:
    assert [percentile({}, percent) for percent in PERCENTILES] == [None, None, None]


def test_too_few_samples_recommend_nothing_and_say_so() -> None:
    found = recommend(measured(*[(MIB, 5)] * 99), FEW)
    assert (found.memory, found.cpu_m, found.why) == (None, None, "99 of 100 samples so far, of 1 sandbox")


def test_the_99th_percentile_and_a_margin_are_recommended_in_round_numbers() -> None:
    kept = measured(*[(100 * MIB, 30)] * 98, *[(200 * MIB, 90)] * 2)
    found = recommend(kept, FEW)
    assert (found.memory, found.cpu_m) == (220 * MIB, 100)
    assert found.why == "the 99th percentile of 100 samples of 1 sandbox, and 10 % more"


def test_of_what_was_measured_too_little_nothing_is_recommended() -> None:
    found = recommend(measured(*[(MIB, None)] * 100), FEW)
    assert (found.memory, found.cpu_m) == (10 * MIB, None)


def test_older_samples_count_less_and_go_in_the_end() -> None:
    kept, sample = Measured({bound(900 * MIB): 1, bound(400 * MIB): MOST_COUNTED - 1}), Usage(vmm=100 * MIB, shim=0)
    kept = with_sample(kept, sample, is_new=False)
    assert kept.memory == {bound(400 * MIB): MOST_COUNTED // 2 - 1, bound(100 * MIB): 1}
    kept = Measured({1: 2 * MOST_COUNTED})
    assert with_sample(kept, sample, is_new=False, needed=MOST_COUNTED).memory[1] == 2 * MOST_COUNTED


def test_what_is_not_known_is_no_sample() -> None:
    assert with_sample(Measured(), Usage(vmm=1), is_new=True) == Measured()


@given(st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 10**6)), max_size=40))
def test_what_is_kept_does_not_grow_with_equal_samples(samples: list[tuple[int, int]]) -> None:
    once, often = measured(*samples), measured(*samples * 3)
    assert list(often.memory) == list(once.memory)
    assert often.samples == 3 * once.samples


@pytest.mark.parametrize(
    ("usages", "expected"),
    [
        pytest.param([], (None, None, 0, 0), id="no sandbox"),
        pytest.param([None, Usage()], (None, None, 0, 2), id="nothing known"),
        pytest.param([Usage(outside=0, outside_cpu_m=0)], (0, 0, 0, 0), id="all is in the pods"),
        pytest.param(
            [Usage(outside=95 * MIB, outside_cpu_m=7), Usage(outside=MIB, outside_cpu_m=1), Usage()],
            (96 * MIB, 8, 2, 1),
            id="some",
        ),
        pytest.param(
            [Usage(outside=95 * MIB, outside_cpu_m=7), Usage(outside=MIB)], (96 * MIB, None, 2, 0), id="one CPU unknown"
        ),
    ],
)
def test_the_nodes_unaccounted_cost(
    usages: list[Usage | None], expected: tuple[int | None, int | None, int, int]
) -> None:
    found = unaccounted(usages)
    assert (found.memory, found.cpu_m, found.sandboxes, found.unknown) == expected
    assert found.reserved_memory == (None if found.memory is None else with_margin(found.memory, 10 * MIB))


def test_a_margin_is_rounded_up_to_whole_steps() -> None:
    assert [with_margin(amount, 10) for amount in (0, 1, 9, 10, 100)] == [0, 10, 10, 20, 110]
