"""What a VM sandbox costs, whether its pod's limit has room for it, and what a RuntimeClass should declare."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.core.vms import UNLIMITED, CgroupReading, Place, Task, TaskRole, VmReading
from nodeward.features.sandboxes.headroom import headroom, need
from nodeward.features.sandboxes.recommend import (
    MOST_COUNTED,
    PERCENTILES,
    bound,
    percentile,
    recommend,
    unaccounted,
    with_margin,
    with_sample,
)
from nodeward.features.sandboxes.settings import SandboxesSettings
from nodeward.features.sandboxes.usage import usage
from nodeward.features.sandboxes.values import Fit, Headroom, Measured, Usage, VmSize
from tests.unit.features.sandboxes.build import GIB, IN, MIB, OVERHEAD, POD, SECOND, pod, reading, shim, task, vcpu, vmm


def overhead(memory: int | None = None, cpu_ns: int | None = None, path: str = OVERHEAD) -> CgroupReading:
    return CgroupReading(Place.OVERHEAD, path, memory, None, cpu_ns)


def told(*readings: VmReading) -> Usage:
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
    first, idle, anew = (
        reading(vmm(), cgroups=(pod(cpu_ns=n * SECOND),), at_s=at) for at, n in ((1, 9), (2, 9), (3, 1))
    )
    found = told(first, idle)
    assert (found.cpu_ns, found.cpu_m) == (9 * SECOND, 0)
    found = told(first, idle, anew)
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


ALL = (shim(), vmm())
"""40 MiB of shim, and a VMM of 88 MiB without its guest's 512."""


def of(
    limit: int | None, *tasks: Task, vm: int | None = GIB, declared: int = 0, guest: int | None = 512 * MIB
) -> Headroom:
    seen = reading(*(tasks or ALL), cgroups=(pod(limit),), guest=guest)
    return headroom(seen, VmSize(vm, 1, "vmm"), declared, 10)


@pytest.mark.parametrize(
    ("limit", "fit"),
    [
        pytest.param(2 * GIB, Fit.FITS, id="room"),
        pytest.param(5 * 256 * MIB, Fit.FITS, id="as much left as is asked for"),
        pytest.param(GIB + 129 * MIB, Fit.TIGHT, id="1 MiB left"),
        pytest.param(GIB + 128 * MIB, Fit.TIGHT, id="nothing left"),
        pytest.param(GIB + 127 * MIB, Fit.KILLED, id="1 MiB too little"),
        pytest.param(UNLIMITED, Fit.UNLIMITED, id="no limit"),
        pytest.param(None, Fit.UNKNOWN, id="the limit was not read"),
    ],
)
def test_the_verdict(limit: int | None, fit: Fit) -> None:
    assert of(limit).fit is fit


def test_a_kill_is_told_with_the_guest_memory_at_which_it_comes() -> None:
    found = of(1000 * MIB)
    assert (found.overhead, found.overhead_from) == (128 * MIB, "measured")
    assert (found.left, found.killed_at) == (1000 * MIB - GIB - 128 * MIB, 872 * MIB)


@pytest.mark.parametrize(
    ("declared", "expected"),
    [(130 * MIB, (130 * MIB, "declared")), (512 * MIB, (160 * MIB, "usual")), (0, (160 * MIB, "usual"))],
    ids=["class", "class that has room for guest memory", "none"],
)
def test_what_cannot_be_measured_is_taken_as_declared_or_as_usual(declared: int, expected: tuple[int, str]) -> None:
    found = of(2 * GIB, declared=declared, guest=None)
    assert (found.overhead, found.overhead_from) == expected


@pytest.mark.parametrize(("limit", "fit"), [(GIB + 159 * MIB, Fit.TIGHT), (GIB, Fit.TIGHT), (GIB - 1, Fit.KILLED)])
def test_with_an_overhead_that_is_not_measured_only_the_vm_alone_proves_a_kill(limit: int, fit: Fit) -> None:
    assert of(limit, guest=None).fit is fit


