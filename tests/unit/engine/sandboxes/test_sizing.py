"""Which resources a VM's pod is started with."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.engine.sandboxes import sizing
from nodeward.engine.sandboxes.size import MIB, cpu_limit_m
from nodeward.model.sandboxes import Handler, Profile
from nodeward.model.sizing import Allocatable, Room, Sized, SizingSettings, unlimited
from nodeward.model.workload import ContainerSpec, CpuRecord, HostShare, PodSpec, PodUid, Role, WholePod

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
    """What kubelet makes of these sums."""
    shares = max(2, request_m * 1024 // 1000)
    return HostShare(CpuRecord(shares, limit_m * 100, 100_000), memory)


def got(found: Sized) -> tuple[int, int]:
    """Thousandths of a CPU, and memory."""
    return cpu_limit_m(CpuRecord(quota=found.cpu_quota, period=found.cpu_period)) or 0, found.memory_limit


ROWS = {
    "by request": (kubelet(3000), pod(one(3000, request=MIB)), RULE, (3000, MIB)),
    "a part of a MiB counts as one": (kubelet(), pod(one(request=MIB + 1)), RULE, (0, 2 * MIB)),
    "a limit far above the request stays": (kubelet(3000, 64_000), pod(one(3000, 64_000)), RULE, (64_000, 0)),
    "one container of two has limits": (
        kubelet(4000, 1000, MIB),
        pod(one(1000, 1000, MIB, MIB), one(3000, request=2 * MIB)),
        RULE,
        (4000, 3 * MIB),
    ),
    "a sidecar runs beside an init container": (
        kubelet(3000),
        pod(one(1000, role=Role.SIDECAR), one(2000, role=Role.INIT), one(500)),
        RULE,
        (3000, 0),
    ),
    "nothing requested": (kubelet(), pod(one()), RULE, (0, 0)),
    "a number of CPUs": (kubelet(500), pod(one(500)), SizingSettings(unlimited="2"), (2000, 0)),
    "no fewer than requested": (kubelet(3000), pod(one(3000)), SizingSettings(unlimited="2"), (3000, 0)),
    "a part of the machine": (kubelet(500), pod(one(500)), QUARTER, (2000, 0)),
    "all of it": (kubelet(500), pod(one(500)), SizingSettings(unlimited="all"), (8000, 0)),
    "limits alone are no case for the rule": (kubelet(500, 500), pod(one(500, 500)), QUARTER, (500, 0)),
    "more than the machine has": (kubelet(9000), pod(one(9000, request=1 << 34)), RULE, (8000, 1 << 33)),
    "kubelet sends no quota for CPUs of a pod's own": (kubelet(2000), pod(one(2000, 2000)), RULE, (2000, 0)),
    "no spec: by shares": (kubelet(3000), None, RULE, (3000, 0)),
    "no spec: shares above the limit": (kubelet(4000, 1000), None, QUARTER, (4000, 0)),
    "no spec and no shares": (HostShare(), None, QUARTER, (0, 0)),
    "the pod as a whole, by an old source": (kubelet(3000), replace(pod(one(1)), pod_level=True), RULE, (3000, 0)),
    "the pod's limits are below its containers'": (
        kubelet(),
        whole(WholePod(500, 1000, MIB, 2 * MIB), one(0, 4000, 0, 8 * MIB)),
        QUARTER,
        (1000, 2 * MIB),
    ),
    "the pod's request is more than its containers'": (
        kubelet(3000),
        whole(WholePod(3000, 0, 3 * MIB), one(1000, request=MIB), one()),
        RULE,
        (3000, 3 * MIB),
    ),
    "the pod says nothing of memory": (kubelet(3000), whole(WholePod(3000), one(1, request=MIB)), RULE, (3000, MIB)),
    "an amount of the pod's that could not be read": (
        kubelet(3000),
        whole(WholePod(memory_request=MIB, faults=("spec.resources.requests[cpu]: 1x",)), one(1)),
        RULE,
        (3000, 0),
    ),
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


@pytest.mark.parametrize(
    ("name", "handler", "rule", "says"),
    [
        pytest.param("kata", KATA, RULE, "", id="a VM"),
        pytest.param("runc", None, RULE, "starts no VMs", id="no VM"),
        pytest.param("other", KATA, NAMED, "not in sizing.handlers", id="not named"),
        pytest.param("kata", None, NAMED, "", id="named, and the configuration is elsewhere"),
        pytest.param("kata", replace(KATA, static=False), NAMED, "static_sandbox_resource_mgmt = true", id="it grows"),
        pytest.param("kata", replace(KATA, static=False, runtime_type="vm"), RULE, "enable_annotations", id="CRI-O"),
        pytest.param("kata", replace(KATA, fault="line 3"), RULE, "line 3", id="unreadable"),
    ],
)
def test_why_a_handler_is_not_sized(name: str, handler: Handler | None, rule: SizingSettings, says: str) -> None:
    why = sizing.why_not(name, handler, rule)
    assert says in why
    assert bool(why) == bool(says)


def test_what_is_kept_back_and_what_is_unknown() -> None:
    kept = SizingSettings(keep_cpus=2, keep_memory_mib=1)
    assert most(sizing.room(kept, 8, 3 * MIB)) == (6000, 2 * MIB)
    assert most(sizing.room(kept, 1, MIB // 2)) == (0, 0)
    assert most(sizing.room(kept, 0, 0)) == (None, None)


def most(room: Room) -> tuple[int | None, int | None]:
    return room.cpu_m, room.memory


def test_the_smaller_of_what_the_machine_leaves_and_what_is_allocatable_bounds_a_vm() -> None:
    kept, node = SizingSettings(keep_cpus=2, unlimited="all"), Allocatable(5500, 3 * MIB + 1)
    both = sizing.room(kept, 8, 4 * MIB, node)
    assert most(both) == (5500, 3 * MIB)
    assert both.memory_by == f"allocatable {3 * MIB} bytes by the Node object"
    found = sizing.sized(kubelet(9000), pod(one(9000, request=8 * MIB)), KATA, kept, both)
    assert got(found) == (5500, 3 * MIB)
    assert "a VM may have 5500m at most: allocatable 5500m by the Node object" in found.cpu_why
    assert got(sizing.sized(kubelet(0, 9000), pod(one(0, 9000)), KATA, kept, both))[0] == 9000, "a limit stands"
    assert most(sizing.room(kept, 4, 2 * MIB, node)) == (2000, 2 * MIB)
    assert most(sizing.room(kept, 0, 0, node)) == (5500, 3 * MIB)
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
