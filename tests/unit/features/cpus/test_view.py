"""Who sits on which CPUs, and how VM sandboxes fit: drawn, told, and in a NodeResourceTopology object."""

from dataclasses import replace

import pytest

from nodeward.core import cpuset
from nodeward.core import events as ev
from nodeward.core.events import SandboxStarted, VmsRead
from nodeward.core.modes import Mode
from nodeward.core.refusal import Reason
from nodeward.core.topology import CpuAmount, MemoryNode, NodeZones, Zone
from nodeward.core.vms import CgroupDriver, CgroupReading, Handler, Place, Profile, Task, TaskRole, VmReading
from nodeward.core.workload import ContainerId, PodUid, Sandbox, SandboxId
from nodeward.features.cpus.pool_settings import BalloonsSettings, BalloonType
from nodeward.features.cpus.rows import CpusView
from nodeward.features.cpus.settings import Amount, AmountKind, CpusSettings, PolicySettings
from nodeward.features.cpus.state import Cpus, Held
from nodeward.features.cpus.values import Grant, Pool
from nodeward.features.cpus.values import Pools as PoolsOfPolicy
from nodeward.features.cpus.view import cpus_view
from nodeward.features.cpus.words import cpu_sentence, drawing
from nodeward.features.cpus.zones import NOTHING, zones
from nodeward.features.pods.state import KnownSandbox, KnownSpec, Pods
from nodeward.features.root import State
from nodeward.features.sandboxes import table
from nodeward.features.sandboxes.rows import SandboxesView, SandboxRow
from nodeward.features.sandboxes.settings import SandboxesSettings
from nodeward.features.sandboxes.state import Sandboxes, Vm
from nodeward.features.sandboxes.values import Drift, Expected, Fit, Headroom, Measured, ModeSaid, Usage, VmSize
from nodeward.features.sandboxes.view import sandboxes_view
from nodeward.features.sandboxes.words import mode_sentence
from nodeward.features.settings import EngineSettings
from nodeward.neighbours.sysfs.topology import read
from nodeward.people.explain import explain
from nodeward.people.table import cpu_lines, cpus_by_container, sandbox_lines
from nodeward.people.view import node_view
from nodeward_sim.doubles.cpus import Plan
from nodeward_sim.doubles.kernel import SimKernel
from tests.unit.features.build import SECOND, Told, pod_spec, sandbox, there
from tests.unit.features.cpus import build
from tests.unit.features.cpus.build import create, told
from tests.unit.features.cpus.machines import machine

SHARED = cpuset.parse("2-7,10-15")
GRANTS = (
    Grant("A/db", own=cpuset.parse("1,9"), request_m=2000, source="pod spec", reason=Reason("static-own", (2,))),
    Grant("A/side", "shared", part_m=500, request_m=500),
    Grant("B/app", "shared", request_m=100),
    Grant("B/agent", "reserved", request_m=100),
    Grant("C/half", "shared", own=1 << 8, part_m=500, request_m=1500),
)
HELD = {"A/db": cpuset.parse("1,9"), "A/side": SHARED, "B/app": (1 << 16) - 1}


def state(mode: Mode = Mode.ENFORCE) -> State:
    pools = {"reserved": Pool(1, members=("B/agent",)), "shared": Pool(SHARED, members=("A/side", "B/app", "C/half"))}
    boxes = [sandbox(uid) for uid in "AB"]
    return State(
        EngineSettings(cpus=CpusSettings(mode)),
        pods=Pods(
            sandboxes={box.id: KnownSandbox(box, 1) for box in boxes},
            sandbox_of={PodUid(box.pod_uid): box.id for box in boxes},
        ),
        cpus=Cpus(
            read(SimKernel({}, machine=Plan(nodes=1))),
            PolicySettings("static"),
            PoolsOfPolicy(pools, {grant.key: grant for grant in GRANTS}),
            {ContainerId(key.replace("/", "-")): Held(key, has=has, since_ns=SECOND) for key, has in HELD.items()},
            unplaced={"D/old": "its request is not known"},
            misses={ContainerId("B-app"): "Permission denied"},
        ),
    )


