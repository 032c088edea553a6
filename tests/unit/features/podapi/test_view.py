"""The Pod API's sections, sizes and devices as the engine's state has them."""

from dataclasses import replace

import pytest

from nodeward.core.devices import CdiDevice, CdiFault, DeviceKind, Evidence, Told, kind_of
from nodeward.core.pulls import SandboxKey
from nodeward.core.vms import Allocatable, CgroupReading, Handler, Place, Profile, Room, Task, TaskRole, VmReading
from nodeward.core.workload import ContainerSpec, HostShare, PodSpec, PodUid, Role, Sandbox, SandboxId
from nodeward.features.podapi import view as show
from nodeward.features.podapi.devices import judged
from nodeward.features.podapi.rows import (
    ComputeSizeRequest,
    PodCgroup,
    PodTotals,
    PodVmSize,
    ReportSandboxRequest,
    Selector,
)
from nodeward.features.podapi.size_view import computed
from nodeward.features.pods.state import Ended, KnownSandbox, KnownSpec, Pods
from nodeward.features.root import State
from nodeward.features.sandboxes import sizing
from nodeward.features.sandboxes.settings import SizingSettings
from nodeward.features.sandboxes.state import Sandboxes, Vm
from nodeward.features.sandboxes.values import VmSize
from tests.unit.features.build import there

MIB = 1 << 20
UID, ID = PodUid("u1"), SandboxId("s1")
SIDE = ContainerSpec("side", Role.SIDECAR, cpu_m=500, memory_request=64 * MIB)
INIT = ContainerSpec("init", Role.INIT, cpu_m=3000, memory_request=64 * MIB)
APP = ContainerSpec("app", cpu_m=1000, cpu_limit_m=2000, memory_request=256 * MIB, memory_limit=512 * MIB)
SPEC = PodSpec(UID, "shop", "web", (SIDE, INIT, APP))
HOME = Sandbox(ID, UID, "shop", "web", cgroup_parent="/kubepods.slice/kubepods-podu1.slice", handler="kata")
TASKS = (Task(TaskRole.VMM, 20, 20, 7), Task(TaskRole.VCPU, 20, 21, 7))
READ = VmReading(ID, 1, TASKS, (CgroupReading(Place.POD, "/kubepods/u1"),), vm_memory=512 * MIB, vm_vcpus=2)
VM = Vm(READ, size=VmSize(512 * MIB, 2, "vmm"))
STATE = State(
    pods=Pods({UID: KnownSpec(SPEC, 5)}, {ID: KnownSandbox(HOME, 6)}, sandbox_of={UID: ID}, api_up=True),
    sandboxes=Sandboxes(vms={ID: VM}),
)
EARLY = replace(STATE, pods=replace(STATE.pods, specs={}))


def found(state: State, asked: Selector) -> show.Subject:
    return there(show.subject(state, asked))


@pytest.mark.parametrize(
    "asked",
    [Selector("u1"), Selector(sandbox="s1"), Selector("", "", "shop", "web"), Selector("u1", "s1", "shop", "web")],
)
@pytest.mark.parametrize("state", [STATE, EARLY], ids=["known", "sandbox alone"])
def test_a_pod_is_found_by_each_of_its_names(state: State, asked: Selector) -> None:
    assert show.identity(state, found(state, asked), show.Around()).value == show.pods(state)[0]


@pytest.mark.parametrize(
    "asked", [Selector("u2"), Selector(sandbox="s2"), Selector("u2", "s1"), Selector("u1", "", "shop", "other")]
)
def test_a_selector_that_fits_in_part_finds_nothing(asked: Selector) -> None:
    assert show.subject(STATE, asked) is None


def test_of_two_pods_with_one_name_the_newer_is_found_and_the_old_one_by_its_uid() -> None:
    newer = replace(SPEC, uid=PodUid("u2"))
    specs = {newer.uid: KnownSpec(newer, 9), UID: KnownSpec(SPEC, 5, gone=True)}
    state = replace(STATE, pods=replace(STATE.pods, specs=specs))
    assert found(state, Selector("", "", "shop", "web")).uid == "u2"
    assert found(state, Selector("u1")).sandbox == HOME


