"""The feature, event by event: what is kept of readings, what follows from them, and when a limit is set."""

from dataclasses import replace

import pytest

from nodeward.core import events as ev
from nodeward.core.decision import Decision, Special, Target
from nodeward.core.modes import Mode
from nodeward.core.vms import UNLIMITED, CgroupDriver, CgroupReading, Handler, Place, Profile, Task, VmReading
from nodeward.core.workload import (
    Container,
    ContainerId,
    ContainerSpec,
    CpuRecord,
    HostShare,
    PodSpec,
    PodUid,
    Role,
    Sandbox,
    SandboxId,
    WholePod,
)
from nodeward.features.root import SettingsChanged
from nodeward.features.sandboxes.pod_limits import LARGEST_PAGE, Overhead, declared, limits, own_cgroup, wish
from nodeward.features.sandboxes.settings import SandboxesSettings
from nodeward.features.sandboxes.state import Limited, Sandboxes, Vm
from nodeward.features.sandboxes.step import MOST_CLASSES
from nodeward.features.sandboxes.values import Expected, Fit, ModeSaid, Usage
from nodeward.features.settings import EngineSettings
from tests.unit.features.build import Told
from tests.unit.features.sandboxes.build import GIB, ID, IN, MIB, POD, RS, SECOND, pod, reading, shim, vcpu, vmm

SANDBOX = Sandbox(ID, PodUid("ab-cd-12"), "shop", "web")
MORE = Overhead(100 * MIB, 250)


def one(memory: int, cpu_m: int, name: str = "app") -> Container:
    return Container(ContainerId(name), ID, name, cpu=CpuRecord(0, cpu_m * 100, 100_000), memory=memory)


def spec(*containers: tuple[Role, int, int], pod_level: bool = False) -> PodSpec:
    every = tuple(ContainerSpec(str(at), role, memory_limit=mem, cpu_limit_m=cpu) for at, (role, mem, cpu) in
                  enumerate(containers))  # fmt: skip
    return PodSpec(PodUid("ab-cd-12"), "shop", "web", every, pod_level=pod_level)


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        pytest.param([one(GIB, 500), one(GIB, 1000)], (2 * GIB + 100 * MIB, 1750), id="sum and overhead"),
        pytest.param([one(GIB, 500), one(0, 500)], (None, 1250), id="one without a memory limit"),
        pytest.param([one(GIB, 500), one(GIB, 0)], (2 * GIB + 100 * MIB, None), id="one without a CPU limit"),
        pytest.param([], (None, None), id="no container yet"),
    ],
)
def test_a_limit_is_the_sum_where_every_container_has_one(
    containers: list[Container], expected: tuple[int | None, int | None]
) -> None:
    assert limits(None, containers, MORE) == expected


def test_by_a_spec_init_containers_count_as_kubelet_counts_them_and_a_pods_own_limits_are_not_guessed() -> None:
    of = spec((Role.INIT, 3 * GIB, 100), (Role.SIDECAR, GIB, 100), (Role.REGULAR, GIB, 300), (Role.EPHEMERAL, 0, 0))
    assert limits(of, [one(0, 0)], Overhead()) == (3 * GIB, 400)
    of = spec((Role.REGULAR, GIB, 1), pod_level=True)
    assert limits(of, [], MORE) == (None, None), "an old source does not tell them"
    assert limits(replace(of, whole=WholePod(memory_limit=2 * GIB)), [], Overhead()) == (2 * GIB, 1)


def test_an_overhead_is_the_specs_else_what_kubelet_told_the_runtime() -> None:
    told = replace(SANDBOX, overhead=HostShare(CpuRecord(0, 25_000, 100_000), 130 * MIB))
    assert declared(None, told) == Overhead(130 * MIB, 250)
    assert declared(replace(spec(), overhead_memory=7), told) == Overhead(7, 0)
    assert declared(None, None) == Overhead()


def test_a_cgroup_of_which_the_runtime_does_not_tell_or_with_a_short_uid_in_its_name_is_not() -> None:
    vm = Vm(reading(cgroups=(CgroupReading(Place.POD, "/mypods"),)))
    assert own_cgroup(vm, replace(SANDBOX, pod_uid=PodUid("pods"))) is None
    assert own_cgroup(Vm(reading(cgroups=(CgroupReading(Place.SANDBOX, "/s1"),))), None) is None