def shown(mode: Mode = Mode.ENFORCE) -> CpusView:
    return there(cpus_view(state(mode), 4 * SECOND))


def test_the_drawing_has_a_sign_for_each_thread_by_package_node_and_cache() -> None:
    assert list(drawing(shown(), 80)) == [
        "cpus enforce by nri | policy static | 3 of 16 CPUs exclusive to 2 container(s), 4 share",
        "package 0",
        "  node 0",
        "    L3 0  [rB][AA][..][..]  CPUs 0-3,8-11",
        "package 1",
        "  node 1",
        "    L3 1  [..][..][..][..]  CPUs 4-7,12-15",
        ". shared, r reserved",
        "A shop/pod-A/db: 1,9",
        "B C/half: 8 and pool shared (waiting)",
        "pool reserved: 0, 1 container(s)",
        "pool shared: 2-7,10-15, 3 container(s)",
        "D/old: has no CPUs by the policy and stays where it is: its request is not known",
        "shop/pod-B/app: its CPUs could not be set: Permission denied",
    ]


def test_a_line_is_no_wider_than_the_terminal_and_loses_no_core() -> None:
    large = there(cpus_view(State(cpus=Cpus(read(SimKernel({}, machine=Plan(nodes=4, l3=2, cores=8))))), 0))
    lines = [line for line in drawing(large, 24) if "[" in line]
    assert sum(line.count("[--]") for line in lines) == 128
    assert max(len(line.partition("  CPUs")[0]) for line in lines) <= 24


def test_status_has_a_line_where_a_policy_is_at_work_and_some_of_its_troubles_and_in_observe_nothing_is_held() -> None:
    found = state(Mode.OBSERVE)
    crowd = {f"{number}/old": "why" for number in range(9)}
    view = node_view(replace(found, cpus=replace(found.cpus, unplaced=crowd)), 0, {})
    lines = [line.plain for line in cpu_lines(view)]
    assert lines[0].startswith("cpus observe by nri | policy static")
    assert lines[-1] == "... and 5 more, see nodeward cpus"
    assert cpu_lines(node_view(State(), 0, {})) == []
    assert {row.state for row in shown(Mode.OBSERVE).holders if row.kind != "unplaced"} == {"observed"}


def test_explain_says_which_cpus_with_whom_since_when_and_why() -> None:
    view = node_view(state(), 4 * SECOND, {})
    assert explain(view, "shop/pod-A/db") == [
        "cpus shop/pod-A/db: 1,9, exclusive; 2 CPU(s) requested (pod spec).",
        "  static-own 2",
        "  The kernel lets it use 1,9, for 3 s.",
    ]
    assert explain(view, "B-app") == [
        "cpus shop/pod-B/app: 2-7,10-15, shared; 0.1 CPU(s) requested.",
        "  Shares pool shared (CPUs 2-7,10-15) with C/half, shop/pod-A/side.",
        "  The kernel lets it use 0-15, for 3 s; it is being put right.",
        "  The last write failed: Permission denied.",
    ]
    of_pod = [line.split()[1] for line in explain(view, "pod-A") or [] if line.startswith("cpus ")]
    assert of_pod == ["shop/pod-A/db:", "shop/pod-A/side:"]
    kept = "  No container of this name is there now; the CPUs are kept for it."
    assert (explain(view, "shop/pod-B/agent") or [])[-1] == kept


def test_each_container_of_the_table_has_its_own_cpus_or_the_pool_that_it_shares() -> None:
    words = cpus_by_container(node_view(state(), 4 * SECOND, {}))
    kinds = {row.name: row for row in shown().holders}
    assert {name: word.rstrip("?") for name, word in words.items() if kinds[name].kind == "exclusive"} == {
        row.name: row.own for row in kinds.values() if row.kind == "exclusive"
    }
    assert {word.rstrip("?") for name, word in words.items() if kinds[name].kind == "shared"} == {"shared"}


