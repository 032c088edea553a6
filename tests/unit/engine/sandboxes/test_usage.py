"""What a sandbox costs: rates between two readings, counters that never fall, and no 0 for what is not known."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.engine.sandboxes.usage import usage
from nodeward.model.sandboxes import CgroupReading, Place, Task, TaskRole, Usage, VmReading
from tests.unit.engine.sandboxes.build import GIB, IN, MIB, OVERHEAD, POD, SECOND, pod, reading, shim, task, vcpu, vmm


def overhead(memory: int | None = None, cpu_ns: int | None = None, path: str = OVERHEAD) -> CgroupReading:
    return CgroupReading(Place.OVERHEAD, path, memory, None, cpu_ns)


def told(*readings: VmReading) -> Usage:
    """What is said after these, one after the other."""
    known: Usage | None = None
    for before, now in zip((None, *readings[:-1]), readings, strict=True):
        known = usage(before, now, known)
    assert known is not None
    return known


# ---- memory


def test_guest_memory_is_told_apart_from_the_vmm() -> None:
    found = usage(None, reading(shim(), vmm(), cgroups=(pod(memory=700 * MIB),)))
    assert (found.memory, found.guest, found.vmm, found.shim) == (700 * MIB, 512 * MIB, 88 * MIB, 40 * MIB)
    assert (found.outside, found.virtiofsd, found.overhead) == (0, None, 128 * MIB)


@pytest.mark.parametrize(
    ("apart", "outside"),
    [
        pytest.param((overhead(90 * MIB),), 90 * MIB, id="its own cgroup"),
        pytest.param((overhead(),), 40 * MIB, id="one that does not count memory"),
        pytest.param((), 40 * MIB, id="none that was read"),
        pytest.param((overhead(9 * GIB, path="/kata"),), 40 * MIB, id="one that all sandboxes share"),
    ],
)
def test_what_is_charged_outside_the_pod_counts(apart: tuple[CgroupReading, ...], outside: int) -> None:
    at = apart[0].path if apart else "/system.slice/containerd.service"
    found = usage(None, reading(shim(at), vmm(), cgroups=(pod(memory=GIB), *apart)))
    assert (found.outside, found.memory) == (outside, GIB + outside)


@pytest.mark.parametrize(
    ("seen", "names"),
    [
        pytest.param(reading(shim(), vmm()), ("memory", "outside"), id="no cgroup"),
        pytest.param(reading(shim(), vmm(), guest=None), ("guest", "vmm", "overhead"), id="no mappings"),
        pytest.param(reading(shim(), vmm(rss=MIB)), ("vmm", "overhead"), id="mappings that contradict it"),
        pytest.param(reading(vmm()), ("shim", "overhead"), id="no shim"),
        pytest.param(reading(shim(rss=None), vmm()), ("shim", "overhead"), id="a shim that was not read"),
        pytest.param(
            reading(shim(at=""), vmm(), cgroups=(pod(memory=1),)), ("memory", "outside"), id="a shim anywhere"
        ),
        pytest.param(reading(shim(), vmm(), cgroups=(pod(memory=500 * MIB),)), ("memory",), id="less than guest RAM"),
        pytest.param(reading(shim(), vmm()), ("cpu_m", "vcpu_m", "vcpu_ns", "outside_cpu_m"), id="one reading"),
        pytest.param(reading(), ("cpu_ns", "vcpu_ns", "cpu_m"), id="nothing"),
    ],
)
def test_what_is_not_known_is_none(seen: VmReading, names: tuple[str, ...]) -> None:
    assert [getattr(usage(None, seen), name) for name in names] == [None] * len(names)


# ---- CPU time


def test_rates_are_by_the_time_between_two_readings() -> None:
    first = reading(shim(OVERHEAD, cpu_ns=SECOND), vmm(), vcpu(cpu_ns=5 * SECOND), at_s=1)
    then = reading(shim(OVERHEAD, cpu_ns=2 * SECOND), vmm(), vcpu(cpu_ns=8 * SECOND), at_s=5)
    found = told(*(replace(one, cgroups=(pod(),)) for one in (first, then)))
    assert (found.cpu_m, found.vcpu_m, found.overhead_cpu_m, found.outside_cpu_m) == (1000, 750, 250, 250)
    assert (found.cpu_ns, found.vcpu_ns) == (10 * SECOND, 8 * SECOND)


def test_a_cgroups_counter_has_what_ended_tasks_used() -> None:
    first = reading(vmm(cpu_ns=1), shim(OVERHEAD, cpu_ns=SECOND), cgroups=(pod(cpu_ns=9 * SECOND), overhead()), at_s=1)
    then = reading(vmm(cpu_ns=1), shim(OVERHEAD, cpu_ns=SECOND), cgroups=(pod(cpu_ns=11 * SECOND), overhead()), at_s=2)
    found = told(first, then)
    assert (found.cpu_m, found.cpu_ns, found.outside_cpu_m) == (2000, 12 * SECOND, 0)


def test_a_cgroup_that_is_read_later_counts_from_then_on() -> None:
    tasks = [reading(vmm(cpu_ns=n * SECOND), at_s=n) for n in (1, 2, 3)]
    cgroups = ((), (pod(cpu_ns=2 * SECOND),), (pod(cpu_ns=3 * SECOND + 5),))
    found = told(*(replace(one, cgroups=has) for one, has in zip(tasks, cgroups, strict=True)))
    assert found.cpu_ns == 3 * SECOND + 5


def test_a_cgroup_that_was_made_anew_counts_from_0() -> None:
    found = told(*(reading(vmm(), cgroups=(pod(cpu_ns=n),), at_s=at) for at, n in ((1, 9 * SECOND), (2, SECOND))))
    assert (found.cpu_ns, found.cpu_m) == (10 * SECOND, 1000)


def test_an_id_that_was_given_to_another_task_is_not_the_old_one() -> None:
    found = told(reading(vcpu(cpu_ns=9 * SECOND), at_s=1), reading(vcpu(cpu_ns=10 * SECOND, start=8), at_s=2))
    assert (found.vcpu_ns, found.vcpu_m) == (19 * SECOND, 10_000)


def test_a_task_of_unknown_start_counts_for_nothing() -> None:
    found = told(reading(vcpu(cpu_ns=SECOND, start=0), at_s=1), reading(vcpu(cpu_ns=2 * SECOND, start=0), at_s=2))
    assert (found.cpu_ns, found.cpu_m, found.vcpu_ns) == (None, None, None)


def test_a_thread_is_a_vcpu_from_when_it_is_known_to_be_one() -> None:
    before = replace(vcpu(cpu_ns=4 * SECOND), role=TaskRole.IO)
    found = told(reading(before, at_s=1), reading(vcpu(cpu_ns=5 * SECOND), at_s=2))
    assert (found.cpu_ns, found.vcpu_ns, found.vcpu_m) == (5 * SECOND, 5 * SECOND, 1000)


def test_a_reading_that_is_no_newer_changes_nothing() -> None:
    first = reading(vmm(cpu_ns=SECOND))
    known = usage(None, first)
    assert usage(first, replace(first, tasks=(vmm(cpu_ns=9 * SECOND),)), known) is known


def test_a_thread_that_ended_is_not_counted_again_with_its_process() -> None:
    first = reading(vmm(cpu_ns=SECOND), vcpu(cpu_ns=5 * SECOND), at_s=1)
    found = told(first, reading(vmm(cpu_ns=7 * SECOND), at_s=2))
    assert (found.cpu_ns, found.cpu_m) == (7 * SECOND, 1000)


def test_what_could_not_be_read_once_is_not_counted_twice() -> None:
    found = told(*(reading(vmm(cpu_ns=n), shim(cpu_ns=1), at_s=at) for at, n in ((1, 900), (2, None), (3, 905))))
    assert (found.cpu_ns, found.cpu_m) == (901, None)


@st.composite
def _tasks(draw: st.DrawFn) -> tuple[Task, ...]:
    """Some tasks of few ids, so that these are often given anew."""
    roles, starts = st.sampled_from(TaskRole), st.integers(0, 3)
    counters, homes = st.none() | st.integers(0, 10**12), st.sampled_from(["", IN, POD, OVERHEAD, "/other"])
    ids = draw(st.lists(st.integers(1, 6), unique=True, max_size=5))
    rss = st.none() | st.integers(0, GIB)
    made = [(draw(roles), draw(counters), draw(rss), draw(homes), draw(starts)) for _ in ids]
    return tuple(
        task(role, tid, cpu, mem, at, start) for tid, (role, cpu, mem, at, start) in zip(ids, made, strict=True)
    )


_counters = st.none() | st.integers(0, 10**12)
_cgroups = st.tuples(
    st.builds(lambda cpu, memory: pod(memory=memory, cpu_ns=cpu), _counters, _counters),
    st.builds(lambda cpu, memory: CgroupReading(Place.SANDBOX, IN, memory, None, cpu), _counters, _counters),
    st.builds(overhead, _counters, _counters),
).flatmap(lambda three: st.lists(st.sampled_from(three), unique=True).map(tuple))


@given(
    st.lists(st.tuples(_tasks(), _cgroups, st.integers(0, 3), st.none() | st.integers(0, GIB)), min_size=1, max_size=8)
)
def test_no_figure_is_negative_and_no_counter_falls(
    rounds: list[tuple[tuple[Task, ...], tuple[CgroupReading, ...], int, int | None]],
) -> None:
    known: Usage | None = None
    before: VmReading | None = None
    at_s = 1
    for tasks, cgroups, pause_s, guest in rounds:
        at_s += pause_s
        now = reading(*tasks, cgroups=cgroups, at_s=at_s, guest=guest)
        found = usage(before, now, known)
        figures = [getattr(found, name) for name in Usage.__dataclass_fields__]
        assert all(figure is None or figure >= 0 for figure in figures)
        if known is not None:
            assert (found.cpu_ns or 0) >= (known.cpu_ns or 0)
            assert (found.vcpu_ns or 0) >= (known.vcpu_ns or 0)
        known, before = found, now


@given(st.lists(st.lists(st.integers(0, 10**9), min_size=3, max_size=3), min_size=1, max_size=6), st.integers(1, 3))
def test_the_counter_is_the_sum_of_what_every_task_has_used(grown: list[list[int]], ends: int) -> None:
    """Tasks run, and after `ends` rounds the first one has ended."""
    totals = [0, 0, 0]
    readings = list[VmReading]()
    for at, more in enumerate(grown, 1):
        alive = [index for index in range(3) if index or at <= ends]
        for index in alive:
            totals[index] += more[index]
        readings.append(reading(*(vcpu(cpu_ns=totals[index], tid=30 + index) for index in alive), at_s=at))
    found = told(*readings)
    assert (found.cpu_ns, found.vcpu_ns) == (sum(totals), sum(totals))