@pytest.mark.parametrize(
    ("has", "should", "ours", "step", "is_due"),
    [
        pytest.param(UNLIMITED, 100, None, 1, True, id="missing"),
        pytest.param(UNLIMITED, None, None, 1, False, id="missing, and none is wanted"),
        pytest.param(None, 100, None, 1, False, id="not read"),
        pytest.param(None, 100, 100, 1, True, id="ours, and not to be read any more"),
        pytest.param(90, 100, None, 1, False, id="somebody else's"),
        pytest.param(90, 100, 90, 1, True, id="ours, and another one now"),
        pytest.param(90, None, 90, 1, True, id="ours, and none any more"),
        pytest.param(8192, 8200, 8200, LARGEST_PAGE, False, id="ours, in whole pages"),
        pytest.param(80_000, 90_000, 80_000, 1, True, id="of a large machine's CPUs"),
    ],
)
def test_a_limit_is_due_where_it_is_missing_or_ours(
    has: int | None, should: int | None, ours: int | None, step: int, is_due: bool
) -> None:
    by_cpu = step == 1
    cgroup = CgroupReading(Place.POD, "/own", 0, *((None, None, has) if by_cpu else (has, None, None)))
    vm = Vm(reading(), limits=(None, should) if by_cpu else (should, None))
    known = () if ours is None else (ours,)
    found = wish(vm, cgroup, Limited("/own", cpu=known) if by_cpu else Limited("/own", known))
    assert bool(found.values) is is_due


@pytest.mark.parametrize(
    ("pod", "inside", "place"),
    [
        pytest.param("/pods/podab-cd-12", "/pods/podab-cd-12/kata_s1", Place.POD, id="named after the pod"),
        pytest.param("/x.slice/x-podab_cd_12.slice", "/s1", Place.POD, id="as systemd spells it"),
        pytest.param("/docker", "/docker/kata_s1", Place.SANDBOX, id="the folder of all containers"),
        pytest.param("/docker", "/docker/other", None, id="neither is its own"),
        pytest.param("", "/s1", Place.SANDBOX, id="no pod"),
        pytest.param("/kubepods/burstable/podab-cd-12", "/kubepods/burstable/podab-cd-12/s1", None, id="kubelet's"),
        pytest.param("/kubepods.slice/kubepods-podab_cd_12.slice", "/s1", None, id="kubelet's, by systemd"),
        pytest.param("/a/root/kubepods/podab-cd-12", "/s1", None, id="kubelet's, below a root of its own"),
    ],
)
def test_only_a_cgroup_of_this_sandbox_alone_may_be_limited(pod: str, inside: str, place: Place | None) -> None:
    both = (CgroupReading(Place.POD, pod), CgroupReading(Place.SANDBOX, inside))
    found = own_cgroup(Vm(reading(cgroups=both if pod else both[1:])), SANDBOX)
    assert (found.place if found is not None else None) is place


def test_no_memory_limit_is_set_while_it_is_not_known_whether_the_vm_fits() -> None:
    cgroup = CgroupReading(Place.POD, "/own", 0, UNLIMITED, None, UNLIMITED)
    found = wish(Vm(reading(cgroups=(cgroup,)), limits=(256 * MIB, 1000)), cgroup, None)
    assert found.values == {"cpu": 1000}
    assert "is not known" in found.why_not


UID = PodUid("u1234567")
OWN, INSIDE = "/pods/podu1234567", "/pods/podu1234567/s1"
HOME = Sandbox(ID, UID, "shop", "web", cgroup_parent=POD, handler="kata")
BARE = replace(HOME, cgroup_parent=OWN)
"""By a runtime without kubelet."""


def settings(mode: Mode = Mode.OBSERVE) -> SettingsChanged:
    return SettingsChanged(EngineSettings(sandboxes=SandboxesSettings(mode)))


def told(home: Sandbox = HOME, mode: Mode = Mode.OBSERVE, handlers: tuple[Handler, ...] = (RS,)) -> Told:
    node = Told()
    node(settings(mode))
    node(ev.HandlersRead(handlers))
    node(ev.SandboxStarted(home))
    return node


def read(node: Told, *readings: VmReading, there: tuple[SandboxId, ...] | None = (ID,)) -> Decision:
    return node(ev.VmsRead(readings, 1, CgroupDriver.CGROUPFS, there))


def vm(node: Told) -> Vm:
    return node.state.sandboxes.vms[ID]


def run(node: Told, memory: int, cpu_m: int, name: str = "app", home: Sandbox = BARE) -> None:
    node(ev.Started(home, replace(one(memory, cpu_m, name), cgroups_path=f"{OWN}/{name}")))