def by_cgroup() -> State:
    """The stand-in for a sandbox of which only the cgroup is known."""
    home = replace(HOME, id=SandboxId("cgroup:/u1"), handler="", namespace="", name="")
    sandboxes = {home.id: KnownSandbox(home, 6, by_cgroup=True)}
    return replace(STATE, pods=replace(STATE.pods, sandboxes=sandboxes, sandbox_of={UID: home.id}))


def test_a_stand_in_is_no_sandbox_id() -> None:
    state = by_cgroup()
    one = found(state, Selector("u1"))
    assert (show.pods(state)[0].sandbox, one.sandbox_id) == ("", "")
    assert show.cgroup(state, one, show.Around()).value == PodCgroup(HOME.cgroup_parent, "systemd", 0)
    assert show.subject(state, Selector(sandbox="cgroup:/u1")) is None


KEYS = (
    SandboxKey("s-old", "shop", "web", "u0", 5, "kata"),
    SandboxKey("s0", "shop", "web", "u1", 0, "kata"),
    SandboxKey("s2", "shop", "web", "u1", 2, "kata"),
    SandboxKey("s3", "shop", "web", "", 7, "kata"),
    SandboxKey("s-early", "shop", "db", "u9", 0, "runc"),
)
AWAY = show.Around(no_id="the relay is away")


def test_the_relays_word_stands_in_for_nri_by_the_pods_uid_alone() -> None:
    state = by_cgroup()
    for asked, sandbox in ((Selector("u1"), "s2"), (Selector("", "", "shop", "web"), "s2"), (Selector("", "s0"), "s0")):
        one = there(show.subject(state, asked, KEYS))
        section = show.identity(state, one, AWAY)
        assert (one.uid, one.sandbox_id) == ("u1", sandbox)
        assert show.cgroup(state, one, AWAY).value == PodCgroup(HOME.cgroup_parent, "systemd", 0)
        by = "the pod's spec in the API server, and the relay"
        assert (there(section.value).handler, section.source, section.complete) == ("kata", by, True)
    away = show.identity(state, found(state, Selector("u1")), AWAY)
    assert (away.complete, away.why) == (False, "the relay is away")
    early = there(show.subject(state, Selector(sandbox="s-early"), KEYS))
    assert (early.uid, show.identity(state, early, AWAY).source) == ("u9", "the relay")
    listed = [(one.uid, one.sandbox) for one in show.pods(show.with_told(state, KEYS))]
    assert listed == [("u9", "s-early"), ("u0", "s-old"), ("u1", "s2")]


def test_what_the_runtime_has_told_comes_before_the_relays_word() -> None:
    assert show.subject(STATE, Selector("u1"), KEYS) == found(STATE, Selector("u1"))
    assert show.subject(STATE, Selector(sandbox="s2"), KEYS) is None
    ended = replace(STATE.pods, sandboxes={}, sandbox_of={}, ended={"s2": Ended(7), "s0": Ended(6)})
    assert found(show.with_told(replace(STATE, pods=ended), KEYS), Selector("u1")).sandbox is None


def test_before_the_spec_is_known_each_section_says_so_and_the_runtimes_are_answered() -> None:
    one = found(EARLY, Selector(sandbox="s1"))
    sections = {name: make(EARLY, one, show.Around()) for name, make in show.MADE.items()}
    missing = {name for name, section in sections.items() if section.why == show.NO_SPEC}
    assert missing == {"identity", "containers", "totals", "overhead"}
    assert sections["cgroup"].value == PodCgroup(HOME.cgroup_parent, "systemd", 0)
    assert sections["size"].value == PodVmSize(2, 512 * MIB, "vmm")
    totals = PodTotals(3500, 2000, 320 * MIB, 512 * MIB, False, False)  # an init container beside earlier sidecars
    assert show.totals(STATE, found(STATE, Selector("u1")), show.Around()).value == totals


def test_a_report_that_the_kernel_contradicts_is_said_and_one_that_it_bears_out_is_not() -> None:
    one = found(STATE, Selector("u1"))
    right = show.Around(report=ReportSandboxRequest("s1", 20, (21,), 2, 512 * MIB, ("/kubepods/u1",)))
    assert (show.size(STATE, one, right).why, show.cgroup(STATE, one, right).why) == ("", "")
    report = ReportSandboxRequest("s1", 99, (21, 22), 4, 512 * MIB, ("/elsewhere",))
    wrong = show.Around(wall_ns=1000, now_ns=90, report=report, reported_ns=50)
    size = show.size(STATE, one, wrong)
    assert "vCPUs: the runtime reported 4, the kernel shows 2" in size.why
    assert "vCPU threads: the runtime reported [21, 22], the kernel shows [21]" in size.why
    assert "memory" not in size.why
    assert "VMM process: the runtime reported 99, the kernel shows [20]" in show.cgroup(STATE, one, wrong).why
    unread = show.size(replace(STATE, sandboxes=Sandboxes()), one, wrong)
    assert unread.value == PodVmSize(4, 512 * MIB, "reported")
    assert (size.observed_at, unread.observed_at) == (1000 - 90 + 1, 1000 - 90 + 50), "by the wall clock"