def test_a_reason_is_a_sentence_and_one_of_another_version_is_told_as_it_is() -> None:
    taken = Reason("cpus-static-taken", (3, "3,18-19", 30, 0, 0, 1, 1))
    assert "3 whole CPU(s) of 30 that were free and not isolated: 3,18-19 (1 whole core(s)" in cpu_sentence(taken)
    for other in (Reason("cpus-static-taken", (3, "3")), Reason("cpus-unheard-of", (3, "x"))):
        assert f"{other.code} {' '.join(map(str, other.values))}" in cpu_sentence(other)


FAR = {0: 10, 1: 21}
HERE = replace(
    machine(1, 2),
    isolated=1 << 7,
    memory=(MemoryNode(0, 0x0F0F, 1 << 30, distances=FAR), MemoryNode(2, 0, 1 << 20, distances={2: 10})),
)
"""Two NUMA nodes of four cores: the CPUs 0-3,8-11 and 4-7,12-15; a third node is memory alone."""
CPU0 = Amount(AmountKind.CPUSET, 1)
BALLOONS = BalloonsSettings(balloon_types=(BalloonType("web", ("shop",), max_cpus=4, prefer_new_balloons=True),))


def node(policy: PolicySettings) -> Told:
    engine = told(policy, of=HERE)
    engine(ev.RuntimeConnected("containerd", "2.4"))
    return engine


def told_zones(engine: Told) -> dict[str, Zone]:
    return {zone.name: zone for zone in there(zones(engine.state)).zones}


def test_exclusive_and_requested_cpus_are_not_available() -> None:
    engine = node(PolicySettings("static", reserved=CPU0))
    create(engine, "db", 2)
    create(engine, "log", 1, "burstable")
    found = told_zones(engine)
    assert found["socket #0"].cpu == CpuAmount(16000, 15000, 12000)
    near, far = found["node-0"], found["node-1"]
    assert (near.type, near.parent, near.costs) == ("Node", "socket #0", {"node-0": 10, "node-1": 21})
    assert near.cpu is not None
    assert far.cpu is not None
    assert near.cpu.capacity_m == far.cpu.capacity_m == 8000
    assert near.attributes["reserved cpuset"] == "0"
    assert near.attributes["exclusive cpuset"] == "1,9"
    assert near.attributes["memory capacity"] == str(1 << 30)
    assert far.attributes["isolated cpuset"] == "7"
    assert (found["node-2"].cpu, found["node-2"].attributes) == (None, {"memory capacity": str(1 << 20)})
    # the shared request counts on each usable CPU of the pool alike: 5 of them near, 7 far
    assert (near.cpu.available_m, far.cpu.available_m) == (5000 - 417, 8000 - 584)
    assert found["shared"] == Zone(
        "shared",
        "pool",
        CpuAmount(16000, 13000, 12000),
        attributes={"cpuset": "0,2-6,8,10-15", "excess cpus": "12000m"},
    )


def test_the_pools_of_a_tree_are_zones_within_one_another() -> None:
    engine = node(PolicySettings("topology-aware", reserved=CPU0))
    create(engine, "own", 2)
    found = told_zones(engine)
    assert [name for name in found if name.startswith("socket")] == ["socket #0"]
    above, near, far = found["socket #0"], found["NUMA node #0"], found["NUMA node #1"]
    assert (above.type, above.parent, far.type, far.parent) == ("socket", "", "numa node", "socket #0")
    assert above.cpu == CpuAmount(14000, 14000, 12000)
    assert far.attributes["shared cpuset"] == far.attributes["cpuset"]
    assert (near.attributes["memory set"], far.attributes["isolated cpuset"]) == ("0,2", "7")
    drawn = [line for line in drawing(build.shown(engine), 100) if "pool " in line and "container(s)" in line]
    assert [line.partition(":")[0] for line in drawn[-5:]] == [
        "pool socket #0",
        "  pool NUMA node #0",
        "  pool NUMA node #1",
        "pool reserved",
        "pool isolated",
    ]