@pytest.mark.parametrize(
    ("of_pod", "of_sandbox", "fit", "limit"),
    [
        (2 * GIB, GIB, Fit.KILLED, GIB),
        (UNLIMITED, 2 * GIB, Fit.FITS, 2 * GIB),
        (2 * GIB, None, Fit.FITS, 2 * GIB),
        (None, GIB, Fit.KILLED, GIB),
        (None, 4 * GIB, Fit.UNKNOWN, 4 * GIB),
    ],
)
def test_the_smallest_limit_counts(of_pod: int | None, of_sandbox: int | None, fit: Fit, limit: int) -> None:
    both = (pod(of_pod), CgroupReading(Place.SANDBOX, IN, memory_limit=of_sandbox))
    found = headroom(reading(*ALL, cgroups=both), VmSize(GIB, 1, "vmm"), 0, 5)
    assert (found.fit, found.limit) == (fit, limit)


def test_a_sandbox_without_a_vm_takes_nothing_of_its_pods_limit() -> None:
    assert need(reading(shim(), cgroups=(pod(2 * GIB),)), VmSize(GIB, 1, "vmm"), 0) is None


DRAGONBALL = reading(shim(rss=600 * MIB), cgroups=(pod(2 * GIB),), kind="dragonball")


@pytest.mark.parametrize(
    ("seen", "vm", "fit", "overhead"),
    [
        pytest.param((shim(OVERHEAD), vmm()), GIB, Fit.FITS, 88 * MIB, id="a shim outside counts for nothing"),
        pytest.param((shim(OVERHEAD), vmm(OVERHEAD)), GIB, Fit.OUTSIDE, None, id="a VMM outside"),
        pytest.param((shim(), vmm(POD + "x")), GIB, Fit.OUTSIDE, None, id="a VMM beside the pod"),
        pytest.param((shim(),), GIB, Fit.UNKNOWN, None, id="no VMM"),
        pytest.param(ALL, None, Fit.UNKNOWN, None, id="no size"),
    ],
)
def test_only_what_is_charged_to_the_pod_is_limited(
    seen: tuple[Task, ...], vm: int | None, fit: Fit, overhead: int | None
) -> None:
    found = of(2 * GIB, *seen, vm=vm)
    assert found.fit is fit
    assert overhead is None or found.overhead == overhead


def test_a_vmm_in_the_shim_is_charged_with_it_and_without_a_cgroup_nothing_is_said() -> None:
    assert headroom(DRAGONBALL, VmSize(GIB, 1, "config"), 0, 5).overhead == 88 * MIB
    assert headroom(reading(*ALL), VmSize(GIB, 1, "vmm"), 0, 5).fit is Fit.UNKNOWN


amounts = st.integers(0, 1 << 45)


@given(limit=amounts, vm=amounts, rss=amounts, guest=amounts, percent=st.integers(0, 100))
def test_the_arithmetic_adds_up(limit: int, vm: int, rss: int, guest: int, percent: int) -> None:
    seen = reading(shim(), vmm(rss=rss), cgroups=(pod(limit),), guest=guest)
    found = headroom(seen, VmSize(vm, 1, "vmm"), 0, percent)
    left = limit - vm - (rss - guest if rss >= guest else 160 * MIB) - 40 * MIB * (rss >= guest)
    assert (found.limit, found.vm, found.left) == (limit, vm, left)
    assert limit - vm - (found.overhead or 0) == left
    is_killed = left < 0 if rss >= guest else limit < vm
    assert (found.fit is Fit.KILLED) == is_killed == (found.killed_at is not None)
    assert found.killed_at is None or 0 <= found.killed_at <= vm


FEW = SandboxesSettings(samples=100)


def measured(*samples: tuple[int | None, int | None]) -> Measured:
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
