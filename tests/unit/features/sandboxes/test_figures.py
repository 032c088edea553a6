"""What a VM sandbox costs, whether its pod's limit has room for it, and what a RuntimeClass should declare."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.core.vms import UNLIMITED, CgroupReading, Need, Place, Task, TaskRole, VmReading
from nodeward.core.workload import SandboxId
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


Figures = Mapping[str, int | str | tuple[str, ...] | None]


def figures(found: Usage | Headroom, expected: Figures) -> Figures:
    return {name: getattr(found, name) for name in expected}


def shim_outside(*apart: CgroupReading) -> VmReading:
    at = apart[0].path if apart else "/system.slice/containerd.service"
    return reading(shim(at), vmm(), cgroups=(pod(memory=GIB), *apart))


WHOLE = reading(shim(), vmm(), cgroups=(pod(memory=700 * MIB),))
MEMORY: dict[str, tuple[VmReading, Figures]] = {
    "guest memory apart from the VMM's": (WHOLE, {"memory": 700 * MIB, "guest": 512 * MIB, "vmm": 88 * MIB}),
    "all is in the pod": (WHOLE, {"outside": 0, "virtiofsd": None, "shim": 40 * MIB, "overhead": 128 * MIB}),
    **{
        f"charged outside the pod, {where}": (shim_outside(*apart), {"outside": outside, "memory": GIB + outside})
        for where, apart, outside in (
            ("in a cgroup of its own", (overhead(90 * MIB),), 90 * MIB),
            ("in one that does not count memory", (overhead(),), 40 * MIB),
            ("in one that was not read", (), 40 * MIB),
            ("in one that all sandboxes share", (overhead(9 * GIB, path="/kata"),), 40 * MIB),
        )
    },
    **{
        f"unknown: {why}": (seen, dict.fromkeys(names.split()))
        for why, seen, names in (
            ("no cgroup", reading(shim(), vmm()), "memory outside"),
            ("no mappings", reading(shim(), vmm(), guest=None), "guest vmm overhead"),
            ("mappings that contradict it", reading(shim(), vmm(rss=MIB)), "vmm overhead"),
            ("no shim", reading(vmm()), "shim overhead"),
            ("a shim that was not read", reading(shim(rss=None), vmm()), "shim overhead"),
            ("a shim anywhere", reading(shim(at=""), vmm(), cgroups=(pod(memory=1),)), "memory outside"),
            ("less than guest RAM", reading(shim(), vmm(), cgroups=(pod(memory=500 * MIB),)), "memory"),
            ("one reading", reading(shim(), vmm()), "cpu_m vcpu_m vcpu_ns outside_cpu_m"),
            ("nothing", reading(), "cpu_ns vcpu_ns cpu_m"),
        )
    },
}


@pytest.mark.parametrize("case", MEMORY)
def test_memory_counts_where_it_is_charged_and_what_is_not_known_is_none(case: str) -> None:
    seen, expected = MEMORY[case]
    assert figures(usage(None, seen), expected) == expected


S = SECOND
STARTED = (pod(), shim(OVERHEAD, cpu_ns=S), vmm(), vcpu(cpu_ns=5 * S))
RAN = (pod(), shim(OVERHEAD, cpu_ns=2 * S), vmm(), vcpu(cpu_ns=8 * S))
WITH_ENDED = (vmm(cpu_ns=1), shim(OVERHEAD, cpu_ns=S), overhead())
CPU: dict[str, tuple[tuple[Sequence[Task | CgroupReading] | None, ...], Figures]] = {
    "rates are by the time between two readings": (
        (STARTED, None, None, None, RAN),
        {"cpu_m": 1000, "vcpu_m": 750, "overhead_cpu_m": 250, "outside_cpu_m": 250, "cpu_ns": 10 * S, "vcpu_ns": 8 * S},
    ),
    "a cgroup's counter has what ended tasks used": (
        ((pod(cpu_ns=9 * S), *WITH_ENDED), (pod(cpu_ns=11 * S), *WITH_ENDED)),
        {"cpu_m": 2000, "cpu_ns": 12 * S, "outside_cpu_m": 0},
    ),
    "a cgroup that is read later counts from then on": (
        ((vmm(cpu_ns=S),), (vmm(cpu_ns=2 * S), pod(cpu_ns=2 * S)), (vmm(cpu_ns=3 * S), pod(cpu_ns=3 * S + 5))),
        {"cpu_ns": 3 * S + 5},
    ),
    "an idle cgroup": (((vmm(), pod(cpu_ns=9 * S)),) * 2, {"cpu_ns": 9 * S, "cpu_m": 0}),
    "a cgroup that was made anew counts from 0": (
        ((vmm(), pod(cpu_ns=9 * S)), (vmm(), pod(cpu_ns=9 * S)), (vmm(), pod(cpu_ns=S))),
        {"cpu_ns": 10 * S, "cpu_m": 1000},
    ),
    "an id that was given to another task": (
        ((vcpu(cpu_ns=9 * S),), (vcpu(cpu_ns=10 * S, start=8),)),
        {"vcpu_ns": 19 * S, "vcpu_m": 10_000},
    ),
    "a task of unknown start counts for nothing": (
        ((vcpu(cpu_ns=S, start=0),), (vcpu(cpu_ns=2 * S, start=0),)),
        {"cpu_ns": None, "cpu_m": None, "vcpu_ns": None},
    ),
    "a thread is a vCPU from when it is known to be one": (
        ((replace(vcpu(cpu_ns=4 * S), role=TaskRole.IO),), (vcpu(cpu_ns=5 * S),)),
        {"cpu_ns": 5 * S, "vcpu_ns": 5 * S, "vcpu_m": 1000},
    ),
    "a thread that ended is not counted again with its process": (
        ((vmm(cpu_ns=S), vcpu(cpu_ns=5 * S)), (vmm(cpu_ns=7 * S),)),
        {"cpu_ns": 7 * S, "cpu_m": 1000},
    ),
    "what could not be read once is not counted twice": (
        tuple((vmm(cpu_ns=spent), shim(cpu_ns=1)) for spent in (900, None, 905)),
        {"cpu_ns": 901, "cpu_m": None},
    ),
}
"""What is read second by second, nothing for None; and the usage in the end."""


@pytest.mark.parametrize("case", CPU)
def test_cpu_time_is_counted_once_and_its_rate_is_of_the_last_pause(case: str) -> None:
    rounds, expected = CPU[case]
    readings = [
        reading(
            *(one for one in seen if isinstance(one, Task)),
            cgroups=tuple(one for one in seen if isinstance(one, CgroupReading)),
            at_s=at_s,
        )
        for at_s, seen in enumerate(rounds, 1)
        if seen is not None
    ]
    assert figures(told(*readings), expected) == expected


def test_a_reading_that_is_no_newer_changes_nothing() -> None:
    first = reading(vmm(cpu_ns=SECOND))
    known = usage(None, first)
    assert usage(first, replace(first, tasks=(vmm(cpu_ns=9 * SECOND),)), known) is known


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


def within(of_pod: int | None, of_sandbox: int | None) -> Headroom:
    both = (pod(of_pod), CgroupReading(Place.SANDBOX, IN, memory_limit=of_sandbox))
    return headroom(reading(*ALL, cgroups=both), VmSize(GIB, 1, "vmm"), 0, 5)


def on_huge_pages(huge: int | None, memory: int = GIB, others: tuple[Need, ...] = ()) -> Headroom:
    seen = reading(*ALL, cgroups=(replace(pod(memory), huge_limit=huge),))
    return headroom(replace(seen, on_huge_pages=True), VmSize(GIB, 1, "vmm"), 0, 10, others)


def beside(limit: int, memory: int | None = GIB + 128 * MIB, *, is_measured: bool = True) -> Headroom:
    """With another VM in the pod that takes so much of its limit."""
    other = Need(SandboxId("other"), memory, GIB, is_measured=is_measured)
    return headroom(reading(*ALL, cgroups=(pod(limit),)), VmSize(GIB, 1, "vmm"), 0, 10, (other,))


TWO = 2 * (GIB + 128 * MIB)
KILL: Figures = {"overhead": 128 * MIB, "overhead_from": "measured", "left": -152 * MIB, "killed_at": 872 * MIB}
MEASURED: Figures = {"limit": None, "vm": GIB, "overhead": 128 * MIB, "overhead_from": "measured"}
DECLARED: Figures = {"overhead": 130 * MIB, "overhead_from": "declared"}
USUAL: Figures = {"overhead": 160 * MIB, "overhead_from": "usual"}
DRAGONBALL = reading(shim(rss=600 * MIB), cgroups=(pod(2 * GIB),), kind="dragonball")
HEADROOMS: dict[str, tuple[Callable[[], Headroom], Fit, Figures]] = {
    "room": (lambda: of(2 * GIB), Fit.FITS, {}),
    "as much left as is asked for": (lambda: of(5 * 256 * MIB), Fit.FITS, {}),
    "1 MiB left": (lambda: of(GIB + 129 * MIB), Fit.TIGHT, {}),
    "nothing left": (lambda: of(GIB + 128 * MIB), Fit.TIGHT, {}),
    "1 MiB too little": (lambda: of(GIB + 127 * MIB), Fit.KILLED, {}),
    "a kill, with the guest memory at which it comes": (lambda: of(1000 * MIB), Fit.KILLED, KILL),
    "no limit": (lambda: of(UNLIMITED), Fit.UNLIMITED, MEASURED),
    "the limit was not read": (lambda: of(None), Fit.UNKNOWN, MEASURED),
    "not measured, as declared": (lambda: of(2 * GIB, declared=130 * MIB, guest=None), Fit.FITS, DECLARED),
    "a class that has room for guest memory": (lambda: of(2 * GIB, declared=512 * MIB, guest=None), Fit.FITS, USUAL),
    "not measured, as usual": (lambda: of(2 * GIB, guest=None), Fit.FITS, USUAL),
    "what is not measured proves no kill": (lambda: of(GIB + 159 * MIB, guest=None), Fit.TIGHT, {}),
    "nor where it has no room": (lambda: of(GIB, guest=None), Fit.TIGHT, {}),
    "the VM alone proves a kill": (lambda: of(GIB - 1, guest=None), Fit.KILLED, {}),
    "the sandbox's limit is the smaller one": (lambda: within(2 * GIB, GIB), Fit.KILLED, {"limit": GIB}),
    "the sandbox's limit is the only one": (lambda: within(UNLIMITED, 2 * GIB), Fit.FITS, {"limit": 2 * GIB}),
    "the sandbox's limit was not read": (lambda: within(2 * GIB, None), Fit.FITS, {"limit": 2 * GIB}),
    "the pod's was not read, the sandbox's kills": (lambda: within(None, GIB), Fit.KILLED, {"limit": GIB}),
    "the pod's was not read": (lambda: within(None, 4 * GIB), Fit.UNKNOWN, {"limit": 4 * GIB}),
    "a shim outside counts for nothing": (lambda: of(2 * GIB, shim(OVERHEAD), vmm()), Fit.FITS, {"overhead": 88 * MIB}),
    "a VMM outside": (lambda: of(2 * GIB, shim(OVERHEAD), vmm(OVERHEAD)), Fit.OUTSIDE, MEASURED),
    "a VMM beside the pod": (lambda: of(2 * GIB, shim(), vmm(POD + "x")), Fit.OUTSIDE, {}),
    "no VMM": (lambda: of(2 * GIB, shim()), Fit.UNKNOWN, {**USUAL, "limit": None, "vm": GIB}),
    "no size": (lambda: of(2 * GIB, vm=None), Fit.UNKNOWN, {**MEASURED, "limit": 2 * GIB, "vm": None}),
    "a VMM in the shim": (
        lambda: headroom(DRAGONBALL, VmSize(GIB, 1, "config"), 0, 5),
        Fit.FITS,
        {"overhead": 88 * MIB},
    ),
    "huge pages for the VM and no more": (lambda: on_huge_pages(GIB), Fit.FITS, {"limit_of": "hugetlb", "left": 0}),
    "a huge page too little": (lambda: on_huge_pages(GIB - 2 * MIB), Fit.KILLED, {"killed_at": GIB - 2 * MIB}),
    "huge pages without a limit": (lambda: on_huge_pages(UNLIMITED), Fit.FITS, {"limit_of": "memory", "vm": 0}),
    "the limit of huge pages was not read": (lambda: on_huge_pages(None), Fit.UNKNOWN, {"limit_of": "hugetlb"}),
    "no memory for what is beside huge pages": (
        lambda: on_huge_pages(GIB, 127 * MIB),
        Fit.KILLED,
        {"limit_of": "memory", "left": -MIB, "killed_at": None},
    ),
    "huge pages for one of two VMs": (
        lambda: on_huge_pages(GIB, others=(Need(SandboxId("other"), 0, 0, GIB),)),
        Fit.KILLED,
        {"left": -GIB, "beside": GIB, "others": ("other",)},
    ),
    "two VMs with nothing left": (lambda: beside(TWO), Fit.TIGHT, {"left": 0, "beside": GIB + 128 * MIB}),
    "two VMs and 1 MiB too little": (lambda: beside(TWO - MIB), Fit.KILLED, {"killed_at": GIB - MIB}),
    "one of two is not measured": (lambda: beside(TWO - MIB, is_measured=False), Fit.TIGHT, {}),
    "both VMs alone prove a kill": (lambda: beside(2 * GIB - 1, is_measured=False), Fit.KILLED, {}),
    "what the other VM takes is not known": (lambda: beside(TWO, None), Fit.UNKNOWN, {"left": None}),
    "no cgroup": (lambda: headroom(reading(*ALL), VmSize(GIB, 1, "vmm"), 0, 5), Fit.UNKNOWN, MEASURED),
}


@pytest.mark.parametrize("case", HEADROOMS)
def test_the_verdict_is_by_the_smallest_limit_and_by_what_is_charged_to_the_pod(case: str) -> None:
    made, fit, expected = HEADROOMS[case]
    found = made()
    assert (found.fit, figures(found, expected)) == (fit, expected)


def test_a_vm_takes_its_size_and_overhead_of_its_pods_limits_and_a_sandbox_without_one_nothing() -> None:
    seen, size = reading(*ALL, cgroups=(pod(2 * GIB),)), VmSize(GIB, 1, "vmm")
    assert need(seen, size, 0) == Need(seen.sandbox, GIB + 128 * MIB, GIB, 0, is_measured=True)
    assert need(replace(seen, on_huge_pages=True), size, 0) == Need(seen.sandbox, 128 * MIB, 0, GIB, is_measured=True)
    assert need(reading(shim(), cgroups=(pod(2 * GIB),)), VmSize(GIB, 1, "vmm"), 0) is None


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
    assert len({bound(number) for number in range(256, 512)}) == 33, "so many bounds an octave"


@given(st.lists(st.integers(0, 1 << 40), min_size=1), st.integers(1, 100), st.integers(1, 100))
def test_percentiles_rise_and_are_right_to_a_bound(values: list[int], one: int, other: int) -> None:
    table = measured(*((value, None) for value in values)).memory
    low, high = percentile(table, min(one, other)), percentile(table, max(one, other))
    assert (low or 0) <= (high or 0)
    exact = sorted(values)[-(-len(values) * one // 100) - 1]
    assert percentile(table, one) == bound(exact)


@pytest.mark.parametrize(
    ("samples", "memory", "cpu_m", "why"),
    [
        ([(MIB, 5)] * 99, None, None, "99 of 100 samples so far, of 1 sandbox"),
        (
            [*[(100 * MIB, 30)] * 98, *[(200 * MIB, 90)] * 2],
            *(220 * MIB, 100, "the 99th percentile of 100 samples of 1 sandbox, and 10 % more"),
        ),
        ([(MIB, None)] * 100, 10 * MIB, None, "0 of 100 samples so far, of 1 sandbox"),
    ],
    ids=["too few samples", "round numbers", "no CPU time was measured"],
)
def test_the_99th_percentile_and_a_margin_are_recommended(
    samples: list[tuple[int | None, int | None]], memory: int | None, cpu_m: int | None, why: str
) -> None:
    found = recommend(measured(*samples), SandboxesSettings(samples=100))
    assert (found.memory, found.cpu_m, found.why) == (memory, cpu_m, why)


def test_older_samples_count_less_and_go_in_the_end() -> None:
    kept, sample = Measured({bound(900 * MIB): 1, bound(400 * MIB): MOST_COUNTED - 1}), Usage(vmm=100 * MIB, shim=0)
    kept = with_sample(kept, sample, is_new=False)
    assert kept.memory == {bound(400 * MIB): MOST_COUNTED // 2 - 1, bound(100 * MIB): 1}
    kept = Measured({1: 2 * MOST_COUNTED})
    assert with_sample(kept, sample, is_new=False, needed=MOST_COUNTED).memory[1] == 2 * MOST_COUNTED


def test_what_is_not_known_is_no_sample_and_of_nothing_there_is_no_percentile() -> None:
    assert [percentile({}, percent) for percent in PERCENTILES] == [None, None, None]
    assert with_sample(Measured(), Usage(vmm=1), is_new=True) == Measured()


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
def test_the_unaccounted_cost(usages: list[Usage | None], expected: tuple[int | None, int | None, int, int]) -> None:
    found = unaccounted(usages)
    assert (found.memory, found.cpu_m, found.sandboxes, found.unknown) == expected
    assert found.reserved_memory == (None if found.memory is None else with_margin(found.memory, 10 * MIB))


def test_a_margin_is_rounded_up_to_whole_steps() -> None:
    assert [with_margin(amount, 10) for amount in (0, 1, 9, 10, 100)] == [0, 10, 10, 20, 110]