KATA = Handler("kata", "io.containerd.kata.v2", Profile.KATA_GO, "/k.toml", static=True, default_vcpus_m=1000)


def test_a_size_is_what_the_relay_sends_and_what_kata_makes_of_it() -> None:
    """With limits of the settings overridden; the relay's own function gives the same."""
    one, rule = found(STATE, Selector("u1")), SizingSettings(unlimited="6")
    handlers, asked = {"kata": replace(KATA, default_memory=256 * MIB)}, ComputeSizeRequest(unlimited="6")
    answer = computed(asked, one, handlers, SizingSettings(), 8, 1 << 34)
    share = HostShare(replace(HOME.asked.cpu, shares=3584, quota=200_000, period=100_000), 512 * MIB)
    sent = sizing.sized(share, SPEC, handlers["kata"], rule, Room(8000, 1 << 34))
    assert (answer.sent.cpu_quota, answer.sent.memory_limit) == (sent.cpu_quota, sent.memory_limit)
    assert (answer.cpu_m, answer.vcpus) == (6000, 6)
    assert (answer.kata.vcpus, answer.kata.memory) == (7, answer.memory + 256 * MIB)
    assert {term.what: term for term in answer.terms}["kubelet_cpu_m"].amount == 2000
    node = Allocatable(5000, 1 << 33)
    bounded = computed(asked, one, handlers, SizingSettings(), 8, 1 << 34, node)
    most = {term.what: (term.amount, term.why) for term in bounded.terms}["most_cpu_m"]
    assert (bounded.cpu_m, *most) == (5000, 5000, "allocatable 5000m by the Node object")


def test_a_handler_that_is_not_sized_is_sent_what_kubelet_sends_with_the_reason() -> None:
    one = found(STATE, Selector("u1"))
    growing = {"kata": replace(KATA, static=False)}
    answer = computed(ComputeSizeRequest(), one, growing, SizingSettings(), 8, 1 << 34)
    assert (answer.sent.cpu_quota, answer.sent.memory_limit, answer.sent.changes) == (200_000, 512 * MIB, False)
    assert "static_sandbox_resource_mgmt" in answer.sent.why
    unknown = computed(ComputeSizeRequest(handler="runc"), one, growing, SizingSettings(), 8, 1 << 34)
    assert (unknown.kata.vcpus, unknown.kata.memory) == (None, None)


NEW, OLD = PodUid("u-new"), PodUid("u-old")
PLUGIN, DRA = "a.b/nic", "shop/claim"
NIC, GPU, SAME = "a.b/nic=vf0", "c.d/gpu=g0", "c.d/nic=same"
NIC_AT, GPU_AT = "0000:01:00.0", "0000:02:00.0"
HOST = Evidence(
    devices={
        NIC: CdiDevice("/etc/cdi/a.json", ("/dev/vfio/1",), (NIC_AT,), (1,)),
        GPU: CdiDevice("/run/cdi/c.json", ("/dev/vfio/2",), (GPU_AT,)),
        SAME: CdiDevice("/run/cdi/c.json", ("/dev/vfio/1",), (NIC_AT,), (1,)),
    },
    holders={(PLUGIN, "vf0"): (NEW,), ("a.b/key", "k7"): (NEW,)},
    claims={DRA: (NEW, "of a pod that shares it")},
)


def plugin(device: str = "vf0", resource: str = PLUGIN, container: str = "app") -> Told:
    return Told(container, DeviceKind.PLUGIN, resource, device, (f"{resource}={device}",), (0,))


def dra(*names: str, container: str = "app", device: str = "g0") -> Told:
    return Told(container, DeviceKind.DRA, DRA, f"d.io/pool/{device}", names)