def test_a_balloon_is_told_as_nri_plugins_does() -> None:
    engine = node(PolicySettings("balloons", reserved=CPU0, balloons=BALLOONS))
    create(engine, "a", 1, "burstable")
    web = told_zones(engine)["web[0]"]
    assert (web.type, web.cpu) == ("balloon", CpuAmount(16000, 4000, 3000))
    assert web.attributes["excess cpus"] == "0m"


@pytest.mark.parametrize(
    ("engine", "found"),
    [
        pytest.param(told(of=HERE), None, id="no-runtime"),
        pytest.param(told(cpus=CpusSettings(Mode.OFF), of=HERE), NOTHING, id="off"),
        pytest.param(told(PolicySettings("static"), of=HERE), None, id="unfit"),
    ],
)
def test_nothing_is_told_that_is_not_known(engine: Told, found: NodeZones | None) -> None:
    assert zones(engine.state) == found


MI = 1 << 20
POD, KATA, OVERHEAD = "/kubepods/podA", "/kubepods/podA/kata_s-A", "/kata_overhead/s-A"
FILE = "/etc/kata-containers/configuration.toml"
TASKS = (
    Task(TaskRole.VCPU, 11, 13, 5, cgroup=KATA, cpu_cgroup=KATA),
    Task(TaskRole.VCPU, 11, 12, 5, cgroup=KATA, cpu_cgroup=KATA),
    Task(TaskRole.SHIM, 10, 10, 5, cgroup=OVERHEAD, cpu_cgroup=OVERHEAD),
    Task(TaskRole.VMM, 11, 11, 5, cgroup="/system.slice", cpu_cgroup=OVERHEAD),
)
SPLIT = Vm(
    VmReading(
        SandboxId("s-A"),
        3 * SECOND,
        TASKS,
        (CgroupReading(Place.POD, POD, memory_limit=512 * MI, oom_kills=1), CgroupReading(Place.SANDBOX, KATA)),
        "k8s.io",
        "qemu",
        256 * MI,
        2,
    ),
    Profile.KATA_GO,
    ModeSaid(False, FILE),
    Expected(KATA, OVERHEAD, OVERHEAD, OVERHEAD, OVERHEAD, KATA),
    (Drift("elsewhere", "vmm", "/system.slice", OVERHEAD, 1),),
    VmSize(256 * MI, 2, "vmm"),
    Headroom(Fit.FITS, 512 * MI, 256 * MI, 180 * MI, "measured", 76 * MI),
    Usage(guest=100 * MI, vmm=80 * MI, shim=20 * MI, outside=200 * MI),
    {"shim": SECOND, "elsewhere": 2 * SECOND},
    (768 * MI, None),
)


def state_of_vms(vm: Vm = SPLIT, mode: Mode = Mode.OBSERVE) -> State:
    box = replace(sandbox("A"), handler="kata-qemu")
    spec = replace(pod_spec("A"), runtime_class="kata", overhead_memory=160 * MI, overhead_cpu_m=250)
    return State(
        EngineSettings(sandboxes=SandboxesSettings(mode, samples=10)),
        pods=Pods({PodUid("A"): KnownSpec(spec, 1)}, {box.id: KnownSandbox(box, 1)}, sandbox_of={box.pod_uid: box.id}),
        sandboxes=Sandboxes(
            {"kata-qemu": Handler("kata-qemu", only=False, only_from=FILE, fault="line 3: no value")},
            {box.id: vm},
            {"kata": Measured({100 * MI: 95, 200 * MI: 5}, {50: 99, 90: 1}, 100, 4)},
            version=1,
        ),
    )


def shown_sandboxes(vm: Vm = SPLIT) -> SandboxesView:
    return there(sandboxes_view(state_of_vms(vm), 5 * SECOND))


def row(vm: Vm = SPLIT) -> SandboxRow:
    return shown_sandboxes(vm).rows[0]