# ---- what is kept


def test_a_reading_is_kept_with_all_that_follows_from_it() -> None:
    node = told()
    assert read(node, reading(shim(), vmm(), vcpu(), cgroups=(pod(GIB),), vm_memory=GIB, vm_vcpus=2)).goals == ()
    found = vm(node)
    assert (found.profile, found.mode, found.drifts) == (Profile.KATA_RS, ModeSaid(True, "/c.toml"), ())
    assert found.expected == Expected(IN, shim=IN, virtiofsd=IN, vmm=IN, vcpu=IN)
    assert found.headroom is not None
    assert found.headroom.fit is Fit.KILLED
    assert found.usage is not None
    assert found.usage.overhead == 128 * MIB
    assert (node.state.sandboxes.version, node.state.sandboxes.driver) == (1, CgroupDriver.CGROUPFS)


def test_what_is_there_no_more_is_dropped_with_the_rounds_last_event() -> None:
    node = told()
    other = replace(reading(), sandbox=SandboxId("s2"))
    read(node, reading(), there=None)
    read(node, other, there=None)
    assert list(node.state.sandboxes.vms) == [ID, "s2"]
    read(node, there=(SandboxId("s2"),))
    assert list(node.state.sandboxes.vms) == ["s2"]


def test_off_nothing_is_kept_but_the_handlers_which_nobody_tells_again() -> None:
    node = told()
    read(node, reading())
    node(settings(Mode.OFF))
    read(node, reading())
    assert node.state.sandboxes == Sandboxes({"kata": RS})


def test_a_drift_and_a_place_are_told_with_since_when() -> None:
    node = told()
    here = (shim(), vmm())
    read(node, reading(*here, at_s=1))
    read(node, reading(*here, at_s=2))
    assert vm(node).since_ns == {"shim": SECOND, "vmm": SECOND, "measured:kata": SECOND}
    for at_s in (3, 4):
        read(node, reading(shim(), vmm("/elsewhere"), at_s=at_s))
    (drift,) = vm(node).drifts
    assert (drift.role, drift.seen, drift.expected) == ("vmm", "/elsewhere", IN)
    assert vm(node).since_ns == {"shim": SECOND, "vmm": 3 * SECOND, drift.code: 3 * SECOND, "measured:kata": SECOND}
    read(node, reading(*here, at_s=5))
    assert vm(node).drifts == ()
    assert drift.code not in vm(node).since_ns


def test_nothing_is_said_of_how_long_what_was_there_before_the_daemon_is_where_it_is() -> None:
    node = told()
    for at_s in (100, 101):
        read(node, reading(shim(), vmm("/elsewhere"), at_s=at_s))
    assert vm(node).since_ns == {"measured:kata": 100 * SECOND}
    read(node, reading(shim(), vmm("/other"), at_s=102))
    assert vm(node).since_ns == {"vmm": 102 * SECOND, "measured:kata": 100 * SECOND}


def test_another_configuration_is_gone_by_at_once() -> None:
    node = told()
    read(node, reading(shim(), vmm()))
    node(ev.HandlersRead((replace(RS, only=False),)))
    assert vm(node).mode == ModeSaid(False, "/c.toml")
    assert [one.code for one in vm(node).drifts] == ["other-mode"]
    assert node.state.sandboxes.measured["kata"].samples == 1


def test_a_late_reading_changes_nothing() -> None:
    node = told()
    read(node, reading(vmm(cpu_ns=9), at_s=5))
    before = vm(node)
    read(node, reading(at_s=4))
    assert vm(node) is before


@pytest.mark.parametrize(
    ("handler", "handlers", "profile"),
    [
        pytest.param("", (RS,), Profile.KATA_RS, id="the only one"),
        pytest.param("", (RS, replace(RS, name="other")), None, id="one of two"),
        pytest.param("gone", (RS,), None, id="one that is not configured"),
        pytest.param("", (RS, replace(RS, name="class")), Profile.KATA_RS, id="the RuntimeClass's name"),
    ],
)
def test_a_sandbox_goes_by_its_handler(handler: str, handlers: tuple[Handler, ...], profile: Profile | None) -> None:
    node = told(replace(HOME, handler=handler), handlers=handlers)
    node(ev.PodSeen(PodSpec(UID, "shop", "web", runtime_class="class")))
    read(node, reading())
    assert vm(node).profile is profile


