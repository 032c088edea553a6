"""A VM's size: what its runtime makes of a pod, which resources it is started with, by which way it learns them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.core.annotations import CRI_SIZES, KATA_QUEUES, KATA_SIZES
from nodeward.core.vms import NOT_TOLD, Allocatable, Handler, Profile, Room, Sized, Way
from nodeward.core.workload import (
    NO_SHARE,
    Container,
    ContainerId,
    ContainerSpec,
    CpuRecord,
    HostShare,
    PodSpec,
    PodUid,
    Role,
    WholePod,
)
from nodeward.features.sandboxes import sizing, ways
from nodeward.features.sandboxes.fixed import changes, resizes, why_no_resize
from nodeward.features.sandboxes.settings import SizingSettings, unlimited
from nodeward.features.sandboxes.size import cpu_limit_m, size
from nodeward.features.sandboxes.values import VmSize
from tests.unit.features.sandboxes import build
from tests.unit.features.sandboxes.build import GIB, ID, MIB, reading

VCPUS, MEMORY = KATA_SIZES
OPEN = replace(
    build.GO, passes=("io.katacontainers.*",), enable_annotations=("default_.*",), runtime_type="io.containerd.k"
)


def asked(cpu_m: int = 0, memory: int = 0, shares: int = 0, quota: int | None = None) -> HostShare:
    return HostShare(CpuRecord(shares, cpu_m * 100 if quota is None else quota, 100_000), memory)


UNREAD = Handler("kata", profile=Profile.KATA_GO, fault="no such file")
SIZES = {
    "Go, nothing is limited": (build.GO, NO_SHARE, {}, VmSize(2 * GIB, 1, "config")),
    "Go adds the defaults": (build.GO, asked(2000, GIB), {}, VmSize(3 * GIB, 3, "config+limits")),
    "Go, whole MiB and whole CPUs": (build.GO, asked(1500, GIB + 7), {}, VmSize(3 * GIB, 3, "config+limits")),
    "Go, static CPU manager": (build.GO, asked(quota=-1, shares=2500), {}, VmSize(2 * GIB, 4, "config+limits")),
    "Go, shares of no request": (build.GO, asked(quota=-1, shares=2), {}, VmSize(2 * GIB, 1, "config")),
    "rs, nothing is limited": (build.RS, NO_SHARE, {}, VmSize(2 * GIB, 1, "config")),
    "rs, instead of the defaults": (build.RS, asked(2000, GIB), {}, VmSize(GIB + 32 * MIB, 3, "config+limits")),
    "rs, an even number of MiB": (build.RS, asked(500, 5 * MIB), {}, VmSize(38 * MIB, 1, "config+limits")),
    "rs, CPUs alone are limited": (build.RS, asked(2000), {}, VmSize(32 * MIB, 3, "config+limits")),
    "rs does not read shares": (build.RS, asked(quota=-1, shares=2500), {}, VmSize(2 * GIB, 1, "config")),
    "memory by annotation": (OPEN, NO_SHARE, {MEMORY: "4096"}, VmSize(4 * GIB, 1, "annotation")),
    "CPUs by annotation": (OPEN, NO_SHARE, {VCPUS: "2.5"}, VmSize(2 * GIB, 3, "annotation")),
    "annotations that are no amounts": (OPEN, NO_SHARE, {VCPUS: "-1", MEMORY: "much"}, VmSize(None, None, "")),
    **{
        f"an annotation: {why}": (handler, NO_SHARE, {MEMORY: "4096"}, VmSize(2 * GIB, 1, "config"))
        for why, handler in {
            "the runtime does not hand it on": replace(OPEN, passes=()),
            "Kata does not obey it": replace(OPEN, enable_annotations=("kernel_params",)),
            "the list is broken": replace(OPEN, enable_annotations=("(",)),
        }.items()
    },
    "a configuration that was not read": (UNREAD, asked(2000, GIB), {}, VmSize(None, None, "")),
}


@pytest.mark.parametrize("row", SIZES)
def test_a_static_vm_is_as_large_as_its_runtime_makes_it(row: str) -> None:
    handler, share, notes, expected = SIZES[row]
    assert size(reading(), handler, handler.profile, notes, share) == expected


@pytest.mark.parametrize("handler", [build.GO, build.RS, replace(build.GO, profile=Profile.DOCUMENT)])
def test_the_vmms_own_command_line_wins(handler: Handler) -> None:
    seen = reading(vm_memory=700 * MIB, vm_vcpus=5)
    assert size(seen, handler, handler.profile, {}, asked(2000, GIB)) == VmSize(700 * MIB, 5, "vmm")
    assert size(reading(), None, None) == VmSize(None, None, ""), "of which nothing is known"


def test_a_vm_that_grows_has_what_it_started_with_and_the_limits_of_its_containers() -> None:
    running = [
        Container(ContainerId(name), ID, name, cpu=CpuRecord(0, quota, 100_000), memory=memory)
        for name, quota, memory in (("a", 50_000, GIB), ("b", 100_000, 0))
    ]
    handler = replace(build.GO, static=False)
    seen = reading(vm_memory=2 * GIB, vm_vcpus=1)
    assert size(seen, handler, Profile.KATA_GO, {}, NO_SHARE, running) == VmSize(3 * GIB, 3, "config+limits")
    assert size(seen, handler, Profile.KATA_GO) == VmSize(2 * GIB, 1, "vmm")


FIXED = Handler("kata", config="/etc/kata.toml", static=True)
HAS = HostShare(CpuRecord(512, 50_000, 100_000), 1 << 20)
FREE = HostShare(CpuRecord(2, 0, 0))


CHANGES: dict[str, tuple[HostShare, HostShare, list[str]]] = {
    "the same again": (HAS, HAS, []),
    "nothing said": (HAS, HostShare(), []),
    "shares alone": (HAS, HostShare(CpuRecord(1024)), ["CPU shares (512 to 1024)"]),
    "quota": (HAS, HostShare(CpuRecord(512, 60_000, 100_000)), ["the CPU quota (50000 to 60000)"]),
    "period": (HAS, HostShare(CpuRecord(512, 50_000, 50_000)), ["the CPU period (100000 to 50000)"]),
    "memory": (HAS, HostShare(memory=2 << 20), ["the memory limit (1048576 to 2097152)"]),
    "no CPU limit any more": (HAS, HostShare(CpuRecord(quota=-1)), ["the CPU quota (50000 to none)"]),
    "no memory limit any more": (HAS, HostShare(memory=-1), ["the memory limit (1048576 to none)"]),
    "no limit at all any more": (
        HAS,
        HostShare(CpuRecord(quota=-1), -1),
        ["the CPU quota (50000 to none)", "the memory limit (1048576 to none)"],
    ),
    "no limit as before": (FREE, HostShare(CpuRecord(2, -1, 100_000), -1), []),
    "a first limit": (FREE, HostShare(memory=1), ["the memory limit (none to 1)"]),
}


@pytest.mark.parametrize("row", CHANGES)
def test_what_changes(row: str) -> None:
    before, asked, says = CHANGES[row]
    assert [*changes(before, asked)] == says
    assert why_no_resize(FIXED, before, asked).startswith("infeasible: ") == bool(says)


def test_who_resizes() -> None:
    assert [resizes(Handler("kata", static=static)) for static in (True, False, None)] == [False, True, None]


MOST = Room(8000, 1 << 33)
KATA = Handler("kata", profile=Profile.KATA_GO, config="/etc/kata.toml", static=True)
RS = replace(KATA, profile=Profile.KATA_RS, default_vcpus_m=1000, default_memory=256 * MIB)
RULE = SizingSettings()
QUARTER = SizingSettings(unlimited="25%")


def one(
    request_m: int = 0, limit_m: int = 0, request: int = 0, limit: int = 0, role: Role = Role.REGULAR
) -> ContainerSpec:
    return ContainerSpec("app", role, cpu_m=request_m, cpu_limit_m=limit_m, memory_limit=limit, memory_request=request)


def pod(*containers: ContainerSpec) -> PodSpec:
    return PodSpec(PodUid("u"), "default", "pod", containers)


def whole(asks: WholePod, *containers: ContainerSpec) -> PodSpec:
    return replace(pod(*containers), pod_level=True, whole=asks)


def kubelet(request_m: int = 0, limit_m: int = 0, memory: int = 0) -> HostShare:
    shares = max(2, request_m * 1024 // 1000)
    return HostShare(CpuRecord(shares, limit_m * 100, 100_000), memory)


def got(found: Sized) -> tuple[int, int]:
    return cpu_limit_m(CpuRecord(quota=found.cpu_quota, period=found.cpu_period)) or 0, found.memory_limit


BOUND = SizingSettings(unlimited="2")
HALF_LIMITED = pod(one(1000, 1000, MIB, MIB), one(3000, request=2 * MIB))
SIDECAR = pod(one(1000, role=Role.SIDECAR), one(2000, role=Role.INIT), one(500))
BELOW = whole(WholePod(500, 1000, MIB, 2 * MIB), one(0, 4000, 0, 8 * MIB))
ABOVE = whole(WholePod(3000, 0, 3 * MIB), one(1000, request=MIB), one())
UNREADABLE = whole(WholePod(memory_request=MIB, faults=("spec.resources.requests[cpu]: 1x",)), one(1))
ROWS = {
    "by request": (kubelet(3000), pod(one(3000, request=MIB)), RULE, (3000, MIB)),
    "a part of a MiB counts as one": (kubelet(), pod(one(request=MIB + 1)), RULE, (0, 2 * MIB)),
    "a limit far above the request stays": (kubelet(3000, 64_000), pod(one(3000, 64_000)), RULE, (64_000, 0)),
    "one container of two has limits": (kubelet(4000, 1000, MIB), HALF_LIMITED, RULE, (4000, 3 * MIB)),
    "a sidecar runs beside an init container": (kubelet(3000), SIDECAR, RULE, (3000, 0)),
    "nothing requested": (kubelet(), pod(one()), RULE, (0, 0)),
    "a number of CPUs": (kubelet(500), pod(one(500)), BOUND, (2000, 0)),
    "no fewer than requested": (kubelet(3000), pod(one(3000)), BOUND, (3000, 0)),
    "a part of the machine": (kubelet(500), pod(one(500)), QUARTER, (2000, 0)),
    "all of it": (kubelet(500), pod(one(500)), SizingSettings(unlimited="all"), (8000, 0)),
    "limits alone are no case for the rule": (kubelet(500, 500), pod(one(500, 500)), QUARTER, (500, 0)),
    "more than the machine has": (kubelet(9000), pod(one(9000, request=1 << 34)), RULE, (8000, 1 << 33)),
    "kubelet sends no quota for CPUs of a pod's own": (kubelet(2000), pod(one(2000, 2000)), RULE, (2000, 0)),
    "no spec: by shares": (kubelet(3000), None, RULE, (3000, 0)),
    "no spec: shares above the limit": (kubelet(4000, 1000), None, QUARTER, (4000, 0)),
    "no spec and no shares": (HostShare(), None, QUARTER, (0, 0)),
    "the pod as a whole, by an old source": (kubelet(3000), replace(pod(one(1)), pod_level=True), RULE, (3000, 0)),
    "the pod's limits are below its containers'": (kubelet(), BELOW, QUARTER, (1000, 2 * MIB)),
    "the pod's request is more than its containers'": (kubelet(3000), ABOVE, RULE, (3000, 3 * MIB)),
    "the pod says nothing of memory": (kubelet(3000), whole(WholePod(3000), one(1, request=MIB)), RULE, (3000, MIB)),
    "an amount of the pod's that could not be read": (kubelet(3000), UNREADABLE, RULE, (3000, 0)),
    "a request that could not be read": (kubelet(), pod(replace(one(request=MIB), faults=("cpu: 1x",))), RULE, (0, 0)),
}


@pytest.mark.parametrize("row", ROWS)
def test_size_of_a_pod(row: str) -> None:
    asked, spec, rule, size = ROWS[row]
    found = sizing.sized(asked, spec, KATA, rule, MOST)
    assert got(found) == size
    assert found.changes == (size != got(Sized(asked.cpu.period, asked.cpu.quota, asked.memory)))
    assert found.cpu_why
    assert found.memory_why


def test_runtime_rs_gets_its_default_of_what_has_no_limit_where_another_has_one() -> None:
    """Else its VM would have its overhead and nothing more."""
    found = sizing.sized(kubelet(3000), pod(one(3000)), RS, RULE, MOST)
    assert got(found) == (3000, 256 * MIB)
    untold = replace(RS, default_memory=None)
    assert not sizing.sized(kubelet(3000), pod(one(3000)), untold, RULE, MOST).changes


NAMED = SizingSettings(handlers=("kata",))
WHY_NOT = {
    "a VM": ("kata", KATA, RULE, ""),
    "no VM": ("runc", None, RULE, "starts no VMs"),
    "not named": ("other", KATA, NAMED, "not in sizing.handlers"),
    "named, and the configuration is elsewhere": ("kata", None, NAMED, ""),
    "it grows": ("kata", replace(KATA, static=False), NAMED, "static_sandbox_resource_mgmt = true"),
    "CRI-O": ("kata", replace(KATA, static=False, runtime_type="vm"), RULE, "enable_annotations"),
    "unreadable": ("kata", replace(KATA, fault="line 3"), RULE, "line 3"),
}


@pytest.mark.parametrize("row", WHY_NOT)
def test_why_a_handler_is_not_sized(row: str) -> None:
    name, handler, rule, says = WHY_NOT[row]
    why = sizing.why_not(name, handler, rule)
    assert (says in why, bool(why)) == (True, bool(says))


def most(room: Room) -> tuple[int | None, int | None]:
    return room.cpu_m, room.memory


def test_the_smaller_of_what_the_machine_leaves_and_what_is_allocatable_bounds_a_vm() -> None:
    kept, node = SizingSettings(keep_cpus=2, keep_memory_mib=1, unlimited="all"), Allocatable(5500, 3 * MIB + 1)
    rooms = [(cpus, memory, NOT_TOLD) for cpus, memory in ((8, 3 * MIB), (1, MIB // 2), (0, 0))]
    rooms += [(8, 5 * MIB, node), (4, 3 * MIB, node), (0, 0, node)]
    found = [most(sizing.room(kept, cpus, memory, told)) for cpus, memory, told in rooms]
    assert found[:3] == [(6000, 2 * MIB), (0, 0), (None, None)]
    assert found[3:] == [(5500, 3 * MIB), (2000, 2 * MIB), (5500, 3 * MIB)]
    both = sizing.room(kept, 8, 5 * MIB, node)
    assert both.memory_by == f"allocatable {3 * MIB} bytes by the Node object"
    asks = sizing.sized(kubelet(9000), pod(one(9000, request=8 * MIB)), KATA, kept, both)
    assert got(asks) == (5500, 3 * MIB)
    assert "a VM may have 5500m at most: allocatable 5500m by the Node object" in asks.cpu_why
    assert got(sizing.sized(kubelet(0, 9000), pod(one(0, 9000)), KATA, kept, both))[0] == 9000, "a limit stands"
    assert sizing.room(kept, 8, 0).cpu_by.endswith("without sizing.keep_cpus; allocatable is unknown")


@pytest.mark.parametrize("text", ["", "0", "0%", "101%", "4097", "-1", "1.5", "50 %", "All", "١"])
def test_no_rule(text: str) -> None:
    assert unlimited(text) is None


MILLI = st.integers(0, 300_000)
BYTES = st.integers(0, 1 << 44)
CONTAINERS = st.lists(st.builds(one, MILLI, MILLI, BYTES, BYTES, st.sampled_from(Role)), max_size=5)
CPUS = st.builds(CpuRecord, st.integers(0, 262_144), st.integers(-1, 1 << 44), st.integers(0, 1_000_000))


@given(
    st.builds(HostShare, CPUS, BYTES),
    st.none() | CONTAINERS.map(lambda found: pod(*found)),
    st.sampled_from((None, KATA, RS)),
    st.builds(SizingSettings, unlimited=st.sampled_from(("request", "1", "4096", "1%", "100%", "all"))),
    st.builds(Room, st.none() | MILLI, st.none() | BYTES),
)
def test_no_limit_is_lowered_and_what_is_added_has_a_cap(
    asked: HostShare, spec: PodSpec | None, handler: Handler | None, rule: SizingSettings, most: Room
) -> None:
    found = sizing.sized(asked, spec, handler, rule, most)
    sent_m, before = cpu_limit_m(asked.cpu) or 0, asked.memory
    cpu_m, memory = got(found)
    assert cpu_m >= sent_m
    assert memory >= before
    if not found.changes:
        assert (found.cpu_period, found.cpu_quota, memory) == (asked.cpu.period, asked.cpu.quota, before)
    default_m, default = (RS.default_vcpus_m or 0, RS.default_memory or 0) if handler is RS else (0, 0)
    if most.cpu_m is not None:
        assert cpu_m <= max(most.cpu_m, sent_m, default_m)
    if most.memory is not None:
        assert memory <= max(most.memory, before, default)


GO = replace(
    KATA, runtime_type="io.containerd.kata.v2", default_vcpus_m=1000, default_memory=2048 * MIB,
    enable_annotations=(".*",), passes=("io.katacontainers.*",),
)  # fmt: skip
GROWS = replace(GO, static=False)
RUST = replace(GO, profile=Profile.KATA_RS, overhead_vcpus_m=200, overhead_memory=32 * MIB)
REQUESTS = kubelet(3000), pod(one(3000, request=512 * MIB))
"""What kubelet sends of a pod that requests 3 CPUs and 512 MiB and has no limit, and its spec."""


WAYS = {
    "fixed size": (GO, Way.RESOURCES),
    "fixed size, no annotations": (replace(GO, enable_annotations=(), passes=()), Way.RESOURCES),
    "fixed size, CRI-O": (replace(GO, runtime_type="vm", passes=()), Way.KEYS),
    "fixed size, the shim serves the sandbox": (replace(RUST, serves=True), Way.KEYS),
    "grows": (GROWS, Way.DEFAULTS),
    "grows, CRI-O": (replace(GROWS, runtime_type="vm", passes=()), Way.DEFAULTS),
    "grows, not handed on": (replace(GROWS, passes=()), Way.NONE),
    "grows, half allowed": (replace(GROWS, enable_annotations=("default_vcpus",)), Way.NONE),
}


@pytest.mark.parametrize("row", WAYS)
def test_way(row: str) -> None:
    handler, way = WAYS[row]
    assert ways.way(handler) is way
    assert bool(sizing.why_not("kata", handler, RULE)) is (way is Way.NONE)


def sized(
    handler: Handler, asked: HostShare, spec: PodSpec | None, most: Room = MOST, rule: SizingSettings = RULE, **own: str
) -> Sized:
    notes = {key: own[name] for key in (VCPUS, MEMORY, *KATA_QUEUES) if (name := key.rpartition(".")[2]) in own}
    return sizing.sized(asked, spec, handler, rule, most, own=notes)


HALF = kubelet(3000, 1000, 256 * MIB), pod(one(1000, 1000, 256 * MIB, 256 * MIB), one(2000, request=256 * MIB))


TINY, LIMITED = (kubelet(), pod(one(request=MIB))), (kubelet(1, 2000), pod(one(1, 2000)))
DEFAULTS: dict[str, tuple[Handler, tuple[HostShare, PodSpec], Room, tuple[str | None, str | None]]] = {
    "requests on top of the defaults": (GROWS, REQUESTS, MOST, ("4", "2560")),
    "limits come with the containers": (GROWS, HALF, MOST, ("3", "2304")),
    "whole vCPUs": (GROWS, (kubelet(2500), pod(one(2500))), MOST, ("4", None)),
    "no more than the host has": (GROWS, REQUESTS, Room(2000, 2100 * MIB), ("2", "2100")),
    "the default is all there is": (GROWS, REQUESTS, Room(1000, MIB), (None, None)),
    "a host of unknown size": (GROWS, REQUESTS, Room(), (None, None)),
    "limits only": (GROWS, LIMITED, MOST, (None, None)),
    "a default that is not told": (replace(GROWS, default_memory=None), REQUESTS, MOST, ("4", None)),
    "Kata Go's least memory": (replace(GROWS, default_memory=64 * MIB), TINY, MOST, (None, "256")),
    "runtime-rs's least memory": (replace(RUST, static=False, default_memory=32 * MIB), TINY, MOST, (None, "64")),
}


@pytest.mark.parametrize("row", DEFAULTS)
def test_defaults(row: str) -> None:
    handler, pods, most, sent = DEFAULTS[row]
    found = sized(handler, *pods, most)
    assert (found.annotations.get(VCPUS), found.annotations.get(MEMORY)) == sent
    assert (found.way, found.changes) == (Way.DEFAULTS, any(sent))
    assert (found.cpu_quota, found.memory_limit) == (pods[0].cpu.quota, pods[0].memory)


def test_a_pods_own_default_stands() -> None:
    found = sized(GROWS, *REQUESTS, default_vcpus="1")
    assert found.annotations == {MEMORY: "2560"}
    assert "own annotation stands" in sizing.told(REQUESTS[0], found)


CRIO_RS = replace(RUST, runtime_type="vm")


CRIO_GO, NOTHING = replace(GO, runtime_type="vm"), (None, None, None)
MEMORY_ONLY = kubelet(0, 0, MIB), pod(one(0, 0, MIB, MIB))
KEYS: dict[str, tuple[Handler, tuple[HostShare, PodSpec], tuple[str | None, ...]]] = {
    "requests": (CRIO_RS, REQUESTS, ("100000", "300000", str(512 * MIB))),
    "limits, which nobody else hands on": (CRIO_GO, LIMITED, ("100000", "200000", None)),
    "runtime-rs leaves its default of memory out": (CRIO_RS, LIMITED, ("100000", "200000", str(2048 * MIB))),
    "runtime-rs leaves its default of CPUs out": (CRIO_RS, MEMORY_ONLY, ("100000", "100000", str(MIB))),
    "a default that is not told": (replace(CRIO_RS, default_memory=None), LIMITED, NOTHING),
    "nothing requested": (CRIO_RS, (kubelet(), pod(one())), NOTHING),
}


@pytest.mark.parametrize("row", KEYS)
def test_keys(row: str) -> None:
    handler, pods, sent = KEYS[row]
    found = sized(handler, *pods)
    assert tuple(found.annotations.get(key) for key in CRI_SIZES) == sent
    assert (found.way, found.changes) == (Way.KEYS, any(sent))


QUEUES = SizingSettings(queues=True)
NUMBERS: dict[str, tuple[Handler, tuple[HostShare, PodSpec | None], str | None]] = {
    "3.2 vCPUs": (RUST, REQUESTS, "4"),
    "no more than 8": (RUST, (kubelet(20_000, 20_000), None), "8"),
    "one vCPU": (RUST, (kubelet(), pod(one())), None),
    "a VM that grows, with what comes later": (replace(RUST, static=False), HALF, "4"),
    "by keys": (CRIO_RS, REQUESTS, "4"),
    "not allowed": (replace(RUST, enable_annotations=()), REQUESTS, None),
    "Kata Go": (GO, REQUESTS, None),
}


@pytest.mark.parametrize("row", NUMBERS)
def test_queues(row: str) -> None:
    handler, pods, number = NUMBERS[row]
    found = sized(handler, *pods, rule=QUEUES)
    assert [found.annotations.get(key) for key in KATA_QUEUES] == [number, number]
    assert not any(key in sized(handler, *pods).annotations for key in KATA_QUEUES)
    own = sized(handler, *pods, rule=QUEUES, network_queues="2")
    assert KATA_QUEUES[0] not in own.annotations