def test_explain_says_mode_places_verdict_and_cost() -> None:
    assert explain(node_view(state_of_vms(), 5 * SECOND, {}), "shop/pod-A") == [
        "sandbox shop/pod-A: VM (qemu), runtime handler kata-qemu, kata-go.",
        f"  Mode: sandbox_cgroup_only false, by {FILE}.",
        f"  Pod's cgroup (pod below): {POD}",
        f"  shim: in {OVERHEAD} for 4 s",
        f"  vmm: in /system.slice, CPU in {OVERHEAD}",
        "  vcpu x2: in pod/kata_s-A",
        f"  Drift: vmm in /system.slice; it should be in {OVERHEAD} (for 3 s).",
        "  VM: 2 vCPU(s), memory 256Mi, by vmm.",
        "  Fit: limit 512Mi - VM 256Mi - overhead 180Mi (measured) = 76Mi left: fits.",
        "  Memory: unknown: a cgroup's memory could not be read, 200Mi of it outside the pod; guest RAM "
        "100Mi, VMM 80Mi, shim 20Mi; overhead 100Mi, declared 160Mi.",
        "  CPU: unknown: CPU use needs two readings.",
        "  Pod's limit: memory 768Mi by its containers and overhead, the kernel has 512Mi.",
        "  The kernel's OOM killer ended 1 process(es) in the pod's cgroup.",
    ]


def test_a_figure_that_is_missing_is_none_and_the_row_says_why() -> None:
    bare = row(Vm(VmReading(SandboxId("s-A"), 0)))
    figures = ("vm_memory", "memory", "guest_memory", "vmm_memory", "shim_memory", "overhead_memory", "cpu_m", "only")
    assert [getattr(bare, name) for name in figures] == [None] * len(figures)
    assert [name for name in figures if not bare.unknown.get(name)] == []
    assert bare.unknown["guest_memory"] == "no VMM process was found"
    assert "virtiofsd_memory" not in bare.unknown
    assert bare.fit.sentence == "unknown: the figures are not read yet"
    assert mode_sentence(bare) == "sandbox_cgroup_only unknown: line 3: no value"
    assert mode_sentence(row(replace(SPLIT, mode=ModeSaid(True, "/a\nb.toml")))).endswith("true, by /a\\u000ab.toml")