@pytest.mark.parametrize(
    ("told", "handed"),
    [
        pytest.param([plugin(), dra(GPU)], {"app": (NIC, GPU)}, id="one of each"),
        pytest.param([plugin("k7", "a.b/key"), dra(GPU)], {"app": (GPU,)}, id="an id that is no CDI device"),
        pytest.param([plugin(), dra(SAME)], {"app": (NIC,)}, id="one told by both"),
        pytest.param([dra(SAME), plugin(container="b")], {"app": (SAME,)}, id="one in two containers"),
        pytest.param([dra(GPU), dra(GPU, NIC, device="g1")], {"app": (GPU, NIC)}, id="kubelet 1.37 repeats names"),
        pytest.param([dra()], {}, id="a claim without CDI"),
    ],
)
def test_each_device_is_handed_on_once(told: list[Told], handed: dict[str, tuple[str, ...]]) -> None:
    found = judged(told, NEW, HOST)
    assert (found.refused, found.handed()) == ("", handed)


def test_a_device_that_two_tell_of_is_one_with_both_sources_and_its_place() -> None:
    (found,) = judged([plugin(), dra(SAME)], NEW, HOST).devices
    assert (found.paths, found.pci, found.numa) == (("/dev/vfio/1",), (NIC_AT,), (1,))
    plugins = "device-plugin a.b/nic", "CDI /etc/cdi/a.json", "its plugin says NUMA node 0"
    assert found.sources == (*plugins, "dra shop/claim", "CDI /run/cdi/c.json")
    second = judged([plugin(), plugin(container="b")], NEW, HOST).devices[1]
    assert second.left_out == f"handed on by another name, {NIC}"


@pytest.mark.parametrize(
    ("told", "evidence", "why"),
    [
        ([plugin()], replace(HOST, holders={(PLUGIN, "vf0"): (OLD,)}), "it is of pod UID u-old by"),
        ([plugin()], replace(HOST, holders={(PLUGIN, "vf0"): (OLD, NEW)}), "u-old, u-new"),
        ([plugin()], replace(HOST, holders={}), "it is of no pod by kubelet's checkpoint of devices"),
        ([plugin()], replace(HOST, holders_fault="/x: torn"), "whose it is cannot be read: /x: torn"),
        ([dra(GPU)], replace(HOST, claims={DRA: (OLD,)}), "it is of pod UID u-old by"),
        ([dra(GPU)], replace(HOST, claims_fault="/y: No such file"), "/y: No such file"),
        ([dra("gpu0")], HOST, "names a CDI device 'gpu0', which is no VENDOR/CLASS=DEVICE"),
        ([dra("c.d/gpu=g\n0")], HOST, "which is no VENDOR/CLASS=DEVICE"),
        ([dra("c.d/gpu=g9")], HOST, "no CDI spec has a device c.d/gpu=g9; the driver's specs must be in"),
        ([plugin("k7", "a.b/key")], replace(HOST, faults=(CdiFault("/s", "torn"),)), "cannot be used: /s: torn"),
        ([plugin("k7", "a.b/key")], replace(HOST, faults=(CdiFault("/s", "torn", "a.b/key"),)), "/s: torn"),
        (
            [plugin(), dra(GPU)],
            replace(HOST, devices={**HOST.devices, GPU: CdiDevice("c", pci=(NIC_AT, GPU_AT))}),
            f"the CDI devices {NIC} and {GPU} both have PCI device {NIC_AT}, and are not the same device",
        ),
    ],
)
def test_what_is_anothers_or_cannot_be_known_is_refused_and_why(told: list[Told], evidence: Evidence, why: str) -> None:
    assert why in judged(told, NEW, evidence).refused


def test_a_spec_of_another_kind_or_a_pod_without_devices_is_no_reason_to_refuse() -> None:
    assert judged([plugin("k7", "a.b/key")], NEW, replace(HOST, faults=(CdiFault("/s", "x", "z.z/y"),))).refused == ""
    assert judged([], None, HOST).refused == ""
    assert "no pod of this name is known" in judged([plugin()], None, HOST).refused


@pytest.mark.parametrize("name", ["", "a.b/c", "a.b/c=", "a.b=c", "1a/b=c", "a.b/c=-d", "a/b=c=d", "a/b=" + "c" * 999])
def test_what_is_no_cdi_name(name: str) -> None:
    assert kind_of(name) == ""
