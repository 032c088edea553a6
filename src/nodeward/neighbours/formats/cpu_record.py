"""Reads a container's CPU fields from a runtime's record or request, bounded. Pure.

In both protocols 0, or an empty list, says nothing: of a request for an update the record's value stays then.
"""

from nodeward.core import cpuset
from nodeward.core.cpuset import CpuSet
from nodeward.core.workload import NO_RECORD, CpuRecord

MAX_SHARES = 262_144
MAX_PERIOD = 1_000_000
MAX_QUOTA = 2**44
"""The kernel's bounds (kernel/sched/sched.h, core.c): shares, and microseconds of a period and of a quota."""


def cpu_record(
    shares: int, quota: int, period: int, cpus: str, before: CpuRecord = NO_RECORD, mems: str = ""
) -> tuple[CpuRecord, tuple[str, ...]]:
    """The record of `before` with these values, and a sentence for each value that is impossible and was ignored."""
    if not (shares or quota or period or cpus or mems):
        return before, ()
    faults: list[str] = []
    record = CpuRecord(
        _within(shares, 0, MAX_SHARES, "cpu.shares", faults) or before.shares,
        _within(quota, -1, MAX_QUOTA, "the CPU quota", faults) or before.quota,
        _within(period, 0, MAX_PERIOD, "the CPU period", faults) or before.period,
        _set(cpus, faults) or before.cpus,
        before.unread and not shares,
        _set(mems, faults) or before.mems,
    )
    return record, tuple(faults)


def _within(value: int, low: int, high: int, what: str, faults: list[str]) -> int:
    if low <= value <= high:
        return value
    faults.append(f"{what} is {value}, and the kernel knows {low} to {high}")
    return 0


def _set(written: str, faults: list[str]) -> CpuSet:
    try:
        return cpuset.parse(written)
    except ValueError as error:
        faults.append(f"the cpuset: {error}")
        return 0
