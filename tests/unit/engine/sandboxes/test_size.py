"""The size of a VM: what its VMM was told, and what Kata Go and runtime-rs would make of a pod."""

from dataclasses import replace

import pytest

from nodeward.engine.sandboxes.size import size
from nodeward.model.annotations import KATA_SIZES
from nodeward.model.sandboxes import Handler, Profile, VmSize
from nodeward.model.workload import NO_SHARE, Container, ContainerId, CpuRecord, HostShare
from tests.unit.engine.sandboxes.build import GIB, GO, ID, MIB, RS, reading

VCPUS, MEMORY = KATA_SIZES
OPEN_GO = replace(
    GO, passes=("io.katacontainers.*",), enable_annotations=("default_.*",), runtime_type="io.containerd.k"
)
OPEN_RS = replace(OPEN_GO, profile=Profile.KATA_RS)


def asked(cpu_m: int = 0, memory: int = 0, shares: int = 0, quota: int | None = None) -> HostShare:
    return HostShare(CpuRecord(shares, cpu_m * 100 if quota is None else quota, 100_000), memory)


def planned(handler: Handler, share: HostShare = NO_SHARE, notes: dict[str, str] | None = None) -> VmSize:
    return size(reading(), handler, handler.profile, notes, share)


@pytest.mark.parametrize(
    ("handler", "share", "expected"),
    [
        pytest.param(GO, NO_SHARE, VmSize(2 * GIB, 1, "config"), id="Go, nothing is limited"),
        pytest.param(GO, asked(2000, GIB), VmSize(3 * GIB, 3, "config+limits"), id="Go adds the defaults"),
        pytest.param(GO, asked(1500, GIB + 7), VmSize(3 * GIB, 3, "config+limits"), id="Go, whole MiB and whole CPUs"),
        pytest.param(
            GO, asked(quota=-1, shares=2500), VmSize(2 * GIB, 4, "config+limits"), id="Go, static CPU manager"
        ),
        pytest.param(GO, asked(quota=-1, shares=2), VmSize(2 * GIB, 1, "config"), id="Go, shares of no request"),
        pytest.param(RS, NO_SHARE, VmSize(2 * GIB, 1, "config"), id="rs, nothing is limited"),
        pytest.param(
            RS, asked(2000, GIB), VmSize(GIB + 32 * MIB, 3, "config+limits"), id="rs, instead of the defaults"
        ),
        pytest.param(RS, asked(500, 5 * MIB), VmSize(38 * MIB, 1, "config+limits"), id="rs, an even number of MiB"),
        pytest.param(RS, asked(2000), VmSize(32 * MIB, 3, "config+limits"), id="rs, CPUs alone are limited"),
        pytest.param(RS, asked(quota=-1, shares=2500), VmSize(2 * GIB, 1, "config"), id="rs does not read shares"),
    ],
)
def test_a_static_vm_is_as_large_as_its_runtime_makes_it(handler: Handler, share: HostShare, expected: VmSize) -> None:
    assert planned(handler, share) == expected


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ({MEMORY: "4096"}, VmSize(4 * GIB, 1, "annotation")),
        ({VCPUS: "2.5"}, VmSize(2 * GIB, 3, "annotation")),
        ({VCPUS: "-1", MEMORY: "much"}, VmSize(None, None, "")),
    ],
)
def test_annotations_take_the_place_of_defaults(notes: dict[str, str], expected: VmSize) -> None:
    assert planned(OPEN_GO, notes=notes) == expected


@pytest.mark.parametrize(
    "handler",
    [
        pytest.param(replace(OPEN_GO, passes=()), id="the runtime does not hand it on"),
        pytest.param(replace(OPEN_GO, enable_annotations=("kernel_params",)), id="Kata does not obey it"),
        pytest.param(replace(OPEN_GO, enable_annotations=("(",)), id="the list is broken"),
    ],
)
def test_an_annotation_that_is_not_obeyed_changes_nothing(handler: Handler) -> None:
    assert planned(handler, notes={MEMORY: "4096"}) == VmSize(2 * GIB, 1, "config")


@pytest.mark.parametrize("handler", [GO, RS, replace(GO, profile=Profile.DOCUMENT)])
def test_the_vmms_own_command_line_wins(handler: Handler) -> None:
    seen = reading(vm_memory=700 * MIB, vm_vcpus=5)
    assert size(seen, handler, handler.profile, {}, asked(2000, GIB)) == VmSize(700 * MIB, 5, "vmm")


def test_a_vm_that_grows_has_what_it_started_with_and_the_limits_of_its_containers() -> None:
    running = [
        Container(ContainerId(name), ID, name, cpu=CpuRecord(0, quota, 100_000), memory=memory)
        for name, quota, memory in (("a", 50_000, GIB), ("b", 100_000, 0))
    ]
    handler = replace(GO, static=False)
    seen = reading(vm_memory=2 * GIB, vm_vcpus=1)
    assert size(seen, handler, Profile.KATA_GO, {}, NO_SHARE, running) == VmSize(3 * GIB, 3, "config+limits")
    assert size(seen, handler, Profile.KATA_GO) == VmSize(2 * GIB, 1, "vmm")


def test_nothing_is_said_of_a_vm_of_which_nothing_is_known() -> None:
    unread = Handler("kata", profile=Profile.KATA_GO, fault="no such file")
    assert planned(unread, asked(2000, GIB)) == VmSize(None, None, "")
    assert size(reading(), None, None) == VmSize(None, None, "")