def test_a_sandbox_that_no_runtime_tells_of_is_shown_too() -> None:
    node = told()
    read(node, replace(reading(shim("/x")), sandbox=SandboxId("lone")), there=(SandboxId("lone"),))
    assert list(node.state.sandboxes.vms) == ["lone"]
    read(node, replace(reading(shim(), vmm(), at_s=2), sandbox=SandboxId("lone")))
    assert node.state.sandboxes.measured == {}


@pytest.mark.parametrize("name", ["s1", "crio-s1"], ids=["containerd", "cri-o"])
def test_without_containers_a_sandbox_is_expected_where_its_runtime_names_it(name: str) -> None:
    node, here = told(), f"{POD}/{name}"
    own = CgroupReading(Place.SANDBOX, here)
    read(node, reading(shim(here), vmm(here), vcpu(here), cgroups=(pod(), own)))
    assert (vm(node).expected, vm(node).drifts) == (Expected(here, "", here, here, here, here), ())


def test_a_cgroup_of_several_pods_is_no_pods_own() -> None:
    node = told()
    node(ev.SandboxStarted(replace(HOME, id=SandboxId("s2"), pod_uid=PodUid("u2"))))
    of_all, own = pod(2 * GIB, memory=9 * GIB), CgroupReading(Place.SANDBOX, IN, GIB, UNLIMITED)
    read(node, reading(shim(), vmm(), cgroups=(of_all, own), vm_memory=GIB))
    found = vm(node)
    assert found.reading.cgroups == (own,)
    assert (found.usage or Usage()).memory == GIB


# ---- what is measured


def test_overheads_are_counted_by_runtime_class_else_by_handler() -> None:
    node = told()
    read(node, reading(shim(), vmm(), at_s=1))
    node(ev.PodSeen(PodSpec(UID, "shop", "web", runtime_class="kata-class")))
    for at_s in (2, 3):
        read(node, reading(shim(), vmm(), at_s=at_s))
    read(node, reading(shim(), at_s=4))
    counts = {name: (one.samples, one.sandboxes) for name, one in node.state.sandboxes.measured.items()}
    assert counts == {"kata": (1, 1), "kata-class": (2, 1)}


def test_so_many_names_are_measured_at_most() -> None:
    node = told()
    for number in range(MOST_CLASSES + 3):
        node(ev.PodSeen(PodSpec(UID, "shop", "web", runtime_class=f"c{number}")))
        read(node, reading(shim(), vmm(), at_s=number + 1))
    assert len(node.state.sandboxes.measured) == MOST_CLASSES


# ---- limits of a pod that nobody else limits


def bare(*tasks: Task, memory: int | None = UNLIMITED, cpu_m: int | None = UNLIMITED, at_s: int = 1) -> VmReading:
    cgroup = CgroupReading(Place.POD, OWN, 700 * MIB, memory, None, cpu_m)
    here = tasks or (shim(INSIDE), vmm(INSIDE))
    return reading(*here, cgroups=(cgroup,), vm_memory=GIB, vm_vcpus=1, at_s=at_s)


def wanted(decision: Decision) -> dict[str, str | Special]:
    assert all(goal.target.where == OWN for goal in decision.goals)
    return {goal.target.resource: goal.value for goal in decision.goals}


ROOM = 2 * GIB
LIMITS = {"memory": str(ROOM + 160 * MIB), "cpu": "1250"}


def enforced(mode: Mode = Mode.ENFORCE, home: Sandbox = BARE) -> Told:
    node = told(home, mode)
    run(node, ROOM, 1000, home=home)
    return node


def test_observe_performs_nothing() -> None:
    node = enforced(Mode.OBSERVE)
    decision = read(node, bare())
    assert wanted(decision) == LIMITS
    assert not any(goal.perform for goal in decision.goals)
    assert read(node, bare(at_s=2)).goals == ()


def test_kubelets_own_pods_are_left_to_kubelet() -> None:
    node = enforced(home=HOME)
    assert read(node, reading(shim(), vmm(), cgroups=(pod(UNLIMITED),), vm_memory=GIB)).goals == ()
    assert vm(node).limits == (ROOM, 1000)


def test_a_limit_that_would_end_the_vm_is_not_set_and_it_is_said() -> None:
    node = told(BARE, Mode.ENFORCE)
    run(node, 512 * MIB, 1000)
    assert wanted(read(node, bare())) == {"cpu": LIMITS["cpu"]}
    assert "would end the VM" in node.state.sandboxes.misses[OWN]


