"""A pod's memory limit against its VM: the verdict, and that its arithmetic adds up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.engine.sandboxes.headroom import headroom
from nodeward.model.sandboxes import UNLIMITED, CgroupReading, Fit, Headroom, Place, Task, VmSize
from tests.unit.engine.sandboxes.build import GIB, IN, MIB, OVERHEAD, POD, pod, reading, shim, vmm

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


def test_only_what_is_charged_to_the_limit_counts() -> None:
    assert of(2 * GIB, shim(OVERHEAD), vmm()).overhead == 88 * MIB


def test_a_vmm_outside_the_pod_is_limited_by_nothing() -> None:
    assert of(GIB, shim(OVERHEAD), vmm(OVERHEAD)).fit is Fit.OUTSIDE
    assert of(GIB, shim(), vmm(POD + "x")).fit is Fit.OUTSIDE


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


def test_nothing_is_said_without_a_vmm_a_size_or_a_cgroup() -> None:
    assert of(GIB, shim()).fit is Fit.UNKNOWN
    assert of(GIB, vm=None).fit is Fit.UNKNOWN
    assert headroom(reading(*ALL), VmSize(GIB, 1, "vmm"), 0, 5).fit is Fit.UNKNOWN


def test_dragonball_is_part_of_the_shim() -> None:
    seen = reading(shim(rss=600 * MIB), cgroups=(pod(2 * GIB),), kind="dragonball")
    assert headroom(seen, VmSize(GIB, 1, "config"), 0, 5).overhead == 88 * MIB


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
