"""What a runtime's record and a request for an update say of CPUs, whichever protocol brings it."""

import pytest

from nodeward.model import cpuset
from nodeward.model.workload import CpuRecord
from nodeward.wire.cpu_record import MAX_QUOTA, cpu_record

BEFORE = CpuRecord(1024, 100_000, 100_000, 0b11)


def test_what_an_update_does_not_say_stays_and_no_limit_is_said_by_less_than_zero() -> None:
    assert cpu_record(0, 0, 0, "", BEFORE) == (BEFORE, ())
    assert cpu_record(2048, -1, 0, "", BEFORE) == (CpuRecord(2048, -1, 100_000, 0b11), ())
    assert cpu_record(0, 0, 0, "2-3,8", BEFORE) == (CpuRecord(1024, 100_000, 100_000, 0b1_0000_1100), ())


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ((-1, 0, 0, ""), "cpu.shares is -1, and the kernel knows 0 to 262144"),
        ((262_145, 0, 0, ""), "cpu.shares is 262145, and the kernel knows 0 to 262144"),
        ((0, -2, 0, ""), f"the CPU quota is -2, and the kernel knows -1 to {MAX_QUOTA}"),
        ((0, 0, 2**64 - 1, ""), f"the CPU period is {2**64 - 1}, and the kernel knows 0 to 1000000"),
        ((0, 0, 0, "3-1"), "the cpuset: the range '3-1' runs backwards; write CPUs as the kernel does, such as 0-3,8"),
        ((0, 0, 0, "0-4000000000"), "the cpuset: '0-4000000000' is neither a CPU nor a range; write"),
    ],
)
def test_an_impossible_value_counts_as_not_said_and_a_sentence_tells_it(
    said: tuple[int, int, int, str], fault: str
) -> None:
    record, (sentence,) = cpu_record(*said, BEFORE)
    assert record == BEFORE
    assert sentence.startswith(fault)


def test_the_largest_set_is_read_whole() -> None:
    assert cpu_record(0, 0, 0, f"0-{cpuset.MAX_CPU}")[0].cpus.bit_count() == cpuset.MAX_CPU + 1