def reach(node: Told, *resources: str) -> None:
    targets = tuple(Target("pod.limit", OWN, resource) for resource in resources)
    node(ev.Reached(targets, targets))


def limited() -> Told:
    node = enforced()
    read(node, bare())
    reach(node, "memory", "cpu")
    return node


def test_our_limit_follows_the_containers_and_is_taken_back_with_the_first_unlimited_one() -> None:
    node = limited()
    assert node.state.sandboxes.written == {OWN: 2}
    run(node, GIB, 500, "more")
    now = {"memory": 3 * GIB + 160 * MIB, "cpu": 1750}
    is_set = {"memory": ROOM + 160 * MIB, "cpu_m": 1250}
    assert wanted(read(node, bare(**is_set, at_s=2))) == {name: str(value) for name, value in now.items()}
    run(node, 0, 0, "free")
    after = bare(memory=now["memory"], cpu_m=now["cpu"], at_s=3)
    decision = read(node, after)
    assert wanted(decision) == {"memory": Special.ABSENT, "cpu": Special.ABSENT}
    assert all(goal.ours for goal in decision.goals)


def test_our_limit_is_set_again_where_somebody_took_it_or_its_controller_away_and_it_is_said() -> None:
    node = limited()
    assert read(node, bare(memory=ROOM + 160 * MIB, cpu_m=1250, at_s=2)).goals == ()
    assert wanted(read(node, bare(cpu_m=1250, at_s=3))) == {"memory": LIMITS["memory"]}
    assert wanted(read(node, bare(memory=ROOM + 160 * MIB, cpu_m=None, at_s=4))) == {"cpu": LIMITS["cpu"]}
    node(ev.Missed(((Target("pod.limit", OWN, "cpu"), "the cgroup does not get the controller"),)))
    assert read(node, bare(memory=ROOM + 160 * MIB, cpu_m=None, at_s=5)).goals == ()
    assert "does not get the controller" in node.state.sandboxes.misses[OWN]


def test_a_miss_is_kept_until_the_limit_is_set() -> None:
    node = enforced()
    read(node, bare())
    node(ev.Missed(((Target("pod.limit", OWN, "cpu"), "refused"),)))
    assert node.state.sandboxes.misses == {OWN: "cpu: refused"}
    assert read(node, bare(at_s=2)).goals == ()
    assert node.state.sandboxes.misses == {OWN: "cpu: refused"}
    reach(node, "cpu")
    assert node.state.sandboxes.misses == {}


def test_our_limit_follows_the_containers_where_settings_change_in_between() -> None:
    node = limited()
    read(node, bare(memory=ROOM + 160 * MIB, cpu_m=1250, at_s=2))
    run(node, GIB, 500, "more")
    assert wanted(node(settings(Mode.ENFORCE))) == {"memory": str(3 * GIB + 160 * MIB), "cpu": "1750"}


def test_our_limit_stays_ours_however_often_the_kernel_refuses_another() -> None:
    node = limited()
    for more in range(1, 4):
        run(node, GIB, 0, f"more{more}")
        now = read(node, bare(memory=ROOM + 160 * MIB, cpu_m=1250, at_s=1 + more))
        assert wanted(now)["memory"] == str(ROOM + more * GIB + 160 * MIB)
        node(ev.Missed(((Target("pod.limit", OWN, "memory"), "refused"),)))
    read(node, bare(memory=ROOM + 160 * MIB, at_s=9))
    assert node.state.sandboxes.misses == {OWN: "memory: refused"}


def test_our_limit_is_taken_back_where_the_vm_has_outgrown_it() -> None:
    node = limited()
    now = bare(memory=ROOM + 160 * MIB, cpu_m=1250, at_s=2)
    assert wanted(read(node, replace(now, vm_memory=3 * GIB))) == {"memory": Special.ABSENT}
    assert "would end the VM" in node.state.sandboxes.misses[OWN]


def test_what_was_wanted_ends_with_the_sandbox_and_with_the_mode() -> None:
    both = (Target("pod.limit", OWN, "memory"), Target("pod.limit", OWN, "cpu"))
    node = enforced()
    read(node, bare())
    reach(node, "cpu")
    assert node(settings(Mode.OBSERVE)).forget == both
    assert len(node(settings(Mode.ENFORCE)).goals) == 2
    node(ev.SandboxStopped(node.state.pods.sandboxes[ID].sandbox))
    assert read(node, there=()).forget == both
    assert (node.state.sandboxes.written, node.state.sandboxes.limited) == ({}, {})