@pytest.mark.parametrize(
    ("headroom", "said"),
    [
        (Headroom(Fit.UNKNOWN, 512 * MI, None, 180 * MI, "measured"), "the size of its VM is not known"),
        (Headroom(Fit.UNKNOWN, 512 * MI, 256 * MI, MI, "measured", MI), "a limit above it could not be read"),
        (Headroom(Fit.UNLIMITED), "the pod's cgroup has no memory limit"),
        (Headroom(Fit.OUTSIDE, vm=256 * MI), "the VM's memory (256Mi) is not charged to the pod, so the pod's limit"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_verdict_without_arithmetic_says_why(headroom: Headroom, said: str) -> None:
    assert f"{headroom.fit.value}: {said}" in row(replace(SPLIT, headroom=headroom)).fit.sentence


def test_two_vms_in_one_pods_cgroup_are_counted_together_and_both_are_named() -> None:
    """As a pod has while a second sandbox of it starts: each fits alone, and the pod's limit does not hold both."""
    told = Told(State(EngineSettings(sandboxes=SandboxesSettings(Mode.OBSERVE))))
    boxes = [replace(sandbox("A"), id=SandboxId(one)) for one in ("s-A", "s-B")]

    def read(box: Sandbox, second: int, *there: Sandbox) -> None:
        inside = f"{POD}/{box.id}"
        tasks = tuple(replace(one, cgroup=inside, cpu_cgroup=inside, rss=40 * MI) for one in TASKS[2:])
        cgroups = (
            CgroupReading(Place.POD, POD, 200 * MI, 512 * MI),
            CgroupReading(Place.SANDBOX, inside, memory=100 * MI),
        )
        seen = VmReading(box.id, second * SECOND, tasks, cgroups, "k8s.io", "qemu", 256 * MI, 2, 0)
        told(VmsRead((seen,), 2, CgroupDriver.CGROUPFS, tuple(one.id for one in there) or None))

    for box in boxes:
        told(SandboxStarted(box))
    for second in (1, 2):
        for box in boxes:
            read(box, second)
    both = node_view(told.state, 2 * SECOND, {})
    read(boxes[0], 3, boxes[0])
    read(boxes[0], 4)

    assert both.sandboxes is not None
    lines = "\n".join(table.sandboxes(both.sandboxes))
    sum_ = "VM 256Mi + overhead 80Mi (measured) + 336Mi of the VM of s-B in the same pod"
    assert f"shop/pod-A (s-A): {sum_} exceed the limit 512Mi by 160Mi: will be killed at 96Mi of guest memory" in lines
    assert "shop/pod-A (s-B): " in lines
    assert "In the same pod's cgroup: the VM of s-B." in "\n".join(explain(both, "shop/pod-A") or ())
    assert [row.memory for row in both.sandboxes.rows] == [100 * MI] * 2, "nothing is counted twice"
    alone = there(sandboxes_view(told.state, 4 * SECOND))
    assert [(row.fit.fit, row.fit.others) for row in alone.rows] == [("fits", ())]


def test_a_sandbox_of_a_known_pod_comes_before_one_that_no_runtime_told_of_which_is_found_by_its_id() -> None:
    now = state_of_vms(replace(SPLIT, drifts=tuple(Drift("elsewhere", "io", f"/{n}", KATA, 1) for n in range(9))))
    vms = {SandboxId("forged"): SPLIT, **now.sandboxes.vms}
    view = node_view(replace(now, sandboxes=replace(now.sandboxes, vms=vms)), 5 * SECOND, {})
    assert view.sandboxes is not None
    assert [one.id for one in view.sandboxes.rows] == ["s-A", "forged"]
    assert (explain(view, "forg") or [""])[0].startswith("sandbox forged: VM")
    assert explain(view, "for") is None
    lines = [line.plain for line in sandbox_lines(view)]
    assert lines[0].startswith("sandboxes observe | 2 VM sandbox(es)")
    assert (len(lines), lines[-1].startswith("... and ")) == (7, True)
    assert sandbox_lines(node_view(state_of_vms(mode=Mode.OFF), 0, {})) == []


def test_the_table_has_a_line_for_each_sandbox_then_what_is_wrong() -> None:
    assert list(table.sandboxes(shown_sandboxes())) == [
        "sandboxes observe | 1 VM sandbox(es): 1 fits | 1 with drift",
        "POD         HANDLER    ONLY          VMM   VM     LIMIT  MEMORY  OVERHEAD  CPU  FIT   ELSEWHERE",
        "shop/pod-A  kata-qemu  false (file)  qemu  256Mi  512Mi  ?       100Mi     ?    fits  vmm",
        "charged to no pod: memory 200Mi, CPU unknown: it is not known of every sandbox yet; to cover it, raise "
        "kubelet's system-reserved by memory 220Mi, CPU unknown: it is not known of every sandbox yet; "
        "processes in a wrong place are in it: mend that first",
        "shop/pod-A: the kernel's OOM killer ended 1 process(es) in the pod's cgroup",
        f"shop/pod-A: vmm in /system.slice; it should be in {OVERHEAD}",
        "runtime handler kata-qemu: line 3: no value",
    ]


def test_a_class_has_what_was_measured_declared_and_recommended() -> None:
    assert list(table.classes(shown_sandboxes()))[:4] == [
        "CLASS  SAMPLES  SANDBOXES          P50    P95    P99    DECLARED  RECOMMENDED",
        "kata   100      4          memory  100Mi  100Mi  200Mi  160Mi     220Mi",
        "                           cpu     50m    50m    50m    250m      60m",
        "kata: the 99th percentile of 100 samples of 4 sandboxes, and 10 % more",
    ]
